# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pods that operators would create for workloads: one pod for each template, with the labels that groupers read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON, GroupKind
from pkg.podgrouper import new_plugins_hub
from pkg.why.liveobject import at, maps

from trainerctl.offline.snapshot import Key, Snapshot

Data = dict[str, JSON]
Objects = dict[Key, Data]

_JOB: Final = GroupKind("batch", "Job")
_TEMPLATED: Final = frozenset(
    {
        _JOB,
        *(GroupKind("apps", kind) for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")),
    }
)
_JOB_SET: Final = GroupKind("jobset.x-k8s.io", "JobSet")
_RAY_CLUSTER: Final = GroupKind("ray.io", "RayCluster")
_LWS: Final = GroupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
_KUBEFLOW: Final = {
    GroupKind("kubeflow.org", kind): f"{kind.removesuffix('Job').lower()}ReplicaSpecs"
    for kind in ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob")
} | {GroupKind("kubeflow.org", "XGBoostJob"): "xgbReplicaSpecs"}
_UID: Final = "UID"
"""Stands for the uid that the API server gives to an object that is not stored yet."""


class _Made(NamedTuple):
    name: str
    template: JSON
    labels: dict[str, str]


def as_stored(objects: Objects) -> Objects:
    """Return ``objects`` as the API server stores them, as far as groupers read them.

    It drops fields whose value is null, and sets the numbers of LeaderWorkerSets and Jobs that have defaults.
    """
    stored = {}
    for key, data in objects.items():
        stored[key] = data = {**_without_nulls(data), "metadata": data["metadata"]}
        kind, spec, template = key.kind.group_kind, data.get("spec"), at(data, "spec", "leaderWorkerTemplate")
        if kind == _LWS and isinstance(spec, dict) and isinstance(template, dict):
            data["spec"] = {**spec, "leaderWorkerTemplate": {"size": 1, **template}}
        elif kind == _JOB and isinstance(spec, dict) and "parallelism" not in spec:
            data["spec"] = {"parallelism": 1, **({} if "completions" in spec else {"completions": 1}), **spec}
    return stored


def _without_nulls(value: Data) -> Data:
    return {name: _kept(held) for name, held in value.items() if held is not None}


def _kept(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_kept(each) for each in value]
    return _without_nulls(value) if isinstance(value, dict) else value


def with_pods(objects: Objects) -> Objects:
    """Return ``objects`` and the pods of the workloads whose pods we can make."""
    made: Objects = {}
    for key, data in objects.items():
        metadata = {"uid": _UID, **(data.get("metadata") or {})}
        made[key] = data = {**data, "metadata": metadata}
        reference = {
            "apiVersion": data["apiVersion"],
            "kind": data["kind"],
            "name": key.name,
            "uid": metadata["uid"],
        }
        for each in _pods(key, data):
            pod = Key(Pod.gvk, key.namespace, f"{key.name}-{each.name}")
            given = at(each.template, "metadata") or {}
            labels = {**(given.get("labels") or {}), **each.labels}
            made[pod] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **given,
                    "name": pod.name,
                    "namespace": pod.namespace,
                    "uid": f"{_UID}-of-{each.name}",
                    "labels": labels,
                    "ownerReferences": [{**reference, "controller": True}],
                },
                "spec": at(each.template, "spec") or {},
            }
    return made


def without_pods(objects: Objects) -> list[Key]:
    """Return the workloads that own none of the pods in ``objects``, neither directly nor through other owners."""
    kinds = {kind.group_kind for kind in new_plugins_hub(Snapshot({}), found=()).kinds()} - {
        Pod.gvk.group_kind
    }
    owning, pending = set[tuple[GroupKind, str, str]](), [key for key in objects if key.kind == Pod.gvk]
    by_name = {(key.kind.group_kind, key.namespace, key.name): key for key in objects}
    while pending:
        key = pending.pop()
        for reference in maps(objects[key], "metadata", "ownerReferences"):
            group = str(reference.get("apiVersion")).rpartition("/")[0]
            owner = (GroupKind(group, str(reference.get("kind"))), key.namespace, str(reference.get("name")))
            if owner in by_name and owner not in owning:
                owning.add(owner)
                pending.append(by_name[owner])
    return [key for name, key in by_name.items() if name[0] in kinds and name not in owning]


def _has_pods(*numbers: JSON) -> bool:
    """Return False if one of the numbers is 0 or negative. A value that is no number is left to the grouper."""
    return not any(isinstance(number, int) and number <= 0 for number in numbers)


def _has_workers(group: Data) -> bool:
    """Return True if KubeRay creates pods for a worker group."""
    wanted = [number for name in ("replicas", "minReplicas") if (number := group.get(name)) is not None]
    is_limited = not _has_pods(group.get("maxReplicas"), group.get("numOfHosts"))
    return group.get("suspend") is not True and any(map(_has_pods, wanted)) and not is_limited


def _pods(key: Key, data: Data) -> Iterator[_Made]:
    kind = key.kind.group_kind
    if kind in _TEMPLATED:
        if _has_pods(*(at(data, "spec", name) for name in ("replicas", "parallelism", "completions"))):
            yield _Made("0", at(data, "spec", "template"), {})
    elif kind == _JOB_SET:
        for job in maps(data, "spec", "replicatedJobs"):
            job_spec = at(job, "template", "spec")
            if _has_pods(job.get("replicas"), at(job_spec, "parallelism"), at(job_spec, "completions")):
                name = str(job.get("name"))
                labels = {
                    "jobset.sigs.k8s.io/replicatedjob-name": name,
                    "jobset.sigs.k8s.io/job-index": "0",
                }
                yield _Made(f"{name}-0-0", at(job, "template", "spec", "template"), labels)
    elif kind == _RAY_CLUSTER:
        yield _Made("head", at(data, "spec", "headGroupSpec", "template"), {"ray.io/group": "headgroup"})
        for group in filter(_has_workers, maps(data, "spec", "workerGroupSpecs")):
            name = str(group.get("groupName"))
            yield _Made(f"{name}-0", group.get("template"), {"ray.io/group": name})
    elif kind == _LWS:
        worker = at(data, "spec", "leaderWorkerTemplate", "workerTemplate")
        leader = at(data, "spec", "leaderWorkerTemplate", "leaderTemplate") or worker
        templates = (leader,) if at(data, "spec", "leaderWorkerTemplate", "size") == 1 else (leader, worker)
        for index, template in enumerate(templates):
            labels = {
                "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": str(index),
            }
            yield _Made(f"0-{index}", template, labels)
    elif (field := _KUBEFLOW.get(kind)) is not None:
        for role, spec in (at(data, "spec", field) or {}).items():
            default = 0 if (kind.kind, role) == ("MPIJob", "Worker") else 1
            if not _has_pods(default if (replicas := at(spec, "replicas")) is None else replicas):
                continue
            labels = {
                "training.kubeflow.org/job-name": key.name,
                "training.kubeflow.org/job-role": role.lower(),
                "training.kubeflow.org/replica-type": role.lower(),
                "training.kubeflow.org/replica-index": "0",
            }
            yield _Made(f"{role.lower()}-0", at(spec, "template"), labels)
