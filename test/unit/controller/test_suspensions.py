# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob that is suspended, changed and resumed before it is reconciled."""

from datetime import timedelta

import pytest
from controller_runtime.apis.machinery.errors import ForbiddenError
from controller_runtime.event import UpdateEvent

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.suspensions import Suspensions
from testkit.trainjobs import GANG, KEY, PLAIN, World, world


async def move(w: World) -> None:
    """Suspend, change and resume, as Kueue does."""
    await w.suspend(True)
    await w.edit_image()
    await w.edit_nodes(5)
    await w.suspend(False)


@pytest.mark.parametrize("policy", [PLAIN, GANG], ids=["plain", "gang"])
async def test_the_job_set_is_suspended_then_built_again(policy: dict[str, object]) -> None:
    w = await world(policy)
    await w.reconcile()
    await w.server.observe(active=1)
    assert await w.reconcile() == []
    await move(w)

    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True
    assert await w.image() == "one"  # its Jobs still run
    assert w.result.requeue_after == timedelta(seconds=10)
    await w.server.observe(suspended=1)
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert (await w.rebuilt())[-1] == "apply JobSet"
    assert (await w.job_set())["spec"]["suspend"] is False
    assert await w.image() == "two"
    assert await w.reconcile() == []
    assert len(w.reconciler.suspensions) == 0
    if policy is GANG:
        (group,) = await w.server.list(PodGroup)
        assert group.spec.min_member == 5


@pytest.mark.parametrize("change", ["set", "removed"])
async def test_a_change_of_the_placement_alone_takes_effect(change: str) -> None:
    """JobSet lets it change in place, but the pods of a running JobSet have the old one."""
    selectors = [{"flavor": "spot"}, {"flavor": "reserved"} if change == "set" else None]

    def override(selector: dict[str, str] | None) -> list[dict[str, object]]:
        return [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": selector}}] if selector else []

    w = await world(podTemplateOverrides=override(selectors[0]))
    await w.reconcile()
    await w.suspend(True)
    await w.replace_overrides(override(selectors[1]))
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True
    await w.reconcile()
    await w.reconcile()
    assert (await w.pod()).get("nodeSelector") == selectors[1]
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_failed_suspension_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    w = await world()
    await w.reconcile()
    await move(w)

    async def refuse(*_args: object, **_options: object) -> None:
        raise ForbiddenError("not now", code=403, reason="Forbidden")

    monkeypatch.setattr(w.server, "apply", refuse)
    with pytest.raises(ForbiddenError):
        await w.reconcile()
    monkeypatch.undo()
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is True


async def test_without_a_change_the_pods_run_on() -> None:
    w = await world()
    await w.reconcile()
    await w.server.observe(active=1)
    await w.suspend(True)
    await w.suspend(False)
    assert await w.reconcile() == []
    await w.edit_image()  # waits for the next suspension
    assert await w.reconcile() == []


async def test_a_job_set_that_has_ended_stays() -> None:
    w = await world()
    await w.reconcile()
    await move(w)
    job_set = await w.server.get(JobSet, KEY)
    job_set.status = job_set.status.from_dict(
        {"conditions": [{"type": "Completed", "status": "True", "reason": "r", "message": "m"}]}
    )
    await w.server.status.update(job_set)
    assert await w.reconcile() == []


async def test_a_suspension_that_was_reconciled_is_over() -> None:
    w = await world()
    await w.reconcile()
    await w.suspend(True)
    await w.reconcile()
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet"]
    await w.edit_image()
    assert await w.reconcile() == []
    assert len(w.reconciler.suspensions) == 0


async def test_a_suspension_is_of_one_train_job_and_stays_until_a_later_state_is_reconciled() -> None:
    w = await world()
    before = await w.server.get(TrainJob, KEY)
    after = before.shallow_copy()
    after.metadata = before.metadata.model_copy(update={"generation": 9})
    after.spec = before.spec.model_copy(update={"suspend": True})
    suspensions = Suspensions()
    assert suspensions.update(UpdateEvent(before, after))
    assert suspensions.update(UpdateEvent(after, after))
    suspensions.settle(before)  # it was read before the suspension
    assert suspensions.owed(before)
    suspensions.settle(after)
    assert not suspensions.owed(before)

    suspensions.update(UpdateEvent(before, after))
    before.metadata.uid = "another"
    assert not suspensions.owed(before)
    suspensions.forget(KEY)
    assert len(suspensions) == 0
