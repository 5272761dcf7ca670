# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods to be grouped, and their owners, which exist in the API server before them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from harness import api, objects
from harness.api import Api, Told, Watch
from harness.manager import Manager
from harness.plan import Plan

PER_WORKLOAD: Final = 20
RUNNING: Final = {
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for condition in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
    }
}
_ANNOTATION: Final = "pod-group-name"
STRIPPED: Final = {
    "metadata": {"annotations": {_ANNOTATION: None}, "labels": {"kai.scheduler/subgroup-name": None}}
}
_VERSIONS: Final = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
}
_CHAINS: Final = {
    "deployment": ("Deployment", "ReplicaSet"),
    "job": ("Job",),
    "trainjob": ("TrainJob", "JobSet", "Job"),
    "bare": (),
    "statefulset": ("StatefulSet",),
}
"""The owners of a workload's pods, the top owner first; workloads use these chains in turn."""

Pods = dict[str, bytes]
"""Pods to create, by name."""


async def make_workloads(client: Api, tag: str, count: int) -> Pods:
    """Create the owners of ``count`` pods; return the pods in the order of their workloads."""
    made: dict[int, Pods] = {}

    async def one(number: int) -> None:
        chain = list(_CHAINS)[number % len(_CHAINS)]
        workload, owner = f"{tag}-{number:04}-{chain}", dict[str, Any]()
        for kind in _CHAINS[chain]:
            path = f"/apis/{_VERSIONS[kind]}/namespaces/{objects.NAMESPACE}/{kind.lower()}s"
            answer = await client.send("POST", path, _owner(kind, workload, chain, owner))
            uid = msgspec.json.decode(answer)["metadata"]["uid"]
            owner = {
                "apiVersion": _VERSIONS[kind],
                "kind": kind,
                "name": workload,
                "uid": uid,
                "controller": True,
            }
        first = number * PER_WORKLOAD
        names = [f"{workload}-{index:02}" for index in range(min(PER_WORKLOAD, count - first))]
        made[number] = {name: msgspec.json.encode(_pod(name, chain, workload, owner)) for name in names}

    await api.each(range(-(-count // PER_WORKLOAD)), one)
    return {name: body for number in sorted(made) for name, body in made[number].items()}


async def create(
    plan: Plan, grouper: Manager, pods: Pods, *, rate: float | None = None
) -> tuple[float, list[float]]:
    """Create pods and wait for their groups; return the seconds until the last one, and the latency of each."""
    client = grouper.cluster.api

    post = client.posting(objects.PODS, pods.__getitem__)
    async with watching(client, pods) as watch:
        begin = time.perf_counter()
        done = await (api.each(pods, post) if rate is None else api.at_rate(pods, post, rate))
        seen = await grouper.within(plan.patience, watch.all())
    return max(seen.values()) - begin, [max(0.0, seen[name] - done[name].at) for name in pods]


@asynccontextmanager
async def watching(client: Api, names: Iterable[str]) -> AsyncIterator[Watch]:
    """Watch pods during the body, to record when each of ``names`` has a group."""
    async with client.watching(objects.PODS, names, _grouped) as watch:
        yield watch


def _grouped(pod: Told) -> bool:
    return _ANNOTATION in pod.metadata.annotations


def _pod(name: str, chain: str, workload: str, owner: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": workload, "kai.scheduler/queue": f"team-{chain}"}
    if chain == "trainjob":
        labels |= {
            "jobset.sigs.k8s.io/jobset-name": workload,
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "jobset.sigs.k8s.io/job-index": "0",
        }
    kept = chain in ("deployment", "statefulset")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner] if owner else []},
        "spec": {**_spec(), "restartPolicy": "Always" if kept else "Never"},
    }


def _spec() -> dict[str, Any]:
    container = objects.train_job("any")["spec"]["trainer"]
    asked = container["resourcesPerNode"]
    return {
        "schedulerName": "kai-scheduler",
        "containers": [
            {
                "name": "node",
                **{key: container[key] for key in ("image", "command", "args", "env")},
                "resources": asked,
            }
        ],
    }


def _owner(kind: str, name: str, chain: str, owner: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": _pod(name, chain, name, {})["spec"]}
    jobs = {"parallelism": PER_WORKLOAD, "completions": PER_WORKLOAD, "template": template}
    spec: dict[str, Any] = {
        "replicas": PER_WORKLOAD,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    if kind == "Job":
        spec = jobs
    elif kind == "JobSet":
        spec = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": jobs}}]}
    elif kind == "TrainJob":
        spec = objects.train_job(name)["spec"]
    return {
        "apiVersion": _VERSIONS[kind],
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"team": "bench"},
            "ownerReferences": [owner] if owner else [],
        },
        "spec": spec,
    }
