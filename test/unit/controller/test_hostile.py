# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Meaningless runtimes and TrainJobs: each gets a clear error, and none stops another.

The reconciler, the webhooks and the plugins are the real ones; the API server is in memory and accepts objects that a
cluster without our CRDs' schemas would store.
"""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.reconcile import Request
from controller_runtime.serving import HTTPRequest
from controller_runtime.webhook import ValidatorHandler, Webhook
from hypothesis import example, given
from hypothesis import strategies as st

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.runtime import core
from pkg.runtime.framework import PluginError
from pkg.webhooks import TrainJobWebhook
from testkit.builders import pod_override, train_job_document, written_cluster_runtime
from testkit.trainjobs import ReconcilerWorld

CLEAR = (StatusError, PluginError, StrategicMergeError, core.RuntimeNotFoundError)
"""The errors with which a reconcile may fail: they name the object and the problem."""
HOSTILE = Request("team-a", "hostile")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.text(max_size=3), below, max_size=2),
    max_leaves=5,
)
UNKNOWN = st.dictionaries(st.sampled_from(["x-new", "$patch", "$retainKeys", "newer"]), JSON, max_size=1)
NAMES = st.sampled_from(["", "node", "launcher", "dataset-initializer", "a" * 300, "Ünï/..", "\n"])
COUNTS = st.sampled_from([None, -(2**31), -1, 0, 1, 3, 5000, 2**31 - 1, 2**63])
AMOUNTS = st.sampled_from(["", "1", "-1", "1e400", "1Ei", "1.5n", "9" * 40, "NaN", "one", "1 Gi", "0x10"])
RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "requests": st.dictionaries(st.sampled_from(["cpu", "", "nvidia.com/gpu"]), AMOUNTS, max_size=2),
        "limits": st.dictionaries(st.sampled_from(["cpu", "gpu"]), AMOUNTS, max_size=2),
    },
)
SOURCES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"fieldRef": {}}, {"resourceFieldRef": {}}, {"secretKeyRef": {}}, {"fileKeyRef": {}}]
)
ENV = st.lists(
    st.fixed_dictionaries({}, optional={"name": NAMES, "value": NAMES, "valueFrom": SOURCES}), max_size=3
)


def merged(strategy: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy that adds unknown fields to the maps of ``strategy``."""
    return st.builds(lambda known, unknown: {**unknown, **known}, strategy, UNKNOWN)


CONTAINERS = st.none() | st.lists(
    merged(
        st.fixed_dictionaries(
            {},
            optional={
                "name": NAMES,
                "env": ENV,
                "resources": RESOURCES,
                "command": st.sampled_from([[], ["tune", "run"], ["tune", "run", ""]]),
                "ports": st.sampled_from([[], [{}], [{"containerPort": -1}]]),
                "volumeMounts": st.sampled_from([[], [{}], [{"mountPath": "/root/.ssh"}]]),
            },
        )
    ),
    max_size=2,
)
PODS = merged(
    st.fixed_dictionaries(
        {}, optional={"containers": CONTAINERS, "initContainers": CONTAINERS, "priorityClassName": NAMES}
    )
)
LABELS = st.sampled_from(
    [{}, *({"trainer.kubeflow.org/trainjob-ancestor-step": step} for step in ("trainer", ""))]
)
JOBS = st.none() | st.lists(
    st.builds(
        lambda name, labels, counts, pod: {
            "name": name,
            "replicas": counts[0],
            "template": {
                "metadata": {"labels": labels},
                "spec": {"parallelism": counts[1], "completions": counts[2], "template": {"spec": pod}},
            },
        },
        NAMES,
        LABELS,
        st.tuples(COUNTS, COUNTS, COUNTS),
        PODS,
    ),
    max_size=3,
)
NETWORKS = st.sampled_from([None, {}, {"subdomain": ""}, {"subdomain": "x"}])
ML_POLICIES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "numNodes": COUNTS,
        "torch": st.fixed_dictionaries({}, optional={"numProcPerNode": COUNTS | NAMES}),
        "mpi": st.fixed_dictionaries(
            {},
            optional={
                "numProcPerNode": COUNTS,
                "mpiImplementation": st.sampled_from(["OpenMPI", "MPICH", ""]),
                "sshAuthMountPath": NAMES,
                "runLauncherAsNode": st.booleans(),
            },
        ),
    },
)
GANGS = st.none() | st.fixed_dictionaries(
    {}, optional={"coscheduling": st.just({"scheduleTimeoutSeconds": -1}), "volcano": st.just({})}
)
RUNTIMES = st.builds(
    lambda jobs, network, policy, gang, unknown: {
        "metadata": {"name": "hostile"},
        "spec": {
            **unknown,
            "mlPolicy": policy,
            "podGroupPolicy": gang,
            "template": {"spec": {"replicatedJobs": jobs, "network": network}},
        },
    },
    JOBS,
    NETWORKS,
    ML_POLICIES,
    GANGS,
    UNKNOWN,
)
OVERRIDES = st.none() | st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "targetJobs": st.none()
            | st.lists(st.fixed_dictionaries({}, optional={"name": NAMES}), max_size=2),
            "metadata": st.sampled_from([{}, {"labels": {"": ""}}]),
            "spec": PODS,
        },
    ),
    max_size=2,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "trainer": st.none()
        | merged(
            st.fixed_dictionaries(
                {},
                optional={
                    "numNodes": COUNTS,
                    "numProcPerNode": COUNTS | NAMES,
                    "env": ENV,
                    "resourcesPerNode": RESOURCES,
                    "command": st.sampled_from([None, [], ["tune", "run"]]),
                    "args": st.sampled_from([None, [], ["model.quantize_base=True"]]),
                },
            )
        ),
        "initializer": st.sampled_from([None, {}, {"dataset": {"env": [{}]}, "model": {"secretRef": {}}}]),
        "labels": st.sampled_from([None, {}, {"": ""}]),
        "podTemplateOverrides": OVERRIDES,
        "suspend": st.sampled_from([None, True, False]),
    },
)
HEALTHY = written_cluster_runtime("healthy")


def job(name: str, runtime: str, spec: dict[str, Any]) -> dict[str, Any]:
    kind, metadata = "ClusterTrainingRuntime", {"uid": f"{name}-uid"}
    return train_job_document("team-a", runtime, name=name, kind=kind, metadata=metadata, **spec)


async def world(*objects: Object, version: str = "2.1") -> ReconcilerWorld:
    w = ReconcilerWorld(*objects)
    w.cfg = defaulted(version)
    await w.restart()
    return w


def reported(w: ReconcilerWorld) -> list[str]:
    assert all(each.startswith("Warning TrainJobResourcesCreationFailed: ") for each in w.recorder.events)
    return w.recorder.events


async def review(webhook: TrainJobWebhook, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the webhook, as the API server gets it."""
    request = {"uid": "1", "operation": "CREATE", "object": stored}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    served = Webhook("/validate", ValidatorHandler(TrainJob, webhook))
    headers = {"Content-Type": "application/json"}
    answer = await served(
        HTTPRequest(method="POST", path="/validate", headers=headers, body=json.dumps(body).encode())
    )
    assert answer.status == 200
    response: dict[str, Any] = json.loads(answer.body)["response"]
    return response


@example({"metadata": {"name": "hostile"}}, {"trainer": {"numNodes": 2**63}})
@given(RUNTIMES, SPECS)
async def test_nonsense_gets_a_clear_word_and_stops_nobody(
    runtime: dict[str, Any], spec: dict[str, Any]
) -> None:
    stored = job("hostile", "hostile", spec)
    try:
        hostile = [ClusterTrainingRuntime.from_dict(runtime), TrainJob.from_dict(stored)]
    except pydantic.ValidationError:
        return  # such an object never reaches the reconciler: the cache and the webhook report the field
    w = await world(*hostile, HEALTHY, TrainJob.from_dict(job("healthy", "healthy", {})))

    verdict = await review(TrainJobWebhook(w.runtimes), stored)
    assert verdict["allowed"] or verdict["status"]["message"]

    for _ in range(2):
        w.recorder.events.clear()
        try:
            await w.writes(HOSTILE)
        except* CLEAR:
            (event,) = reported(w)
            assert len(event) < 1100
        except* Exception as broken:
            raise AssertionError(f"not a clear error: {broken.exceptions!r}") from broken

    await w.writes(Request("team-a", "healthy"))
    assert (await w.server.get(JobSet, ("team-a", "healthy"))).spec.replicated_jobs


MANY = [{"name": f"name-{number}"} for number in range(3000)]
AMOUNTS_OF_MANY = {each["name"]: "1" for each in MANY}


@pytest.mark.parametrize(
    ("step", "spec", "version"),
    [
        ("trainer", {"trainer": {"env": MANY}}, "2.1"),
        ("trainer", {"trainer": {"args": ["x" * 40_000]}}, "2.3"),
        # Version 2.3 merges the resources with those of the container.
        ("trainer", {"trainer": {"resourcesPerNode": {"limits": AMOUNTS_OF_MANY}}}, "2.1"),
        ("trainer", {"trainer": {"resourcesPerNode": {"limits": AMOUNTS_OF_MANY}}}, "2.3"),
        ("dataset-initializer", {"initializer": {"dataset": {"env": MANY}}}, "2.1"),
    ],
)
async def test_a_large_train_job_is_not_copied_into_many_containers(
    step: str, spec: dict[str, Any], version: str
) -> None:
    pod = {
        "containers": [{"name": "node" if step == "trainer" else step, "resources": {"limits": {"cpu": "1"}}}]
    }
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
        "spec": {"template": {"spec": pod}},
    }
    jobs = [{"name": f"job-{number}", "template": template} for number in range(100)]
    runtime = written_cluster_runtime("hostile", mlPolicy={}, template={"spec": {"replicatedJobs": jobs}})
    w = await world(runtime, TrainJob.from_dict(job("hostile", "hostile", spec)), version=version)

    with pytest.raises((ExceptionGroup, *CLEAR)):
        await w.writes(HOSTILE)

    (event,) = reported(w)
    assert "the JobSet would be too large: 100 containers would get " in event


ENV_OF_A_MEBIBYTE = [{"name": f"E{number}", "value": "x" * 40} for number in range(20_000)]


@pytest.mark.parametrize(
    "spec",
    [
        {"trainer": {"env": ENV_OF_A_MEBIBYTE}},
        {
            "podTemplateOverrides": [
                pod_override({"containers": [{"name": "node", "env": ENV_OF_A_MEBIBYTE}]})
            ]
        },
    ],
    ids=["trainer", "overrides"],
)
async def test_a_mebibyte_of_environment_is_carried_through(spec: dict[str, Any]) -> None:
    runtime = written_cluster_runtime("hostile")
    w = await world(runtime, TrainJob.from_dict(job("hostile", "hostile", spec)))

    await w.writes(HOSTILE)

    built = await w.server.get(JobSet, HOSTILE)
    containers = (built.spec.replicated_jobs or [])[0].template.spec.template.spec.containers or []
    assert len(containers[0].env or ()) == 20_000
    assert w.recorder.events == []
