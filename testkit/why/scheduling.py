# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Causes in claims, volumes and nodes, each brought about on a real control plane."""

from __future__ import annotations

from typing import Any

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import apply_manifests, eventually
from controller_runtime.machinery import GVK, unstructured

from testkit.why.live import LiveTrainJob, container, is_running, starts


async def claim(live: LiveTrainJob, **spec: Any) -> dict[str, Any]:
    """Create a claim, and return the part of a pod spec that uses it."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    await live.make("v1", "PersistentVolumeClaim", "data", spec=wanted)
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


async def claim_pending(live: LiveTrainJob) -> None:
    pod = await claim(live, resources={"requests": {"storage": "900Ti"}})
    await starts(pod=pod)(live)


async def storage_class(live: LiveTrainJob) -> None:
    pod = await claim(live, storageClassName="fast")
    await live.start(pod=pod)
    await live.event("ProvisioningFailed")


async def claim_lost(live: LiveTrainJob) -> None:
    pod = await claim(live)
    claims = "PersistentVolumeClaim"
    await live.start(pod={**pod, "schedulingGates": [{"name": "example.com/hold"}]})
    await live.until(
        lambda snapshot: any(each.text("status", "phase") == "Bound" for each in snapshot.all(claims)),
        "bound",
    )
    volume = unstructured(GVK("", "v1", "PersistentVolume"))
    bound = (await live.snapshot()).all(claims)[0].text("spec", "volumeName")
    obj = await live.client.get(volume, ("", bound))
    kept = {key: value for key, value in obj.to_dict()["spec"].items() if key != "claimRef"}
    live.undo.push_async_callback(apply_manifests, live.client,
                                  [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": bound}, "spec": kept}])  # fmt: skip
    await live.client.delete(obj)
    # The finalizer is removed only now: before the deletion, a controller would add it again.
    await live.change(volume, bound, metadata={"finalizers": None})
    await live.until(
        lambda snapshot: any(each.text("status", "phase") == "Lost" for each in snapshot.all(claims)), "lost"
    )


async def node_lost(live: LiveTrainJob) -> None:
    await live.start_without_kubelet(is_running())

    def silent(snapshot: Any) -> bool:
        name = snapshot.pods[0].text("spec", "nodeName")
        return any(
            each.name == name and each.condition("Ready").get("status") == "Unknown"
            for each in snapshot.all("Node")
        )

    await live.until(silent, "the control plane marks the node")


async def node_removed(live: LiveTrainJob) -> None:
    await live.start_without_kubelet(is_running())
    node = (await live.snapshot()).pods[0].text("spec", "nodeName")
    await live.remove(await live.client.get(unstructured(GVK("", "v1", "Node")), ("", node)))


async def cordoned(live: LiveTrainJob) -> None:
    pod = await live.worker(unschedulable=True)
    pod["tolerations"] = [{"key": "example.com/own", "operator": "Exists"}]
    await starts(pod=pod)(live)


async def untolerated(live: LiveTrainJob) -> None:
    pod = await live.worker()
    del pod["tolerations"]
    await starts(pod=pod)(live)


async def full(live: LiveTrainJob) -> None:
    pod = await live.worker()
    gpus = {"limits": {"nvidia.com/gpu": "8"}}
    await live.start(container(resources=gpus), name="first", runtime="first", pod=pod)
    await eventually(lambda: bound(live), timeout=60, reason="the first pod takes the node")
    await starts(container(resources=gpus), pod=pod)(live)


def on_one_host(labels: dict[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "no-such-zone"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


async def ports_taken(live: LiveTrainJob) -> None:
    pod = await live.worker()
    ports = [{"containerPort": 8080, "hostPort": 8080}]
    await live.start(container(ports=ports), name="first", runtime="first", pod=pod)
    await eventually(lambda: bound(live), timeout=60, reason="the first pod takes the port")
    await starts(container(ports=ports), pod=pod)(live)


async def bound(live: LiveTrainJob) -> bool:
    return any(each.spec.node_name for each in await live.client.list(Pod, namespace=live.namespace))


async def volume_of_another_zone(live: LiveTrainJob) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["moon"]}]}
    claimed = {"namespace": live.namespace, "name": "data"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nonexistent"},
            "claimRef": claimed, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "storageClassName": "local"}  # fmt: skip
    await live.make("v1", "PersistentVolume", live.namespace, shared=True, spec=spec)
    pod = await claim(live, storageClassName="local", volumeName=live.namespace)
    await live.becomes("v1", "PersistentVolumeClaim", "data", "spec", "volumeName")
    await starts(pod=pod, words="affinity")(live)
