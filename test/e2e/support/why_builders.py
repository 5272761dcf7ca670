# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to start a TrainJob in a state, on a real control plane. A state returns when it is visible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from controller_runtime.client import LiveClient
from controller_runtime.rest import Impersonation, RESTMapper, Transport, load_config
from why_live import NAME, Live, condition, container

from pkg.why import Snapshot

State = Callable[[Live], Awaitable[object]]
PYTHON: Final = ["python", "-c"]
HIGH: Final = {"limits": {"nvidia.com/gpu": "16"}}
ENV: Final = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}
PULL: Final = "failed to pull and unpack image: failed to resolve reference: registry.example/train:1: "


def starts(*containers: Any, until: str = "", words: str = "", **parts: Any) -> State:
    """Return a state that is visible in an event, or as a pod that cannot be scheduled."""

    async def build(live: Live) -> None:
        await live.start(*containers, **parts)
        await (live.event(until, words) if until else live.unscheduled(words))

    return build


def kubelet(status: Any, event: tuple[str, str] | None = None, **parts: Any) -> State:
    return lambda live: live.played(status() if callable(status) else status, event=event, **parts)


def processes(*containers: Any, code: int = 0, waiting: str = "", **parts: Any) -> State:
    """Return a state that a process causes: its exit code, or a reason for which it waits."""

    async def build(live: Live) -> None:
        await live.start(*containers, **parts)
        await (live.waiting(waiting) if waiting else live.ended(code))

    return build


def queued(*conditions: Any, **parts: Any) -> State:
    return lambda live: live.workload(*conditions, **parts)


def no_quota(message: str, reason: str = "Pending") -> Any:
    return condition("QuotaReserved", "False", reason, message)


def unread(state: State, *resources: str) -> State:
    """Return a state that is read by a user who may read only these resources."""

    async def build(live: Live) -> None:
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
            return snapshot.job_set is not None and snapshot.settled(snapshot.job_set)

        await live.until(settled, "time has passed")

    return build


def gang(members: int, *conditions: Any, nodes: int = 1, gpus: int = 0) -> State:
    """Return the state of a gang of Volcano whose group has ``conditions``."""

    async def build(live: Live) -> None:
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
        job = await live.start(
            container(resources=limits if gpus else {}), pod={"schedulerName": "volcano"}, nodes=nodes
        )
        owner = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "name": NAME,
            "uid": job.metadata.uid,
        }
        await live.make("scheduling.volcano.sh/v1beta1", "PodGroup", NAME, metadata={"ownerReferences": [owner]},
                        spec={"minMember": members}, status={"phase": "Inqueue", "conditions": list(conditions)})  # fmt: skip

        def waited(snapshot: Snapshot) -> bool:
            groups = snapshot.all("PodGroup.scheduling.volcano.sh")
            return bool(groups) and len(snapshot.pods) == nodes and snapshot.settled(groups[0])

        await live.until(waited, "time has passed")

    return build
