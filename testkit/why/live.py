# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Brings a TrainJob on a real control plane into states; for some, the test writes as the kubelet of a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.client import MERGE, STRATEGIC, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, Unstructured, unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.meta import format_time
from controller_runtime.rest import Impersonation, RESTMapper, Transport, load_config
from trainerctl.localcluster.cluster import Cluster

from pkg import why
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.why import Snapshot, Verdict, reading
from pkg.why.liveobject import LiveObject, number, text

Data = dict[str, Any]
NAME: Final = "job"
SLEEP: Final = ["sleep", "1000"]
LIMIT: Final = 120.0


def now(ago: float = 0) -> str:
    """Return the time ``ago`` seconds before now, in the format of the API."""
    return format_time(datetime.now(UTC) - timedelta(seconds=ago))


def container(name: str = "node", command: list[str] | None = None, **parts: Any) -> Data:
    """Return a container that local processes can run."""
    return {"name": name, "image": "local", "command": command or SLEEP, **parts}


@dataclass
class LiveTrainJob:
    """The TrainJob ``job`` of one namespace; ``undo`` reverts changes outside of the namespace after the test."""

    client: LiveClient
    cluster: Cluster
    namespace: str
    undo: AsyncExitStack = field(default_factory=AsyncExitStack)
    reader: LiveClient | None = None
    """The client of a user with fewer permissions, if the verdict is for such a user."""

    async def make(
        self, version: str, kind: str, name: str, *, shared: bool = False, **body: Any
    ) -> LiveObject:
        """Create an object in the namespace, or a ``shared``, cluster-scoped one, which is deleted after the test."""
        metadata = {
            "name": name,
            **body.pop("metadata", {}),
            **({} if shared else {"namespace": self.namespace}),
        }
        obj = Unstructured.wrap({"apiVersion": version, "kind": kind, "metadata": metadata, **body})
        made = await self.client.create(obj)
        if shared:
            self.undo.push_async_callback(self.remove, made)
        return LiveObject(made.to_dict())

    async def remove(self, obj: Any) -> None:
        """Delete an object, which may be deleted already."""
        try:
            await self.client.delete(obj)
        except NotFoundError:
            return

    async def runtime(self, *containers: Data, name: str = "plain", nodes: int = 1, **parts: Any) -> None:
        """Create a runtime; ``pod``, ``job`` and ``job_set`` are parts of its specs, and ``steps`` come before ``node``."""
        pod = {
            "containers": list(containers) or [container()],
            "terminationGracePeriodSeconds": 1,
            **parts.get("pod", {}),
        }
        job = {
            "backoffLimit": 0,
            "template": {"metadata": parts.get("metadata", {}), "spec": pod},
            **parts.get("job", {}),
        }
        pod.setdefault("restartPolicy", "Never")
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        step = {
            "name": "node",
            "template": {"metadata": {"labels": labels}, "spec": job},
            **parts.get("step", {}),
        }
        body = {"replicatedJobs": [*parts.get("steps", []), step], **parts.get("job_set", {})}
        spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": body}}
        metadata = {"name": name, "namespace": self.namespace}
        await self.client.create(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))

    async def start(self, *containers: Data, name: str = NAME, finalizers: list[str] | None = None,
                    spec: Data | None = None, **parts: Any) -> TrainJob:  # fmt: skip
        """Create a runtime and a TrainJob that refers to it."""
        runtime = parts.pop("runtime", "plain")
        await self.runtime(*containers, name=runtime, **parts)
        metadata = {"name": name, "namespace": self.namespace, "finalizers": finalizers}
        ref = {"runtimeRef": {"kind": "TrainingRuntime", "name": runtime}}
        return await self.client.create(
            TrainJob.from_dict({"metadata": metadata, "spec": {**ref, **(spec or {})}})
        )

    async def change(self, kind: type[Any], name: str, **body: Any) -> None:
        """Merge ``body`` into an object of the namespace."""
        obj = kind.from_dict(
            {**getattr(kind, "empty", {}), "metadata": {"name": name, "namespace": self.namespace}}
        )
        await self.client.patch(obj, raw_patch(MERGE, msgspec.json.encode(body)), field_owner="test")

    # --- visible states ---

    async def snapshot(self) -> Snapshot:
        return await reading.take(self.reader or self.client, self.namespace, NAME, datetime.now(UTC))

    async def verdict(self) -> Verdict:
        return why.diagnose(await self.snapshot())

    async def until(self, visible: Callable[[Snapshot], object], reason: str, timeout: float = LIMIT) -> None:
        """Return when ``visible`` is true of the objects."""

        async def seen() -> bool:
            return bool(visible(await self.snapshot()))

        await eventually(seen, timeout=timeout, interval=0.2, reason=reason)

    async def becomes(self, version: str, kind: str, name: str, *path: str) -> None:
        """Return when an object of the namespace has a value at ``path``."""
        found = unstructured(GVK.parse(version, kind))

        async def has() -> bool:
            return bool(
                LiveObject((await self.client.get(found, (self.namespace, name))).to_dict()).at(*path)
            )

        await eventually(has, timeout=LIMIT, reason=f"{kind} {name} has {'.'.join(path)}")

    async def event(self, reason: str, words: str = "") -> None:
        def seen(snapshot: Snapshot) -> bool:
            return any(
                each.text("reason") == reason and words in each.text("message")
                for each in snapshot.all("Event")
            )

        await self.until(seen, f"an event {reason}")

    async def unscheduled(self, words: str = "") -> None:
        def seen(snapshot: Snapshot) -> bool:
            found = [each.condition("PodScheduled") for each in snapshot.pods]
            return any(text(each, "status") == "False" and words in text(each, "message") for each in found)

        await self.until(seen, "a pod cannot be scheduled")

    async def waiting(self, reason: str) -> None:
        await self.until(lambda snapshot: any(reason == text(each, "state", "waiting", "reason") for each in states(snapshot)), reason)  # fmt: skip

    async def ended(self, code: int) -> None:
        await self.until(lambda snapshot: any(code == number(each, *path, "exitCode") for each in states(snapshot)
                         for path in (("state", "terminated"), ("lastState", "terminated"))), f"exit code {code}")  # fmt: skip

    async def runs(self, pods: int = 1) -> None:
        await self.until(lambda snapshot: len(snapshot.running) == pods, f"{pods} pods run")

    async def condition(self, kind: str) -> None:
        await self.until(lambda snapshot: snapshot.train_job.is_true(kind), f"the TrainJob is {kind}")

    # --- a node for which this test writes as the kubelet ---

    async def worker(self, name: str = "", **spec: Any) -> Data:
        """Create a ready node without a kubelet, and return the parts of a pod spec that place a pod on it."""
        name = name or f"worker-{self.namespace[-8:]}"
        resources = {"cpu": "8", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "8"}
        ready = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "lastHeartbeatTime": now(),
                "lastTransitionTime": now(),
            }
        ]
        taints = [{"key": "example.com/own", "effect": "NoSchedule"}]
        node = Node.from_dict({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {"taints": taints, **spec},
            "status": {"capacity": resources, "allocatable": resources, "conditions": ready},
        })  # fmt: skip
        made = await self.client.create(node)
        self.undo.push_async_callback(self.remove, made)
        return {
            "nodeSelector": {"kubernetes.io/hostname": name},
            "tolerations": [{"key": "example.com/own", "operator": "Exists"}],
        }

    async def start_without_kubelet(self, status: Mapping[str, Any], **parts: Any) -> None:
        """Start the TrainJob on a node without a kubelet; write the status of its pod as a kubelet does."""
        containers, pod = parts.pop("containers", ()), {**await self.worker(), **parts.pop("pod", {})}
        await self.start(*containers, pod=pod, **parts)
        await self.until(
            lambda snapshot: any(pod.text("spec", "nodeName") for pod in snapshot.pods), "the pod is bound"
        )
        found = (await self.snapshot()).pods[0]
        body = msgspec.json.encode({"status": {"startTime": now(), "phase": "Pending", **status}})
        target = Pod.from_dict({"metadata": {"name": found.name, "namespace": self.namespace}})
        await self.client.status.patch(target, raw_patch(STRATEGIC, body))


def states(snapshot: Snapshot) -> list[Data]:
    """Return the statuses of all containers of the pods in the snapshot."""
    parts = ("initContainerStatuses", "containerStatuses")
    return [each for pod in snapshot.pods for part in parts for each in pod.maps("status", part)]


def is_ended(code: int, reason: str) -> Data:
    """Return the status of a pod whose container has ended."""
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": now(), "finishedAt": now()}}
    return {"phase": "Failed", "containerStatuses": [_status(state, ready=False)]}


def is_running() -> Data:
    """Return the status of a pod whose container runs."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now()}]
    state = {"running": {"startedAt": now()}}
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [_status(state, ready=True)],
    }


def _status(state: Data, *, ready: bool) -> Data:
    return {
        "name": "node",
        "image": "local",
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }


State = Callable[[LiveTrainJob], Awaitable[object]]
PYTHON: Final = ["python", "-c"]
HIGH: Final = {"limits": {"nvidia.com/gpu": "16"}}
ENV: Final = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}


def starts(*containers: Any, until: str = "", words: str = "", **parts: Any) -> State:
    """Return a state that is visible in an event, or in a pod that cannot be scheduled."""

    async def build(live: LiveTrainJob) -> None:
        await live.start(*containers, **parts)
        await (live.event(until, words) if until else live.unscheduled(words))

    return build


def kubelet(status: Data, **parts: Any) -> State:
    """Return the state of a TrainJob whose pod has a status that the test writes."""
    return lambda live: live.start_without_kubelet(status, **parts)


def processes(*containers: Any, code: int = 0, waiting: str = "", **parts: Any) -> State:
    """Return a state that a process causes, by its exit code or by the reason why its container waits."""

    async def build(live: LiveTrainJob) -> None:
        await live.start(*containers, **parts)
        await (live.waiting(waiting) if waiting else live.ended(code))

    return build


def removed(*containers: Any) -> State:
    """Return the state of a Job with JobSet's default restart policy that has failed and has removed its pods."""

    async def build(live: LiveTrainJob) -> None:
        await live.start(*containers, pod={"restartPolicy": "OnFailure"})
        await live.condition("Failed")
        await live.until(lambda snapshot: not snapshot.pods, "the pods are removed")
        await live.event("ContainerFailed")

    return build


def deleted(state: State) -> State:
    """Return ``state``, in which a Job fails. Its pods are deleted after the manager has seen them fail."""

    async def build(live: LiveTrainJob) -> None:
        await state(live)
        await live.condition("Failed")
        await live.event("ContainerFailed")
        await live.client.delete_all_of(Pod, namespace=live.namespace, grace_period_seconds=0)
        await live.until(lambda snapshot: not snapshot.pods, "the pods are deleted")

    return build


def as_reader(state: State, *resources: str) -> State:
    """Return ``state``, read by a user who may read only these resources."""

    async def build(live: LiveTrainJob) -> None:
        await state(live)
        api = "rbac.authorization.k8s.io"
        rules = [{"apiGroups": ["*"], "resources": list(resources), "verbs": ["get", "list"]}]
        await live.make(f"{api}/v1", "Role", "reader", rules=rules)
        await live.make(f"{api}/v1", "RoleBinding", "reader", roleRef={"apiGroup": api, "kind": "Role", "name": "reader"},
                        subjects=[{"apiGroup": api, "kind": "User", "name": "reader"}])  # fmt: skip
        config = replace(await load_config(str(live.cluster.kubeconfig)), impersonate=Impersonation("reader"))
        transport = await live.undo.enter_async_context(Transport(config))
        live.reader = LiveClient(transport, RESTMapper(transport))

        def settled(snapshot: Snapshot) -> bool:
            return snapshot.job_set is not None and snapshot.spec_is_settled(snapshot.job_set)

        await live.until(settled, "time has passed")

    return build
