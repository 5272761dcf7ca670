# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of one TrainJob with two nodes, as the API server returns them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pkg.why import LiveObject, Reference, Snapshot, Verdict, diagnose
from testkit.why.remedies import follow, mistakes

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
Data = dict[str, Any]


def when(seconds: float) -> str:
    """Return the time ``seconds`` ago."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str = "True", reason: str = "", message: str = "", age: float = 60) -> Data:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": when(age),
    }


class TrainJobObjects:
    """The cluster; every attribute may be changed before :meth:`verdict`."""

    def __init__(self, *, age: float = 300, nodes: int = 2) -> None:
        self.age = age
        self.objects: list[Data] = []
        self.unread: dict[str, str] = {}
        self.absent: set[Reference] = set()
        self.logs: dict[tuple[str, str], list[str]] = {}
        self.train_job = self.make(
            "trainer.kubeflow.org/v1alpha1", "TrainJob", "llama",
            spec={"runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime",
                                 "apiGroup": "trainer.kubeflow.org"}, "suspend": False,
                  "managedBy": "trainer.kubeflow.org/trainjob-controller"}, status={},
        )  # fmt: skip
        self.job_set = self.make(
            "jobset.x-k8s.io/v1alpha2", "JobSet", "llama", owner=self.train_job,
            spec={"suspend": False, "network": {"enableDNSHostnames": True},
                  "replicatedJobs": [{"name": "node", "replicas": 1}]}, status={},
        )  # fmt: skip
        self.service = self.make("v1", "Service", "llama", owner=self.job_set, spec={"clusterIP": "None"})
        self.job = self.make(
            "batch/v1", "Job", "llama-node-0", owner=self.job_set,
            labels={"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/replicatedjob-name": "node"},
            spec={"parallelism": nodes, "completions": nodes, "suspend": False,
                  "template": {"spec": self.pod_spec()}},
            status={"active": nodes, "startTime": when(age)},
        )  # fmt: skip
        self.nodes = [self.add_node(f"worker-{number}") for number in range(nodes)]
        self.pods = [self.add_pod(number) for number in range(nodes)]
        self.manager = self.deployment("kubeflow-trainer-controller-manager", "kubeflow-system")
        self.lease = self.make(
            "coordination.k8s.io/v1", "Lease", "trainer.kubeflow.org", namespace="kubeflow-system",
            spec={"holderIdentity": "a", "renewTime": when(2).replace("Z", ".000000Z")},
        )  # fmt: skip
        self.deployment("jobset-controller-manager", "jobset-system")

    # --- making objects ---

    def make(self, version: str, kind: str, name: str, *, owner: Data | None = None, age: float | None = None,
             namespace: str = "team-a", labels: Data | None = None, **parts: Any) -> Data:  # fmt: skip
        metadata: Data = {
            "name": name, "namespace": namespace, "uid": f"uid-{kind}-{name}", "labels": labels or {},
            "creationTimestamp": when(self.age if age is None else age),
        }  # fmt: skip
        if owner is not None:
            metadata["ownerReferences"] = [
                {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
                 "controller": True}
            ]  # fmt: skip
        made: Data = {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
        self.objects.append(made)
        return made

    def deployment(self, name: str, namespace: str) -> Data:
        return self.make("apps/v1", "Deployment", name, namespace=namespace, age=90000,
                         spec={"replicas": 1}, status={"replicas": 1, "availableReplicas": 1})  # fmt: skip

    def add_node(self, name: str, gpus: int = 8) -> Data:
        return self.make(
            "v1", "Node", name, namespace="", age=90000,
            status={"allocatable": {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(gpus), "pods": "110"},
                    "conditions": [condition("Ready", reason="KubeletReady", message="kubelet is posting ready status")]},
        )  # fmt: skip

    def pod_spec(self) -> Data:
        return {
            "schedulerName": "default-scheduler", "subdomain": "llama", "serviceAccountName": "default",
            "containers": [{"name": "node", "image": "registry.example/train:1",
                            "resources": {"limits": {"nvidia.com/gpu": "4", "memory": "16Gi"},
                                          "requests": {"nvidia.com/gpu": "4", "memory": "16Gi"}}}],
        }  # fmt: skip

    def add_pod(self, index: int, *, suffix: str = "abcde", age: float | None = None) -> Data:
        """Add a pod that runs on its node."""
        pod = self.make(
            "v1", "Pod", f"llama-node-0-{index}-{suffix}", owner=self.job, age=age,
            labels={"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/replicatedjob-name": "node"},
            spec={**self.pod_spec(), "nodeName": f"worker-{index}"},
            status={
                "phase": "Running", "startTime": when(self.age - 1),
                "conditions": [condition("PodScheduled"), condition("Ready")],
                "containerStatuses": [{"name": "node", "ready": True, "restartCount": 0, "image": "registry.example/train:1",
                                       "state": {"running": {"startedAt": when(self.age - 5)}}}],
            },
        )  # fmt: skip
        pod["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        return pod

    def event(self, of: Data, reason: str, message: str, *, age: float = 5, kind: str = "Warning",
              uid: str | None = None, count: int = 1) -> Data:  # fmt: skip
        name = of["metadata"]["name"]
        involved = {
            "kind": of["kind"],
            "name": name,
            "uid": uid or of["metadata"]["uid"],
            "namespace": "team-a",
        }
        return self.make("v1", "Event", f"{name}.{len(self.objects)}", age=age, involvedObject=involved, type=kind,
                         reason=reason, message=message, count=count, firstTimestamp=when(age), lastTimestamp=when(age))  # fmt: skip

    # --- changing them ---

    def remove(self, *gone: Data) -> None:
        self.objects = [each for each in self.objects if not any(each is one for one in gone)]

    def without_pods(self) -> None:
        self.remove(*self.pods)
        self.job["status"] = {"startTime": when(self.age)}

    def without_children(self) -> None:
        self.remove(self.job_set, self.service, self.job, *self.pods)

    def unscheduled(self, message: str = "", reason: str = "Unschedulable") -> None:
        """Make all pods pending without a node; without a message no scheduler has seen them."""
        for pod in self.pods:
            pod["spec"].pop("nodeName", None)
            pod["status"] = {"phase": "Pending"}
            if message or reason != "Unschedulable":
                pod["status"]["conditions"] = [condition("PodScheduled", "False", reason, message)]

    def container(self, *, pod: int = 0, phase: str = "Pending", restarts: int = 0, last: Data | None = None,
                  init: bool = False, **state: Data) -> Data:  # fmt: skip
        """Set the state of one pod's container."""
        status: Data = {"name": "node", "restartCount": restarts, "image": "registry.example/train:1", "ready": False,
                        "state": state, "lastState": {"terminated": last} if last else {}}  # fmt: skip
        of = self.pods[pod]
        of["status"].update(phase=phase, conditions=[condition("PodScheduled"), condition("Ready", "False")])
        of["status"]["initContainerStatuses" if init else "containerStatuses"] = [status]
        if init:
            of["spec"]["initContainers"] = [{"name": "node", "image": "registry.example/init:1"}]
            of["status"]["containerStatuses"] = [
                {"name": "node", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
            ]
        return status

    def waits(self, reason: str, message: str = "", **options: Any) -> Data:
        return self.container(waiting={"reason": reason, "message": message}, **options)

    def ended(
        self, code: int, reason: str = "Error", *, message: str = "", age: float = 20, **options: Any
    ) -> None:
        terminated = {"exitCode": code, "reason": reason, "message": message, "finishedAt": when(age)}
        self.container(phase="Failed", terminated=terminated, **options)

    def suspend(self, manager: str = "kubectl-patch") -> None:
        self.train_job["spec"]["suspend"] = self.job_set["spec"]["suspend"] = True
        self.train_job["status"]["conditions"] = [
            condition("Suspended", reason="Suspended", message="TrainJob is suspended")
        ]
        self.train_job["metadata"]["managedFields"] = [
            {"manager": "kubectl-create", "operation": "Update", "time": when(300), "fieldsV1": {"f:spec": {"f:runtimeRef": {}}}},
            {"manager": manager, "operation": "Update", "time": when(100), "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        ]  # fmt: skip
        self.job["spec"]["suspend"] = True
        self.without_pods()

    def workload(self, *conditions: Data, **parts: Any) -> Data:
        """Make the TrainJob wait in Kueue."""
        self.suspend("kueue-controller-manager")
        self.train_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-queue"
        return self.make("kueue.x-k8s.io/v1beta1", "Workload", "trainjob-llama-12345", owner=self.train_job,
                         spec={"queueName": "team-queue", "active": True, **parts.pop("spec", {})},
                         status={"conditions": list(conditions), **parts})  # fmt: skip

    def group(self, version: str, *, status: Data, kind: str = "PodGroup", **spec: Any) -> Data:
        return self.make(
            version, kind, "llama", owner=self.train_job, spec={"minMember": 2, **spec}, status=status
        )

    # --- results ---

    def snapshot(self) -> Snapshot:
        found: dict[str, list[LiveObject]] = {}
        for each in self.objects:
            obj = LiveObject(each)
            found.setdefault(obj.group_kind, []).append(obj)
        logs: Mapping[tuple[str, str], list[str]] = self.logs
        return Snapshot(LiveObject(self.train_job), NOW, found, self.unread, frozenset(self.absent), logs)

    def verdict(self) -> Verdict:
        """Return the verdict. None of its remedies may lead in a circle or name a command that would be refused."""
        snapshot = self.snapshot()
        verdict = diagnose(snapshot)
        for each in verdict.findings:
            follow(snapshot, each.advice, ("why",))
        assert not list(mistakes("\n".join([*verdict.known, *(each.advice for each in verdict.findings)])))
        return verdict
