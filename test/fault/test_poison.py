# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that cannot be decoded, and one whose reconciles always fail, do not harm valid ones."""

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import controller_runtime as ctrl
import pytest
from controller_runtime import metrics
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import InvalidError

from pkg import config
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.app import flags, program

pytestmark = pytest.mark.fault
GROUP = "trainer.kubeflow.org"
RUNTIMES = unstructured(GVK(GROUP, "v1alpha1", "TrainingRuntime"))
TRAIN_JOBS = unstructured(GVK(GROUP, "v1alpha1", "TrainJob"))
JOB_SETS = unstructured(GVK("jobset.x-k8s.io", "v1alpha2", "JobSet"))
REF = {"apiGroup": GROUP, "kind": "ClusterTrainingRuntime"}
HEALTHY = 20
MALFORMED: dict[str, dict[str, Any]] = {
    "trainer-is-text": {"trainer": "yes, please"},
    "nodes-are-text": {"trainer": {"numNodes": "many"}},
    "suspend-is-a-list": {"suspend": [True]},
    "ref-is-a-list": {"runtimeRef": ["torch"]},
    "labels-are-numbers": {"labels": {"a": 1}},
}


def any_shape(crd: dict[str, Any]) -> dict[str, Any]:
    """Return the CRD without a schema."""
    crd = copy.deepcopy(crd)
    for version in crd["spec"]["versions"]:
        version["schema"] = {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }
    return crd


@asynccontextmanager
async def manager(control_plane: Environment) -> AsyncIterator[ctrl.Manager]:
    """Run our manager in the test's process."""
    cfg = config.load()
    cfg.metrics.bind_address = cfg.health.health_probe_bind_address = "0"
    cfg.webhook.host, cfg.webhook.port = "127.0.0.1", 0
    mgr = ctrl.Manager(control_plane.config, config.manager_options(cfg))
    await program.setup(mgr, flags.parse([]), cfg)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        with anyio.fail_after(30):
            await mgr.elected.wait()
        yield mgr
        mgr.stop()


def train_job(namespace: str, name: str, runtime: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "spec": {"runtimeRef": {**REF, "name": runtime}, **spec}}


async def test_objects_stored_without_a_schema_stop_nobody_else(
    control_plane: Environment,
    client: LiveClient,
    namespace: str,
    trainer_crds: list[dict[str, Any]],
    make_runtime: Callable[..., Any],
    figure: Any,
) -> None:
    runtime = await make_runtime("torch-distributed", f"torch-{namespace}")
    await control_plane.install_crds(*map(any_shape, trainer_crds))
    for name, spec in MALFORMED.items():
        await client.create(TRAIN_JOBS.from_dict(train_job(namespace, name, runtime, **spec)))
    odd_runtime = {"metadata": {"namespace": namespace, "name": "odd"}, "spec": {"template": 7}}
    await client.create(RUNTIMES.from_dict(odd_runtime))
    ref = {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": "odd"}
    await client.create(TRAIN_JOBS.from_dict(train_job(namespace, "odd-runtime", "", runtimeRef=ref)))
    odd_job_set = {
        "metadata": {"namespace": namespace, "name": "odd-child"},
        "spec": {"replicatedJobs": "none"},
    }
    await client.create(JOB_SETS.from_dict(odd_job_set))
    await control_plane.install_crds(*trainer_crds)
    for name in ("odd-child", *(f"well-{number}" for number in range(HEALTHY))):
        await client.create(TRAIN_JOBS.from_dict(train_job(namespace, name, runtime)))

    async def job_sets() -> set[str]:
        return {each.name for each in await client.list(JOB_SETS, namespace=namespace)}

    well = {f"well-{number}" for number in range(HEALTHY)}

    async def all_well() -> bool:
        return well <= await job_sets()

    skipped = metrics.REGISTRY.get_sample_value
    labels = {"group": GROUP, "version": "v1alpha1", "kind": "TrainJob"}
    series = "controller_runtime_cache_skipped_objects_total"
    before = skipped(series, labels) or 0
    async with manager(control_plane) as mgr:
        began = anyio.current_time()
        await eventually(all_well, timeout=30, reason="the well-formed TrainJobs have their JobSets")
        figure(
            f"{len(MALFORMED)} malformed TrainJobs, a runtime and a JobSet: {HEALTHY} others served after",
            anyio.current_time() - began,
            at_most=10,
        )
        assert (skipped(series, labels) or 0) >= before + len(MALFORMED) - 1
        late = await client.create(TrainJob.from_dict(train_job(namespace, "well-late", runtime)))
        well.add(late.name)
        await eventually(all_well, timeout=10, reason="a later TrainJob has its JobSet")
        assert await job_sets() == {*well, "odd-child"}
        assert mgr.cache.degraded() == {}

        # Each corrected object is reconciled, including the odd JobSet.
        updated = 0
        for name in MALFORMED:
            odd = await client.get(TRAIN_JOBS, (namespace, name))
            fixed = train_job(namespace, name, runtime)
            fixed["metadata"]["resourceVersion"] = odd.metadata.resource_version
            try:
                await client.update(TRAIN_JOBS.from_dict(fixed))
            except InvalidError:  # a rule reads the old object, and the server cannot evaluate it
                await client.delete(odd)
                await client.create(TRAIN_JOBS.from_dict(train_job(namespace, name, runtime)))
            else:
                updated += 1
            well.add(name)
        assert updated > 2
        mended = anyio.current_time()
        await client.delete(await client.get(JOB_SETS, (namespace, "odd-child")))

        async def made_anew() -> bool:
            made = await client.get(JobSet, (namespace, "odd-child"))
            return bool(made.spec.replicated_jobs)

        await eventually(all_well, timeout=15, reason="the corrected TrainJobs have their JobSets")
        await eventually(made_anew, timeout=15, reason="the odd JobSet was replaced")
        figure("malformed objects: mended and served after", anyio.current_time() - mended, at_most=15)
