# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob that is suspended, changed and resumed before it is reconciled, or while no manager runs."""

from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ForbiddenError, InvalidError, NotFoundError, ServerError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.util import trainjob
from testkit.builders import pod_override
from testkit.trainjobs import (
    GANG,
    KEY,
    MPI,
    PLAIN,
    ReconcilerWorld,
    built_world,
    ended_condition,
    running_world,
    suspended_world,
    world,
)


async def move(w: ReconcilerWorld) -> None:
    """Suspend, change and resume the TrainJob, as Kueue does when it moves it."""
    await w.suspend(True)
    await w.edit_image()
    await w.edit_nodes(5)
    await w.suspend(False)


async def noted(w: ReconcilerWorld) -> str | None:
    return trainjob.suspension_note(await w.server.get(TrainJob, KEY))


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("policy", [PLAIN, GANG], ids=["plain", "gang"])
async def test_the_job_set_is_suspended_then_built_again(policy: dict[str, object], killed: bool) -> None:
    w = await running_world(policy)
    assert await w.reconcile() == []
    await move(w)
    if killed:
        await w.restart()

    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True
    assert await w.image() == "one"  # the JobSet keeps the old spec while its Jobs run
    assert w.result.requeue_after == timedelta(seconds=10)
    await w.server.observe(suspended=1)
    assert await w.reconcile() == ["patch TrainJob", "apply JobSet dry run", "delete JobSet"]
    assert await noted(w) is None
    assert (await w.rebuilt())[-1] == "apply JobSet"
    assert (await w.job_set())["spec"]["suspend"] is False
    assert await w.image() == "two"
    assert await w.reconcile() == []
    if policy is GANG:
        (group,) = await w.server.list(PodGroup)
        assert group.spec.min_member == 5


def placed_on(flavor: str) -> list[dict[str, Any]]:
    return [pod_override({"nodeSelector": {"flavor": flavor}})]


@pytest.mark.parametrize("change", ["set", "removed"])
async def test_a_change_of_the_placement_alone_takes_effect(change: str) -> None:
    """JobSet permits a change of the placement in place, but its running pods keep the old placement."""
    selector = {"flavor": "reserved"} if change == "set" else None
    w = await built_world(podTemplateOverrides=placed_on("spot"))
    await w.suspend(True)
    await w.replace_overrides(placed_on("reserved") if selector else [])
    await w.suspend(False)
    # Only the server knows whose a selector is that is no longer desired.
    asked = ["apply JobSet dry run"] if change == "removed" else []
    assert await w.reconcile() == [*asked, "apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True
    await w.reconcile()
    await w.reconcile()
    assert (await w.pod()).get("nodeSelector") == selector
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_job_set_with_another_placement_starts_after_its_jobs_have_stopped() -> None:
    w = await running_world(podTemplateOverrides=placed_on("spot"))
    await w.suspend(True)
    await w.replace_overrides(placed_on("reserved"))
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet"]
    for _ in range(2):
        await w.reconcile()
        assert (await w.job_set())["spec"]["suspend"] is True
        assert w.result.requeue_after == timedelta(seconds=10)
    await w.server.observe(suspended=1)
    await w.reconcile()
    await w.reconcile()
    assert (await w.job_set())["spec"]["suspend"] is False
    assert (await w.pod())["nodeSelector"] == {"flavor": "reserved"}


async def test_a_failed_suspension_is_tried_again() -> None:
    w = await built_world()
    await move(w)
    w.server.refuse = lambda _obj: ForbiddenError("not now", code=403, reason="Forbidden")
    with pytest.raises(ForbiddenError):
        await w.reconcile()
    w.server.refuse = lambda _obj: None
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True


async def test_without_a_change_the_pods_run_on() -> None:
    w = await running_world()
    await w.suspend(True)
    await w.suspend(False)
    assert await w.reconcile() == []
    await w.edit_image()  # takes effect at the next suspension
    assert await w.reconcile() == []
    assert await w.reconcile() == []
    assert len(w.recorder.events) == 1
    assert "Warning JobSetNotFollowing: JobSet ns/job runs with an earlier spec" in w.recorder.events[0]


@pytest.mark.parametrize("times", [1, 2], ids=["", "noted"])
async def test_labels_of_others_on_a_running_job_set_are_no_other_spec(times: int) -> None:
    w = await labelled(times)
    note = ["patch TrainJob"] if await noted(w) else []
    assert bool(note) == (times == 2)
    assert await w.reconcile() == ["apply JobSet dry run", *note]
    assert await w.reconcile() == []
    assert (await w.job_set())["spec"]["suspend"] is False
    assert w.recorder.events == []


async def labelled(times: int, policy: dict[str, Any] = PLAIN) -> ReconcilerWorld:
    """Return a restarted world with a running JobSet that another writer has labelled."""
    w = await running_world(policy)
    for suspend in (True, False) * times:
        await w.suspend(suspend)
    live = await w.server.get(JobSet, KEY)
    live.metadata.labels, live.metadata.annotations = {"theirs": "1"}, {"theirs": "1"}
    await w.server.update(live, field_owner="policy")
    await w.restart()
    return w


@pytest.mark.parametrize(
    "error",
    [
        ServerError("no answer of the webhook", code=500, reason="InternalError"),
        ForbiddenError("no", code=403, reason="Forbidden"),
    ],
)
async def test_a_running_job_set_that_cannot_be_compared_does_not_hold_the_repair_of_its_siblings(
    error: Exception,
) -> None:
    w = await labelled(1, MPI)
    await w.server.delete(await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile")))
    w.server.refuse = lambda obj: error if isinstance(obj, JobSet) else None
    assert "apply ConfigMap" in await w.reconcile()
    assert w.recorder.events == []


async def test_a_running_job_set_that_could_not_be_compared_is_compared_by_the_next_reconcile() -> None:
    w = await labelled(1)
    error = ServerError("no answer of the webhook", code=500, reason="InternalError")
    w.server.refuse = lambda _obj: error
    await w.reconcile()
    w.server.refuse = lambda _obj: None
    assert await w.reconcile() == ["apply JobSet dry run"]
    assert await w.reconcile() == []


async def test_a_policy_that_refuses_the_comparison_does_not_stop_the_job() -> None:
    w = await labelled(2)
    assert await noted(w) is not None
    w.server.refuse = lambda _obj: ForbiddenError("no JobSets today", code=403, reason="Forbidden")
    with pytest.raises(ForbiddenError):
        await w.reconcile()
    assert await noted(w) is not None
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_sibling_is_restored_although_a_policy_has_changed_the_job_set() -> None:
    w = await world(MPI)

    def mutate(spec: dict[str, Any], create: bool) -> None:
        for job in spec["replicatedJobs"] if create else ():
            job["template"]["spec"]["template"]["spec"]["priorityClassName"] = "team"

    w.server.mutate = mutate
    await w.reconcile()
    await w.server.observe(active=1)
    await w.server.delete(await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile")))
    assert await w.reconcile() == ["apply ConfigMap"]
    assert w.recorder.events == []


async def test_a_job_set_that_has_ended_is_not_built_again() -> None:
    w = await suspended_world()
    await w.finish("Completed")
    await w.edit_image()
    assert await w.reconcile() == []
    job = await w.server.get(TrainJob, KEY)
    assert trainjob.is_finished(job)


@pytest.mark.parametrize("change", ["it has ended", "it was deleted", "it was replaced"])
async def test_a_train_job_does_not_run_again_while_the_cache_does_not_show_its_end(change: str) -> None:
    w = await running_world()
    await w.reconcile()
    newest = (await w.server.get(TrainJob, KEY)).to_dict()
    if change == "it has ended":
        newest["status"] |= ended_condition()
    elif change == "it was replaced":
        newest["metadata"]["uid"] = "uid-of-the-next"
    await w.restart(reader=FakeClient(*[] if change == "it was deleted" else [TrainJob.from_dict(newest)]))
    await w.server.delete(await w.server.get(JobSet, KEY))
    assert await w.reconcile() == []
    assert w.result.requeue_after
    assert w.recorder.events == []
    with pytest.raises(NotFoundError):
        await w.job_set()


async def test_a_changed_runtime_does_not_restart_pods_of_a_train_job_that_was_suspended_before() -> None:
    w = await built_world()
    for suspend in (True, False, True, False):
        await w.suspend(suspend)
    assert await noted(w) is not None
    assert await w.reconcile() == ["patch TrainJob"]
    changed = await w.server.get(ClusterTrainingRuntime, ("", "rt"))
    (job,) = changed.spec.template.spec.replicated_jobs or []
    job.template.spec.template.spec.host_network = True
    await w.server.update(changed)
    await w.restart()
    assert await w.reconcile() == []
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_job_set_that_has_ended_stays() -> None:
    w = await built_world()
    await move(w)
    await w.finish("Completed")
    assert await w.reconcile() == ["patch TrainJob"]
    assert await w.reconcile() == []


async def stopped() -> ReconcilerWorld:
    """Return a world whose JobSet is suspended because its TrainJob was moved; the TrainJob still has the note."""
    w = await built_world()
    await move(w)
    assert await w.reconcile() == ["apply JobSet"]
    assert await noted(w) is not None
    return w


@pytest.mark.parametrize("refusal", [ForbiddenError("no"), InvalidError('admission webhook "w" denied it')])
async def test_a_note_that_cannot_be_removed_holds_the_job_set(refusal: Exception) -> None:
    """If the note remained when the JobSet starts, a later edit of the runtime would stop its pods."""
    w = await stopped()

    async def refuse(*_args: object, **_options: object) -> None:
        raise refusal

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(w.server, "patch", refuse)
        with pytest.raises(type(refusal)):
            await w.reconcile()
    assert (await w.job_set())["spec"]["suspend"] is True
    assert (await w.reconcile())[0] == "patch TrainJob"


async def test_a_train_job_that_is_deleted_before_its_note_is_removed_causes_no_warning() -> None:
    async def delete(inner: Any, obj: Any, patch: Any, **options: Any) -> Any:
        await inner.delete(await inner.get(TrainJob, KEY))
        return await inner.patch(obj, patch, **options)

    w = await stopped()
    await w.restart(interceptor.Funcs(patch=delete))
    assert await w.reconcile() == ["delete TrainJob", "patch TrainJob"]
    assert w.recorder.events == []


async def test_a_new_leader_whose_cache_lags_behind_keeps_the_note() -> None:
    w = await suspended_world()
    old = await w.server.get(JobSet, KEY)
    await w.suspend(False)
    await w.reconcile()
    await w.server.observe(active=1)
    await move(w)

    async def get(inner: Any, kind: Any, key: Any) -> Any:
        return old.deep_copy() if kind is JobSet else await inner.get(kind, key)

    await w.restart(interceptor.Funcs(get=get), reader=w.server)
    assert await w.reconcile() == []
    assert await noted(w) is not None
    await w.restart()
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True


async def test_a_note_of_a_later_suspension_stays() -> None:
    w = await stopped()
    stale, first = await w.server.get(TrainJob, KEY), await noted(w)
    await move(w)
    get = w.server.get

    async def read(kind: Any, key: Any) -> Any:
        return stale if kind is TrainJob else await get(kind, key)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(w.server, "get", read)
        await w.reconcile()
    assert await noted(w) not in (None, first)
    assert (await w.job_set())["spec"]["suspend"] is True
