# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Users write the owners of pods: whatever an owner contains, its pod is grouped or gets an event that says why not."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured
from controller_runtime.reconcile import Request
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pkg.podgrouper import PodReconciler
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Handler
from testkit.grouping import pod_grouper
from testkit.recorder import Recorder

Step = str | int
Path = tuple[Step, ...]

PACK: Final = {"packConstraint": {"required": "rack", "preferred": "host"}}
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
READ_AS_A_WHOLE: Final = {
    "tfReplicaSpecs",
    "xgbReplicaSpecs",
    "jaxReplicaSpecs",
    "pytorchReplicaSpecs",
    "workerTemplate",
}
"""Maps of which another type than a map is refused, including null."""


def paths(value: Any, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of each field."""
    if above:
        yield above, value
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, held in inside:
        yield from paths(held, (*above, step))


@dataclass(frozen=True)
class Workload:
    """A valid workload. Its grouper reads all fields of ``parts`` except those in ``lenient``, and checks their types."""

    api_version: str
    kind: str
    parts: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)
    lenient: tuple[str, ...] = ()
    """The fields that are read leniently, or not at all, with dots."""
    beside: tuple[str, str] | None = None
    """The API version and kind of another object that has the ``parts`` and is named ``beside``.

    None if the owner itself has them.
    """

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.beside[1]}" if self.beside else self.kind

    def fields(self) -> dict[Path, type]:
        """Return the type of each field that must have it; a map may be null if it is no item of a list."""
        return {
            path: type(value)
            for path, value in paths(self.parts)
            if ".".join(map(str, path)) not in self.lenient
            and not (
                isinstance(value, dict) and isinstance(path[-1], str) and path[-1] not in READ_AS_A_WHOLE
            )
        }

    def objects(self, parts: dict[str, Any]) -> list[Unstructured]:
        owner = self._object(self.api_version, self.kind, "owner", {} if self.beside else parts)
        if self.beside is None:
            return [owner]
        if self.kind == "RayJob":
            owner["status"] = {"rayClusterName": "beside"}
        return [owner, self._object(*self.beside, "beside", parts)]

    def pod(self) -> Pod:
        owner = {"apiVersion": self.api_version, "kind": self.kind, "name": "owner", "uid": "uid-owner"}
        metadata = {"name": "p", "namespace": "a", "labels": self.labels, "ownerReferences": [owner]}
        return Pod.from_dict({"metadata": metadata, "spec": {"schedulerName": "kai-scheduler"}})

    @staticmethod
    def _object(api_version: str, kind: str, name: str, parts: dict[str, Any]) -> Unstructured:
        annotations = {"grove.io/topology-name": "t"}
        metadata = {"name": name, "namespace": "a", "uid": f"uid-{name}", "annotations": annotations}
        return Unstructured.wrap({"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts})


def _kubeflow(kind: str, specs: str, *roles: str) -> Workload:
    return Workload("kubeflow.org/v1", kind, {"spec": {specs: {role: {"replicas": 2} for role in roles}}})


WORKER: Final = {"replicas": 4, "template": {"metadata": {"annotations": {SEGMENT_SIZE: "2"}}}}
WORKLOADS: Final = (
    Workload(
        "amlarc.azureml.com/v1alpha1",
        "AmlJob",
        {"spec": {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 2}}}}},
    ),
    _kubeflow("TFJob", "tfReplicaSpecs", "PS", "Worker"),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"),
    _kubeflow("JAXJob", "jaxReplicaSpecs", "Worker"),
    Workload(
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            "spec": {
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
                "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
            }
        },
        lenient=("spec.mpiReplicaSpecs.Worker.replicas",),
    ),
    Workload(
        "kubeflow.org/v1",
        "PyTorchJob",
        {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": WORKER}}},
        labels={"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"},
    ),
    Workload(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {
            "spec": {
                "startupPolicy": "LeaderCreated",
                "leaderWorkerTemplate": {
                    "size": 5,
                    "workerTemplate": {},
                    "subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"},
                },
            }
        },
        labels={"leaderworkerset.sigs.k8s.io/worker-index": "1"},
    ),
    Workload(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "spec": {
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                "replicatedJobs": [
                    {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3}}}
                ],
            }
        },
        labels={"jobset.sigs.k8s.io/replicatedjob-name": "a"},
        lenient=("spec.replicatedJobs.0", "spec.replicatedJobs.0.name"),
    ),
    Workload(
        "grove.io/v1alpha1",
        "PodCliqueSet",
        {
            "spec": {
                "priorityClassName": "gold",
                "topologyConstraint": PACK,
                "topologyConstraintGroupConfigs": [
                    {"name": "all", "podGroupNames": ["w"], "topologyConstraint": PACK}
                ],
                "podgroups": [
                    {
                        "name": "w",
                        "minReplicas": 2,
                        "podReferences": [{"namespace": "a", "name": "p"}],
                        "topologyConstraint": PACK,
                    }
                ],
            }
        },
        labels={"grove.io/podgang": "beside"},
        lenient=(
            "spec.topologyConstraintGroupConfigs.0.topologyConstraint.packConstraint.preferred",
            "spec.podgroups.0.topologyConstraint.packConstraint.required",
        ),
        beside=("scheduler.grove.io/v1alpha1", "PodGang"),
    ),
    Workload(
        "ray.io/v1",
        "RayJob",
        {
            "spec": {
                "workerGroupSpecs": [
                    {"groupName": "w", "replicas": 2, "minReplicas": 1, "numOfHosts": 2, "suspend": False}
                ]
            }
        },
        beside=("ray.io/v1", "RayCluster"),
        lenient=("spec.workerGroupSpecs.0.groupName",),
    ),
    Workload(
        "ray.io/v1",
        "RayService",
        {"status": {"activeServiceStatus": {"rayClusterName": "owner"}}},
    ),
    Workload("batch/v1", "Job", {"spec": {"parallelism": 2}}, lenient=("spec.parallelism",)),
    Workload("run.ai/v1", "RunaiJob", {"spec": {"parallelism": 2}}, lenient=("spec.parallelism",)),
)
FIELDS: Final = [
    pytest.param(workload, path, wanted, id=f"{workload.id}-{'.'.join(map(str, path))}")
    for workload in WORKLOADS
    for path, wanted in workload.fields().items()
]

TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["2", "w", "LeaderReady"])
SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-3, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@dataclass(frozen=True)
class Outcome:
    error: Exception | None
    events: list[str]
    writes: list[tuple[str, str]]


def reconcile(workload: Workload, parts: dict[str, Any]) -> Outcome:
    pod = workload.pod()
    client = FakeClient(pod, *workload.objects(parts))
    recorder = Recorder()
    grouper = pod_grouper(client)
    handler = Handler(client, client, node_pool_key="pool", queue_key="queue")
    reconciler = PodReconciler(client, recorder, grouper, handler)
    error: Exception | None = None
    try:
        asyncio.run(reconciler.reconcile(Request.for_object(pod)))
    except Exception as raised:
        error = raised
    return Outcome(error, recorder.events, [(call.verb, call.kind.kind) for call in client.writes])


def assert_refused(outcome: Outcome) -> None:
    """Assert that the pod got one event with the error's text, and that nothing was written."""
    assert isinstance(outcome.error, GroupingError), repr(outcome.error)
    assert outcome.events == [f"Warning PodGrouperWarning: {str(outcome.error)[:1024]}"]
    assert outcome.writes == []


def replaced(parts: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    parts = copy.deepcopy(parts)
    holder: Any = parts
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return parts


@pytest.mark.parametrize("workload", [pytest.param(each, id=each.id) for each in WORKLOADS])
def test_the_workloads_are_well_formed(workload: Workload) -> None:
    if workload.kind == "RayService":
        return  # the RayCluster that it names is not in the test's cluster
    outcome = reconcile(workload, workload.parts)

    assert (outcome.error, outcome.events) == (None, [])
    assert outcome.writes == [("create", "PodGroup"), ("patch", "Pod")]


@pytest.mark.parametrize(("workload", "path", "wanted"), FIELDS)
@given(value=JSON)
@example(value=None)
@example(value=4.0)
@example(value={"a": 1})
@settings(max_examples=5, deadline=None)
def test_a_field_of_a_wrong_type_is_an_event(
    workload: Workload, path: Path, wanted: type, value: Any
) -> None:
    assume(type(value) is not wanted)

    assert_refused(reconcile(workload, replaced(workload.parts, path, value)))


@given(workload=st.sampled_from(WORKLOADS), values=st.lists(JSON, min_size=1, max_size=3), data=st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_stands_in_an_owner_the_pod_has_a_group_or_an_event(
    workload: Workload, values: list[Any], data: st.DataObject
) -> None:
    parts = workload.parts
    for value in values:
        choices = [path for path, _ in paths(parts)]
        parts = replaced(parts, data.draw(st.sampled_from(choices)), value)

    outcome = reconcile(workload, parts)

    if outcome.error is None:
        assert outcome.events == []
        assert outcome.writes[0] == ("create", "PodGroup")
    elif workload.kind != "RayService":
        assert_refused(outcome)
