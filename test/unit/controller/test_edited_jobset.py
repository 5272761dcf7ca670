# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A suspended TrainJob's JobSet follows edits, and is recreated if it cannot change in place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, InvalidError, StatusError
from controller_runtime.metrics import REGISTRY

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.children import VolumesError
from testkit.jobset import IMMUTABLE
from testkit.trainjobs import (
    GANG,
    KEY,
    MPI,
    PLAIN,
    built_world,
    never_runs,
    running_world,
    runtime,
    suspended_world,
)


@pytest.mark.parametrize("webhook", [True, False], ids=["webhook", "no webhook"])
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
async def test_an_edit_of_a_suspended_train_job_takes_effect(webhook: bool, restart: bool) -> None:
    w = await suspended_world(webhook=webhook)
    uid = (await w.job_set())["metadata"]["uid"]
    await w.edit_image()
    if restart:
        await w.restart()
    assert await w.reconcile() == [
        "apply JobSet dry run",
        "delete JobSet",
    ]
    assert "is built again" in w.recorder.events[-1]
    assert await w.reconcile() == []  # it waits until the old JobSet and its Jobs are deleted
    assert w.result.requeue_after
    assert await w.rebuilt() == ["apply JobSet"]
    made = await w.job_set()
    assert made["metadata"]["uid"] != uid
    assert made["spec"]["suspend"] is True
    assert await w.image() == "two"
    assert await w.reconcile() == []
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False
    assert await w.image() == "two"
    never_runs(w, "one")


async def test_a_job_set_that_is_built_again_is_created_and_does_not_count_as_healed() -> None:
    def healed() -> float:
        return REGISTRY.get_sample_value("kubeflow_trainer_drift_healed_total", {"kind": "JobSet"}) or 0

    w = await suspended_world()
    before = healed()
    await w.edit_image()
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet"]
    assert healed() == before


async def test_a_job_set_that_ran_is_built_again_although_it_had_the_same_form() -> None:
    w = await suspended_world(webhook=False)
    await w.edit_image()
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet"]
    for suspend in (False, True):
        await w.suspend(suspend)
        await w.reconcile()
        await w.server.observe(suspended=int(suspend), active=int(not suspend))
    await w.reconcile()
    changed = await w.server.get(JobSet, KEY)
    changed.spec.replicated_jobs[0].template.spec.template.spec.containers[0].image = "another writer's"  # type: ignore[index]
    await w.server.update(changed)
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet"]
    assert await w.image() == "two"


async def test_an_edit_and_a_resumption_in_one_update_never_start_the_old_spec() -> None:
    w = await suspended_world(GANG)
    await w.edit_nodes(5)
    await w.edit_image()
    await w.suspend(False)
    assert await w.reconcile() == ["patch TrainJob", "apply JobSet dry run", "delete JobSet"]
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2
    assert await w.rebuilt() == ["apply PodGroup", "apply JobSet"]
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 5
    assert (await w.job_set())["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 5
    never_runs(w, "one")
    assert await w.reconcile() == []


async def test_a_deletion_names_the_version_that_was_judged() -> None:
    w = await suspended_world()
    await w.edit_image()
    metadata = (await w.job_set())["metadata"]
    seen: list[Any] = []
    delete = w.server.delete

    async def remembered(obj: Object, **options: Any) -> None:
        seen.append(options)
        await delete(obj, **options)

    w.server.delete = remembered  # type: ignore[method-assign] # records the options
    await w.reconcile()
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert seen == [{"propagation": "Foreground", "preconditions": wanted}]


async def test_before_the_first_look_of_jobsets_controller_a_job_set_follows_in_place() -> None:
    w = await built_world(webhook=False, suspend=True)
    uid = (await w.job_set())["metadata"]["uid"]
    await w.edit_image()
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert (await w.job_set())["metadata"]["uid"] == uid
    assert await w.image() == "two"


async def test_a_job_set_that_no_controller_observed_follows_soon_after_it_is_suspended() -> None:
    w = await built_world(webhook=False)
    await w.edit_image()
    await w.suspend(True)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert await w.image() == "one"
    assert w.result.requeue_after == timedelta(seconds=1)
    assert await w.reconcile() == ["patch TrainJob", "apply JobSet dry run", "apply JobSet"]
    assert await w.image() == "two"


@pytest.mark.parametrize(
    ("young", "old"),
    [
        pytest.param(timedelta(0), timedelta(seconds=11), id="its Jobs may be under way"),
        pytest.param(timedelta(seconds=-30), timedelta(hours=-5), id="the server's clock is hours ahead"),
    ],
)
async def test_a_young_job_set_is_not_deleted_yet(young: timedelta, old: timedelta) -> None:
    w = await built_world(suspend=True)
    await w.edit_image()
    begin = w.now
    w.now = begin + young
    assert await w.reconcile() == ["apply JobSet dry run"]
    assert w.result.requeue_after == timedelta(seconds=1)
    w.now = begin + old
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]


async def test_where_deleting_is_not_allowed_the_refusal_is_reported_and_nothing_changes() -> None:
    w = await suspended_world(GANG)
    w.server.role_may_delete = False
    before = await w.job_set(), await w.server.get(PodGroup, KEY)
    await w.edit_nodes(5)
    await w.suspend(False)
    for _ in range(2):
        with pytest.raises(ForbiddenError, match="field is immutable"):
            await w.reconcile()
    assert (await w.job_set(), await w.server.get(PodGroup, KEY)) == before
    assert w.recorder.events[-1].startswith(
        "Warning TrainJobResourcesCreationFailed: TrainJob resources reconciliation failed: admission webhook"
    )


@pytest.mark.parametrize("webhook", [True, False], ids=["webhook", "no webhook"])
async def test_where_deleting_is_not_allowed_no_error_is_its_own_cause(webhook: bool) -> None:
    w = await suspended_world(webhook=webhook)
    w.server.role_may_delete = False
    await w.edit_image()
    for _ in range(2):
        with pytest.raises(ForbiddenError) as caught:
            await w.reconcile()
        seen: list[BaseException | None] = [caught.value]
        while (cause := seen[-1].__cause__ if seen[-1] is not None else None) is not None:
            assert not any(cause is each for each in seen)
            seen.append(cause)
        assert "cannot delete" in str(seen[-1])


@pytest.mark.parametrize(
    "refusal",
    [
        ForbiddenError("the team's policy says no", code=403, reason="Forbidden"),
        InvalidError(
            'JobSet.jobset.x-k8s.io "immutable" is invalid: spec.network: no',
            code=422,
            reason="Invalid",
            details={"causes": [{"reason": "FieldValueInvalid", "message": "no", "field": "spec.network"}]},
        ),
    ],
    ids=["a policy", "a value of a JobSet of an unlucky name"],
)
async def test_a_refusal_for_another_reason_deletes_nothing(refusal: StatusError) -> None:
    w = await suspended_world(GANG)
    await w.edit_nodes(5)
    w.server.refuse = lambda _obj: refusal
    with pytest.raises(type(refusal), match=r"no$"):
        await w.reconcile()
    assert (await w.job_set())["metadata"].get("deletionTimestamp") is None
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2


@pytest.mark.parametrize("retention", [None, {"whenDeleted": "Retain"}], ids=["default", "Retain"])
async def test_a_job_set_that_may_have_run_is_not_deleted_with_its_volumes(
    retention: dict[str, str] | None,
) -> None:
    template = runtime().to_dict()["spec"]["template"]
    claims = {"templates": [{"metadata": {"name": "model"}}], "retentionPolicy": retention}
    template["spec"]["volumeClaimPolicies"] = [{key: value for key, value in claims.items() if value}]
    w = await suspended_world(PLAIN | {"template": template})
    await w.edit_image()  # its volumes are still empty
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet"]
    for suspend in (False, True):
        await w.suspend(suspend)
        assert await w.reconcile() == ["apply JobSet"]
        await w.server.observe(suspended=int(suspend), active=int(not suspend))
    await w.edit_image("three")
    if retention is None:
        for _ in range(2):
            with pytest.raises(VolumesError):
                await w.reconcile()
        assert "the volumes of this one would be deleted with it" in w.recorder.events[-1]
        assert (await w.job_set())["metadata"].get("deletionTimestamp") is None
        assert await w.image() == "two"
    else:
        assert (await w.reconcile())[-1] == "delete JobSet"


async def test_a_refusal_of_a_sibling_does_not_delete_the_job_set() -> None:
    w = await suspended_world(MPI)
    text = 'ConfigMap "job-mpi-hostfile" is invalid: data: field is immutable when `immutable` is set'
    refusal = InvalidError(text, code=422, reason="Invalid")  # somebody made the ConfigMap immutable
    w.server.refuse = lambda obj: refusal if isinstance(obj, ConfigMap) else None
    await w.server.delete(await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile")))
    with pytest.raises(InvalidError, match="immutable"):
        await w.reconcile()
    assert (await w.job_set())["metadata"].get("deletionTimestamp") is None


async def test_what_the_job_no_longer_requests_goes_away_even_if_no_manager_ran_then() -> None:
    env = [{"name": "KEEP", "value": "1"}, {"name": "GO", "value": "1"}]
    w = await suspended_world(trainer={"image": "one", "env": env, "numNodes": 2})
    only_one = TrainJob.from_dict({"spec": {"trainer": {"image": "one", "env": env[:1], "numNodes": 2}}})
    await w.train_job(lambda job: setattr(job.spec, "trainer", only_one.spec.trainer))
    await w.restart()
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    await w.rebuilt()
    assert (await w.pod())["containers"][0]["env"] == [{"name": "KEEP", "value": "1"}]


async def test_a_refusal_that_no_comparison_foresaw_leads_to_a_new_job_set() -> None:
    w = await suspended_world()
    refusal = ForbiddenError(IMMUTABLE, code=403, reason="Forbidden")
    w.server.refuse = lambda obj: refusal if obj.metadata.uid else None  # a stricter server
    await w.suspend(False)
    assert await w.reconcile() == ["delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_an_edited_running_job_is_suspended_as_it_is_and_built_again_once_it_has_stopped() -> None:
    w = await running_world(GANG)
    before = (await w.job_set())["spec"]
    await w.edit_image()
    await w.edit_nodes(5)
    await w.suspend(True)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert (await w.job_set())["spec"] == {**before, "suspend": True}
    assert await w.reconcile() == ["patch TrainJob", "apply JobSet dry run"]
    assert (
        w.recorder.events[-1]
        == "Normal JobSetRecreating: Waiting until the Jobs of JobSet ns/job have stopped"
    )
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2
    await w.server.observe(suspended=1)
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet", "apply PodGroup"]
    assert await w.image() == "two"
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 5
