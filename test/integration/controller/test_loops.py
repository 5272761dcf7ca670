# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Children that change or disappear are restored within a second, and settled TrainJobs cost no requests."""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from controller_runtime import cache, metrics
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import InvalidError, NotFoundError
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_runtime, written_train_job

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]

RunManager = Callable[..., Any]
MANY = int(os.environ.get("STEADY_TRAINJOBS", "200"))
WRITES = {"POST", "PUT", "PATCH", "DELETE"}


@pytest.fixture
def sent() -> list[Request]:
    """Return the list of the manager's requests."""
    return []


def writes(sent: list[Request]) -> list[str]:
    return [f"{request.method} {request.path}" for request in sent if request.method in WRITES]


def reconciled() -> float:
    """Return how often TrainJobs were reconciled in this process."""
    name, labels = "controller_runtime_reconcile_total", {"controller": "trainjob_controller"}
    return sum(
        metrics.REGISTRY.get_sample_value(name, {**labels, "result": result}) or 0.0
        for result in ("success", "error", "requeue", "requeue_after")
    )


async def quiet(sent: list[Request], *, looks: int = 30) -> None:
    """Return after ``looks`` checks in a row, every 50 ms, without a new write.

    If the machine pauses, only one check is late.
    """
    before, same = len(writes(sent)), 0
    while same < looks:
        await anyio.sleep(0.05)
        now = len(writes(sent))
        before, same = now, same + 1 if now == before else 0


async def all_at_once(*steps: Awaitable[Any]) -> None:
    limiter = anyio.Semaphore(32)

    async def limited(step: Awaitable[Any]) -> None:
        async with limiter:
            await step

    async with anyio.create_task_group() as tasks:
        for step in steps:
            tasks.start_soon(limited, step)


@pytest.mark.timeout(60 + MANY)
async def test_neither_a_resync_of_settled_jobs_nor_a_restart_sends_a_write(
    run_manager: RunManager, live_client: LiveClient, namespace: str, sent: list[Request], figure: Any
) -> None:
    for shared in (
        written_runtime(namespace, "torch", mlPolicy={"numNodes": 1, "torch": {}}),
        written_runtime(namespace, "mpi", mlPolicy={"numNodes": 1, "mpi": {}}),
    ):
        await live_client.create(shared)
    kinds = [("torch", False), ("torch", False), ("torch", True), ("mpi", False)]
    jobs = []
    for number in range(MANY):
        name, suspend = kinds[number % len(kinds)]
        jobs.append(
            written_train_job(namespace, name, name=f"job-{number}", suspend=suspend, trainer={"numNodes": 2})
        )

    async def counted(job: TrainJob) -> None:
        job_set = await live_client.get(JobSet, job.key)
        counts = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        job_set.status = job_set.status.from_dict({"replicatedJobsStatus": [counts]})
        await live_client.status.update(job_set)

    async with run_manager(sent=sent):
        await all_at_once(*map(live_client.create, jobs))

        async def made() -> bool:
            return len(await live_client.list(JobSet, namespace=namespace)) == MANY

        await eventually(made, timeout=30 + MANY / 4, interval=0.5, reason="every TrainJob has its JobSet")
        await all_at_once(*map(counted, jobs))
        await quiet(sent)

    sent.clear()
    before = reconciled()
    resync = 2.0 + MANY / 200
    options = cache.Options(resync_period=resync)
    async with run_manager(sent=sent, cache=options):
        await eventually(
            lambda: reconciled() - before >= MANY,
            timeout=30 + MANY / 4,
            reason="every TrainJob is reconciled",
        )
        await quiet(sent)
        at_restart = [each for each in writes(sent) if namespace in each]
        read_at_restart = [each.path for each in sent if each.method == "GET" and namespace in each.path]
        sent.clear()
        started = reconciled()

        def resynced() -> bool:
            return reconciled() - started >= 2 * MANY

        await eventually(
            resynced, timeout=8 * resync + 30, interval=0.2, reason="everything was resynced twice"
        )
        figure(
            f"{MANY} settled TrainJobs, {reconciled() - started:.0f} reconciles by resyncs: writes",
            len([each for each in writes(sent) if namespace in each]),
            at_most=0,
            unit="requests",
        )
        assert [each.path for each in sent if namespace in each.path] == []  # nothing is read either
    figure(f"{MANY} settled TrainJobs, restart: writes", len(at_restart), at_most=0, unit="requests")
    # The data of ConfigMaps is not cached, so each is read once after a restart.
    mpi = [job for job in jobs if job.spec.runtime_ref.name == "mpi"]
    assert len(read_at_restart) == len(mpi)
    assert all("/configmaps/" in path for path in read_at_restart)


async def replaced(client: LiveClient, gone: Object) -> Object | None:
    try:
        found = await client.get(type(gone), gone.key)
    except NotFoundError:
        return None
    return found if found.metadata.uid != gone.metadata.uid else None


SECRET, HOSTS = "job-mpi-ssh-auth", "job-mpi-hostfile"
DELETED: list[tuple[type[Object], str]] = [(JobSet, "job"), (Secret, SECRET), (ConfigMap, HOSTS)]
EDITED: list[tuple[type[Object], str, bytes, tuple[str, ...]]] = [
    (JobSet, "job", b'{"spec":{"suspend":true}}', ("spec", "suspend")),
    (JobSet, "job", b'{"metadata":{"ownerReferences":null}}', ("metadata", "ownerReferences")),
    (ConfigMap, HOSTS, b'{"data":{"hostfile":"x"}}', ("data",)),
    (ConfigMap, HOSTS, b'{"data":null}', ("data",)),
]


async def running_mpi_job(client: LiveClient, namespace: str, sent: list[Request]) -> None:
    await client.create(written_runtime(namespace, "mpi", mlPolicy={"numNodes": 1, "mpi": {}}))
    await client.create(written_train_job(namespace, "mpi", labels={"team": "ours"}))
    await eventually(lambda: client.get(JobSet, (namespace, "job")), reason="the JobSet is made")
    await quiet(sent, looks=6)


async def test_what_a_job_owns_is_back_at_once_when_it_was_deleted(
    run_manager: RunManager, live_client: LiveClient, namespace: str, sent: list[Request], figure: Any
) -> None:
    async with run_manager(sent=sent):
        await running_mpi_job(live_client, namespace, sent)
        for kind, name in DELETED:
            owned = await live_client.get(kind, (namespace, name))
            sent.clear()
            await live_client.delete(owned)
            began = anyio.current_time()
            back = partial(replaced, live_client, owned)
            await eventually(back, interval=0.01, reason=f"{kind.__name__} is back")
            figure(f"{kind.__name__} back after its deletion", anyio.current_time() - began, at_most=5)
            await quiet(sent, looks=6)
            applied = [each for each in writes(sent) if each.startswith("PATCH") and "/status" not in each]
            assert [each.rpartition("/")[2] for each in applied] == [name]


async def test_what_a_job_owns_is_as_it_was_at_once_when_it_was_edited(
    run_manager: RunManager, live_client: LiveClient, namespace: str, sent: list[Request], figure: Any
) -> None:
    async def value(kind: type[Object], name: str, field: tuple[str, ...]) -> Any:
        found: Any = (await live_client.get(kind, (namespace, name))).to_dict()
        for step in field:
            found = found.get(step) or {}
        return found

    async with run_manager(sent=sent):
        await running_mpi_job(live_client, namespace, sent)
        for kind, name, patch, field in EDITED:
            wanted = await value(kind, name, field)
            sent.clear()
            await live_client.patch(await live_client.get(kind, (namespace, name)), raw_patch(MERGE, patch))
            began = anyio.current_time()

            async def healed(*what: Any, wanted: Any = wanted) -> bool:
                return bool(await value(*what) == wanted)

            back = partial(healed, kind, name, field)
            await eventually(back, interval=0.01, reason=f"{kind.__name__} is as it was")
            what = f"{kind.__name__} {'.'.join(field)} as it was after an edit"
            figure(what, anyio.current_time() - began, at_most=5)
            await quiet(sent, looks=6)
            assert len(writes(sent)) == 1
        # Fields that others add are not removed.
        sent.clear()
        added = raw_patch(MERGE, b'{"metadata":{"labels":{"theirs":"1"}}}')
        for kind in (JobSet, ConfigMap):
            await live_client.patch(
                await live_client.get(kind, (namespace, "job" if kind is JobSet else HOSTS)), added
            )
        await quiet(sent, looks=6)
        assert [each for each in writes(sent) if "/configmaps/" not in each] == []
        assert (await live_client.get(JobSet, (namespace, "job"))).labels == {"team": "ours", "theirs": "1"}


async def test_the_keys_of_a_job_cannot_be_edited(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(written_runtime(namespace, "mpi", mlPolicy={"numNodes": 1, "mpi": {}}))
    async with run_manager():
        await live_client.create(written_train_job(namespace, "mpi"))
        key = (namespace, "job-mpi-ssh-auth")
        secret = await eventually(lambda: live_client.get(Secret, key), reason="the keys are made")
        with pytest.raises(InvalidError, match="immutable"):
            await live_client.patch(secret, raw_patch(MERGE, b'{"data":{"ssh-publickey":"eA=="}}'))


async def test_a_job_that_somebody_else_manages_is_left_alone(
    run_manager: RunManager, live_client: LiveClient, namespace: str, sent: list[Request]
) -> None:
    await live_client.create(written_runtime(namespace, "torch", mlPolicy={"numNodes": 1, "torch": {}}))
    theirs = written_train_job(namespace, "torch", name="theirs", managedBy="kueue.x-k8s.io/multikueue")
    async with run_manager(sent=sent):
        await live_client.create(theirs)
        await live_client.create(written_train_job(namespace, "torch", name="ours"))
        await eventually(
            lambda: live_client.get(JobSet, (namespace, "ours")), reason="our TrainJob gets its JobSet"
        )

        async def none() -> bool:
            return [each.name for each in await live_client.list(JobSet, namespace=namespace)] == ["ours"]

        await consistently(none, reason="the TrainJob of another manager gets none")
    assert [each for each in writes(sent) if "theirs" in each] == []


async def test_a_runtime_kind_that_nobody_serves_fails_the_job_until_somebody_does(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(written_runtime(namespace, "torch", mlPolicy={"numNodes": 1, "torch": {}}))
    unknown = written_train_job(namespace, "torch", name="unknown")
    unknown.spec.runtime_ref.kind = "SlurmRuntime"
    recovering = await live_client.create(written_train_job(namespace, "torch", name="recovering"))
    verdict = {
        "type": "Failed",
        "status": "True",
        "reason": "TrainingRuntimeNotSupported",
        "message": "unsupported runtime: an older manager's",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    recovering.status = recovering.status.from_dict({"conditions": [verdict]})
    await live_client.status.update(recovering)

    async def reasons(name: str) -> list[str]:
        job = await live_client.get(TrainJob, (namespace, name))
        return [each.reason or "" for each in job.status.conditions or ()]

    async with run_manager():
        await live_client.create(unknown)

        async def failed() -> bool:
            return await reasons("unknown") == ["TrainingRuntimeNotSupported"]

        await eventually(failed, reason="a kind that is not served is reported")
        await eventually(
            lambda: live_client.get(JobSet, (namespace, "recovering")),
            reason="a TrainJob of a served kind gets its JobSet",
        )

        async def recovered() -> bool:
            return await reasons("recovering") == []

        await eventually(recovered, reason="the TrainJob of a served kind loses the condition Failed")
