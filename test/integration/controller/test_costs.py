# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of a TrainJob in counts that do not depend on the machine; a change that raises one needs a reason."""

import asyncio
import gc
import json
from collections import Counter
from typing import Any

import anyio
import pytest
from controller_runtime import metrics
from controller_runtime.cache import handlers
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import Struct, unstructured
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet, JobSetSpec
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.builders import train_job_document, written_runtime

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]

JOBS = 20
ANY_TRAIN_JOB, ANY_JOB_SET = unstructured(TrainJob.gvk), unstructured(JobSet.gvk)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[type[Struct]]:
    """Return the number of objects that are decoded from JSON, by class; ``Struct`` has the manager's total in bytes.

    The test itself decodes its objects as other classes than the manager.
    """
    counts: Counter[type[Struct]] = Counter()
    decode = Struct.from_json.__func__  # type: ignore[attr-defined]  # the function under the class method

    def counting(cls: type[Struct], data: bytes | str) -> Any:
        counts[cls] += 1
        if cls not in (ANY_TRAIN_JOB, ANY_JOB_SET):
            counts[Struct] += len(data)
        return decode(cls, data)

    monkeypatch.setattr(Struct, "from_json", classmethod(counting))
    return counts


def reconciles(controller: str) -> float:
    labels = {"controller": controller, "result": "success"}
    return metrics.REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0


async def complete(client: LiveClient, namespace: str, names: list[str]) -> None:
    """Create TrainJobs, complete their JobSets once all exist, and return when all TrainJobs are Complete."""
    for name in names:
        document = train_job_document(namespace, "runtime", name=name, kind="TrainingRuntime")
        await client.create(ANY_TRAIN_JOB.from_dict(document))

    async def made() -> bool:
        return {each.name for each in await client.list(ANY_JOB_SET, namespace=namespace)} >= {*names}

    await eventually(made, timeout=30, interval=1, reason="every TrainJob has its JobSet")
    done = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
    status = {"conditions": [{**done, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    for name in names:
        target = ANY_JOB_SET.from_dict({"metadata": {"name": name, "namespace": namespace}})
        await client.status.patch(target, raw_patch(MERGE, json.dumps({"status": status}).encode()))

    async def completed() -> bool:
        jobs = await client.list(ANY_TRAIN_JOB, namespace=namespace)
        done = {each.name for each in jobs if "Complete" in str(each.nested("status", "conditions"))}
        return done >= {*names}

    await eventually(completed, timeout=30, interval=1, reason="every TrainJob is Complete")
    await anyio.sleep(1)


async def test_a_train_job_costs_no_more_than_this(
    run_manager: Any,
    live_client: LiveClient,
    namespace: str,
    decoded: Counter[type[Struct]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The event of a write is recognized however late a busy server answers the write.
    monkeypatch.setattr(handlers, "HOLD", 60.0)
    await live_client.create(written_runtime(namespace, mlPolicy={"numNodes": 1, "torch": {}}))
    names = [f"job-{number}" for number in range(JOBS)]
    sent: list[Request] = []
    async with run_manager(sent=sent):
        # The first TrainJob is not counted: it gives the runtime its finalizer, which causes further reconciles.
        await complete(live_client, namespace, ["first"])
        before = reconciles("trainjob_controller")
        decoded.clear()
        sent.clear()
        await complete(live_client, namespace, names)
        spent = reconciles("trainjob_controller") - before
        tasks = len(asyncio.all_tasks())
    decoded = Counter(decoded)
    guarding = reconciles("trainingruntime_controller")
    async with run_manager():
        # At a start with existing TrainJobs, each runtime is reconciled once, not once for each TrainJob.
        runtimes = len(await live_client.list(TrainingRuntime))
        await eventually(
            lambda: reconciles("trainingruntime_controller") - guarding >= runtimes,
            timeout=60,
            reason="each runtime is reconciled",
        )
        await anyio.sleep(2)
        guarding = reconciles("trainingruntime_controller") - guarding
    writes = Counter(
        request.path.removesuffix("/status").rsplit("/", 2)[-2]
        for request in sent
        if request.method == "PATCH"
    )
    assert spent == 2 * JOBS  # one creates the JobSet, one sets the status: our own writes cause no reconcile
    assert (writes["jobsets"], writes["trainjobs"]) == (JOBS, JOBS)
    # A TrainJob is decoded twice, for the reconciles of its two versions. Its index and the protection of its runtime
    # decode only the reference to the runtime.
    assert decoded[TrainJob] <= 2 * JOBS + 5
    # Only the completed JobSet is decoded: neither the answer to the apply nor the new JobSet, which has no status yet.
    assert decoded[JobSet] <= JOBS
    # The template is decoded once, to build the JobSet; nothing is built after the JobSet has ended.
    assert decoded[JobSetSpec] <= JOBS
    assert decoded[TrainingRuntime] <= 2 * JOBS
    assert guarding == runtimes
    assert decoded[Struct] <= 4_000 * JOBS  # bytes, of TrainJobs of 0.6 KB and JobSets of 1.3 KB
    # Tasks of the event loop: workers, as many workers for namespaces that others would keep waiting, four for every
    # watched kind, three for each further controller that watches it, one for each watch that MPI, Flux or Workload
    # starts with its first TrainJob, and the report of late starts.
    assert tasks <= 94


@pytest.mark.parametrize(("version", "snapshots"), [("2.1", []), ("2.3", ["configmaps"])])
@pytest.mark.parametrize(
    ("spec", "applied", "created"),
    [
        pytest.param({"mlPolicy": {"torch": {}}}, ["jobsets"], [], id="torch"),
        pytest.param(
            {"mlPolicy": {"torch": {}}, "podGroupPolicy": {"coscheduling": {}}},
            ["podgroups", "jobsets"],
            [],
            id="coscheduling",
        ),
        pytest.param({"mlPolicy": {"mpi": {}}}, ["secrets", "configmaps", "jobsets"], [], id="mpi"),
        pytest.param({"mlPolicy": {"flux": {}}}, ["configmaps", "jobsets"], ["secrets"], id="flux"),
    ],
)
async def test_train_jobs_of_both_profiles_send_one_write_a_child_and_one_status(
    run_manager: Any,
    live_client: LiveClient,
    namespace: str,
    serve_pod_groups: Any,
    spec: dict[str, Any],
    applied: list[str],
    created: list[str],
    version: str,
    snapshots: list[str],
) -> None:
    if "podGroupPolicy" in spec:
        await serve_pod_groups(PodGroup)
    await live_client.create(written_runtime(namespace, **spec))
    sent: list[Request] = []
    async with run_manager(sent=sent, version=version):
        # The first TrainJob starts the watches of its plugins, and its runtime gets its finalizer.
        await complete(live_client, namespace, ["first"])
        sent.clear()
        names = [f"job-{number}" for number in range(5)]
        await complete(live_client, namespace, names)
    place = f"/namespaces/{namespace}/"  # the manager also reconciles objects of earlier tests
    counts = Counter(
        (each.method, each.path.partition(place)[2].split("/")[0]) for each in sent if place in each.path
    )
    wanted = {("PATCH", kind): len(names) for kind in [*applied, "trainjobs"]}
    wanted |= {("POST", kind): len(names) for kind in [*created, *snapshots]}
    assert counts == wanted


@pytest.mark.parametrize("policy", ["torch", "mpi"])
async def test_a_train_job_leaves_nothing_to_the_garbage_collection(
    run_manager: Any, live_client: LiveClient, namespace: str, policy: str
) -> None:
    """Objects that refer to each other are freed only by a garbage collection, which costs more the more there are."""
    await live_client.create(written_runtime(namespace, mlPolicy={policy: {}}))
    async with run_manager():
        await complete(live_client, namespace, ["first"])
        gc.collect()
        gc.disable()
        try:
            await complete(live_client, namespace, [f"job-{number}" for number in range(JOBS)])
            for kind in (ANY_JOB_SET, ANY_TRAIN_JOB):
                for each in await live_client.list(kind, namespace=namespace):
                    await live_client.delete(each)
                await anyio.sleep(1)
            left = collected()
        finally:
            gc.enable()
    assert {name: count for name, count in left.items() if count >= JOBS} == {}


def collected() -> Counter[str]:
    """Return how many unreachable objects of each type a garbage collection finds."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
