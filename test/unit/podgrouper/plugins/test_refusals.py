# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owners that groupers refuse, and numbers that run over, where no recorded result in ``test/testdata`` decides it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError
from testkit.grouping import group_of, make_object, make_pod

API = {
    "AmlJob": "amlarc.azureml.com/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "RayCluster": "ray.io/v1",
}
TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
REPLICATED_JOB = {"jobset.sigs.k8s.io/replicatedjob-name": "a"}
SIZE = "kai.scheduler/segment-size"
POLICY = {"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}


def _lws(size: int, segment: int | None = 2, template: Any = None) -> dict[str, Any]:
    policy = {} if segment is None else {"subGroupPolicy": {"subGroupSize": segment}}
    return {"leaderWorkerTemplate": {"size": size, "workerTemplate": template or {}, **policy}}


def _pytorch(workers: int, **annotations: str) -> dict[str, Any]:
    template = {"metadata": {"annotations": annotations}}
    return {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}}


def _worker(index: str | None = "0", **annotations: str) -> dict[str, Any]:
    labels = {TYPE: "worker"} if index is None else {TYPE: "worker", INDEX: index}
    return {"labels": labels, "annotations": annotations}


def _lws_worker(index: int) -> dict[str, Any]:
    return {"labels": {"leaderworkerset.sigs.k8s.io/worker-index": str(index)}}


@pytest.mark.parametrize(
    ("kind", "spec", "pod", "message"),
    [
        (
            "JobSet",
            {"replicatedJobs": [{"name": "a", "replicas": 2**31}]},
            {"labels": REPLICATED_JOB},
            r"minAvailable too large \(2147483648\) for JobSet team-a/o replicatedJob a",
        ),
        (
            "JobSet",
            {
                "replicatedJobs": [{"name": name, "replicas": 2**30} for name in "ab"],
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            },
            {"labels": REPLICATED_JOB},
            r"total minAvailable too large \(2147483648\)",
        ),
        (
            "LeaderWorkerSet",
            _lws(4),
            _lws_worker(99),
            "pod team-a/p belongs to segment 49, but there are 4 subgroups",
        ),
        ("LeaderWorkerSet", _lws(4), _lws_worker(-9), "belongs to segment -4, but there are 4 subgroups"),
        (
            "LeaderWorkerSet",
            _lws(4, template=[7]),
            _lws_worker(0),
            "failed to get segment topology constraints for LWS team-a/o: ",
        ),
        (
            "LeaderWorkerSet",
            _lws(2**31 - 1),
            _lws_worker(0),
            "1073741823 segments are too many for a pod group",
        ),
        (
            "LeaderWorkerSet",
            _lws(4, None, {"metadata": {"annotations": {SIZE: "x"}}}),
            {},
            'invalid segment size annotation x in workerTemplate of LWS team-a/o: strconv.Atoi: parsing "x"',
        ),
        (
            "TFJob",
            {"tfReplicaSpecs": {"PS": {"replicas": 2}, "Worker": {"replicas": -3}}},
            {},
            "but got -1",
        ),
        (
            "MPIJob",
            {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}},
            {},
            "the type of the job o doesn't have a Launcher replica spec",
        ),
        (
            "MPIJob",
            {
                "mpiReplicaSpecs": {"Launcher": {"replicas": "1"}},
                "launcherCreationPolicy": "WaitForWorkersReady",
                **POLICY,
            },
            {},
            "the type of the job o doesn't allow for 0 mpiReplicaSpecs pods",
        ),
        (
            "XGBoostJob",
            {"xgbReplicaSpecs": {"Worker": {"replicas": 1}}},
            {},
            "the type of the job o doesn't have a Master replica spec",
        ),
        ("PyTorchJob", _pytorch(4), _worker(**{SIZE: "0"}), "segment size on pod team-a/p must not be 0"),
        (
            "PyTorchJob",
            _pytorch(4),
            _worker(None, **{SIZE: "2"}),
            "replica index label not found on pod team-a/p",
        ),
        (
            "PyTorchJob",
            _pytorch(2**40),
            _worker(**{SIZE: "1"}),
            "1099511627776 segments are too many for a pod group",
        ),
        (
            "PyTorchJob",
            _pytorch(4, **{SIZE: "0"}),
            _worker(),
            "segment size 0 on worker podTemplate needs to be a positive integer",
        ),
        (
            "PyTorchJob",
            _pytorch(4, **{SIZE: "x"}),
            _worker(),
            "invalid segment size x on worker podTemplate, err: ",
        ),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": [], **POLICY},
            {},
            r"failed to get pytorchReplicaSpecs from PyTorchJob team-a/o\. Err: ",
        ),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": []}, **POLICY},
            {},
            r"failed to get replicas from pytorchReplicaSpecs\[Master\] in ",
        ),
        ("RayCluster", {"workerGroupSpecs": ["x"]}, {}, r"spec\.workerGroupSpecs\[0\] is no map: x"),
        ("RayCluster", {"workerGroupSpecs": [{"suspend": "yes"}]}, {}, r"\.suspend accessor error"),
    ],
)
async def test_what_is_refused(kind: str, spec: dict[str, Any], pod: dict[str, Any], message: str) -> None:
    owner = make_object(API.get(kind, "kubeflow.org/v1"), kind, "o", spec=spec)

    with pytest.raises(GroupingError, match=message):
        await group_of(make_pod("p", owner, **pod), owner)


@pytest.mark.parametrize(
    ("kind", "spec", "needed"),
    [
        ("AmlJob", {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 2**32 + 3}}}}, 2**31 - 1),
        ("AmlJob", {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 0}}}}, 0),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": 2**62, "numOfHosts": 4}]}, 2**31 - 1),
    ],
)
async def test_a_number_that_is_too_large_stays_large_and_a_zero_is_kept(
    kind: str, spec: dict[str, Any], needed: int
) -> None:
    owner = make_object(API[kind], kind, "o", spec=spec)

    assert (await group_of(make_pod("p", owner, labels=REPLICATED_JOB), owner)).min_available == needed


async def test_a_refusal_does_not_wait_for_the_garbage_collection() -> None:
    spec = {"replicatedJobs": [{"name": "a", "replicas": "x"}]}
    owner = make_object(API["JobSet"], "JobSet", "o", spec=spec)
    kept: weakref.WeakSet[BaseException] = weakref.WeakSet()
    counted = 0

    async def refuse() -> None:
        try:
            await group_of(make_pod("p", owner, labels=REPLICATED_JOB), owner)
        except GroupingError as error:
            nonlocal counted
            kept.update(filter(None, (error, error.__cause__)))
            counted = len(kept)

    gc.disable()
    try:
        await refuse()
        left = len(kept)
    finally:
        gc.enable()
    assert counted == 2
    assert left == 0
