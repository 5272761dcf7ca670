# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs whose objects cannot be built or are refused: their JobSets can be suspended, and a condition says why."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.cache import CacheDegradedError
from controller_runtime.machinery.errors import InvalidError, NotFoundError, ServerError
from controller_runtime.rest import AnswerError

from pkg.apis.config.v1alpha1 import DENY, RuntimePatches
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.runtime.framework import InvalidFieldError
from testkit.builders import pod_override, runtime_patch
from testkit.trainjobs import GANG, KEY, PLAIN, ReconcilerWorld, built_world, running_world, world

RUNTIME = ("", "rt")
OVERRIDES = [pod_override({"nodeSelector": {"a": "b"}})]
UNFIT = [runtime_patch("example.com/m", spec={"replicatedJobs": [{"name": "node"}]})]
CONTEXT = {"containers": [{"name": "node", "securityContext": {"privileged": True}}]}
PRIVILEGED = [runtime_patch("example.com/m", CONTEXT)]


async def delete_runtime(w: ReconcilerWorld) -> None:
    await w.server.delete(await w.server.get(ClusterTrainingRuntime, RUNTIME))


async def rename_job(w: ReconcilerWorld) -> None:
    """Rename the runtime's job, which a patch of the TrainJob names."""
    runtime = await w.server.get(ClusterTrainingRuntime, RUNTIME)
    (runtime.spec.template.spec.replicated_jobs or [])[0].name = "other"
    await w.server.update(runtime)


async def deny_patch(w: ReconcilerWorld) -> None:
    w.cfg.runtime_patches = RuntimePatches(security_context=DENY)
    await w.restart()


def fail_pod_groups(error: Exception) -> Callable[[ReconcilerWorld], Awaitable[None]]:
    async def obstruct(w: ReconcilerWorld) -> None:
        get = w.server.get

        async def failing(kind: Any, key: Any) -> Any:
            if kind is PodGroup:
                raise error
            return await get(kind, key)

        w.server.get = failing  # type: ignore[method-assign]

    return obstruct


@pytest.mark.parametrize("suspend", [True, False])
async def test_a_denied_patch_is_not_built_without_the_webhook(suspend: bool) -> None:
    w = await world(runtimePatches=PRIVILEGED, suspend=suspend)
    await deny_patch(w)
    with pytest.raises(ExceptionGroup):
        await w.reconcile()
    with pytest.raises(NotFoundError):
        await w.job_set()
    assert "securityContext: Forbidden: the manager's Configuration denies" in w.recorder.events[0]


async def is_suspended(w: ReconcilerWorld) -> bool:
    return bool((await w.job_set())["spec"]["suspend"])


@pytest.mark.parametrize(
    ("policy", "spec", "obstruct"),
    [
        pytest.param(PLAIN, {}, delete_runtime, id="the runtime was deleted"),
        pytest.param(PLAIN, {"runtimePatches": UNFIT}, rename_job, id="a patch no longer fits the runtime"),
        pytest.param(PLAIN, {"runtimePatches": PRIVILEGED}, deny_patch, id="a patch is denied since"),
        pytest.param(
            GANG,
            {},
            fail_pod_groups(CacheDegradedError(PodGroup.gvk, "not served")),
            id="PodGroups are no longer served",
        ),
        pytest.param(
            GANG, {}, fail_pod_groups(AnswerError("too large")), id="a PodGroup is too large to be read"
        ),
    ],
)
async def test_the_job_set_of_objects_that_cannot_be_built_is_suspended(
    policy: dict[str, Any], spec: dict[str, Any], obstruct: Callable[[ReconcilerWorld], Awaitable[None]]
) -> None:
    w = await running_world(policy, **spec)
    await w.suspend(True)
    await obstruct(w)
    with pytest.raises(Exception, match=r"not found|doesn't exist|denies|not served|too large"):
        await w.reconcile()
    assert await is_suspended(w)
    assert await w.image() == "one"
    assert len(w.recorder.events) == 1


@pytest.mark.parametrize("field", ["labels", "image"])
async def test_the_job_set_of_a_refused_edit_is_suspended_and_follows_once_the_edit_is_valid(
    field: str,
) -> None:
    w = await built_world()
    refusal = InvalidError("Invalid value: not valid", code=422, reason="Invalid")
    w.server.refuse = lambda obj: refusal if "not valid" in str(obj.to_dict()) else None

    def edit(value: str) -> Callable[[TrainJob], None]:
        def change(job: TrainJob) -> None:
            job.spec.suspend = True
            if field == "labels":
                job.spec.labels = {"team": value}
            elif job.spec.trainer is not None:
                job.spec.trainer.image = value

        return change

    await w.train_job(edit("not valid"))
    with pytest.raises(InvalidError, match="not valid"):
        await w.reconcile()
    assert await is_suspended(w)
    assert "not valid" not in str(await w.job_set())
    assert "not valid" in w.recorder.events[0]

    await w.server.observe(suspended=1)
    await w.train_job(edit("valid"))
    await w.reconcile()
    if field == "image":
        await w.rebuilt()
    assert "valid" in str((await w.job_set())["metadata" if field == "labels" else "spec"])
    assert await is_suspended(w)


async def test_a_refused_sibling_of_a_suspended_job_set_is_reported_as_it_is() -> None:
    w = await built_world(GANG)
    await w.suspend(True)
    await w.edit_nodes(5)
    error = ServerError("the webhook of PodGroups is unreachable", code=500, reason="InternalError")
    w.server.refuse = lambda obj: error if isinstance(obj, PodGroup) else None
    await w.reconcile()
    await w.server.observe(suspended=1)
    await w.reconcile()
    await w.server.collect()
    with pytest.raises(ServerError, match="unreachable"):
        await w.reconcile()
    assert await is_suspended(w)
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2


async def condition(w: ReconcilerWorld) -> tuple[str, str, str] | None:
    job = await w.server.get(TrainJob, KEY)
    found = [each for each in job.status.conditions or () if each.type == "SpecInvalid"]
    return (found[0].status, found[0].reason, found[0].message) if found else None


async def test_a_negative_number_of_nodes_is_a_condition_until_it_is_corrected() -> None:
    w = await world(PLAIN, suspend=True)
    await w.edit_nodes(-1)
    with pytest.raises((InvalidFieldError, ExceptionGroup)):
        await w.reconcile()

    text = "spec.trainer.numNodes must be at least 1: -1 pods of job node are not possible"
    assert await condition(w) == ("True", "InvalidField", text)
    assert await w.server.list(JobSet) == []

    await w.edit_nodes(2)
    with contextlib.suppress(ExceptionGroup):
        await w.reconcile()
    assert await condition(w) is None
    assert len(await w.server.list(JobSet)) == 1


async def test_zero_nodes_are_built_as_upstream_builds_them() -> None:
    w = await world(PLAIN)
    await w.edit_nodes(0)
    await w.reconcile()
    assert await condition(w) is None
    assert (await w.job_set())["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 0
