# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The causes of docs/why.md, each brought about on a real control plane. A state returns when it is visible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Unstructured, unstructured
from controller_runtime.client import LiveClient
from controller_runtime.envtest import apply_manifests, eventually
from controller_runtime.rest import Impersonation, RESTMapper, Transport, load_config
from why_live import NAME, Live, condition, container, is_running

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.why import Snapshot

State = Callable[[Live], Awaitable[object]]


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


async def managed(live: Live) -> None:
    await live.start(spec={"managedBy": "kueue.x-k8s.io/multikueue"})


async def suspended(live: Live) -> None:
    await live.start(spec={"suspend": True})
    await live.condition("Suspended")


async def kept(live: Live) -> None:
    job = await live.start(finalizers=["example.com/backup"])
    live.undo.push_async_callback(live.change, TrainJob, NAME, metadata={"finalizers": None})
    await live.client.delete(job)


async def quota(live: Live) -> None:
    await live.make("v1", "ResourceQuota", "compute", spec={"hard": {"pods": "0"}})
    await live.becomes("v1", "ResourceQuota", "compute", "status", "used")
    await starts(until="FailedCreate")(live)


async def quota_of_jobs(live: Live) -> None:
    await live.make("v1", "ResourceQuota", "jobs", spec={"hard": {"count/jobs.batch": "0"}})
    await live.becomes("v1", "ResourceQuota", "jobs", "status", "used")
    await live.start()
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.settled(snapshot.job_set),
        "time has passed",
    )


async def limit_range(live: Live) -> None:
    await live.make(
        "v1", "LimitRange", "small", spec={"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    )
    await starts(container(resources={"limits": {"memory": "2Gi"}}), until="FailedCreate")(live)


async def pod_security(live: Live) -> None:
    namespace = unstructured(GVK("", "v1", "Namespace"))
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    obj = namespace.wrap(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": live.namespace, "labels": labels}}
    )
    await live.client.apply(obj, field_owner="test", force=True)
    await starts(until="FailedCreate")(live)


async def refused(live: Live) -> None:
    """Wait until the API server refuses pods of the namespace."""
    probe = {
        "metadata": {"name": "probe", "namespace": live.namespace},
        "spec": {"containers": [container()]},
    }

    async def is_refused() -> bool:
        try:
            await live.client.create(Pod.from_dict(probe), dry_run=True)
        except StatusError:
            return True
        return False

    await eventually(is_refused, timeout=60, reason="pods are refused")


async def webhook_unreachable(live: Live) -> None:
    here = {"matchLabels": {"kubernetes.io/metadata.name": live.namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    hook = {"name": "policy.example.com", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": here, "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail"}  # fmt: skip
    await live.make(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        live.namespace,
        shared=True,
        webhooks=[hook],
    )
    await refused(live)
    await starts(until="FailedCreate")(live)


async def policy(live: Live) -> None:
    api, name = "admissionregistration.k8s.io/v1", live.namespace
    here = {"matchLabels": {"kubernetes.io/metadata.name": live.namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    checks = [
        {
            "expression": "object.spec.containers.all(c, c.image.contains('@sha256:'))",
            "message": "images must have digests",
        }
    ]
    await live.make(api, "ValidatingAdmissionPolicy", name, shared=True,
                    spec={"matchConstraints": {"resourceRules": [rule]}, "validations": checks})  # fmt: skip
    await live.make(api, "ValidatingAdmissionPolicyBinding", name, shared=True,
                    spec={"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here}})  # fmt: skip
    await refused(live)
    await starts(until="FailedCreate")(live)


async def name_taken(live: Live) -> None:
    template = {"spec": {"template": {"spec": {"containers": [container()], "restartPolicy": "Never"}}}}
    await live.make(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        NAME,
        spec={"replicatedJobs": [{"name": "a", "template": template}]},
    )
    await starts(until="TrainJobResourcesCreationFailed")(live)


async def role(live: Live, api_group: str, *verbs: str) -> None:
    """Remove verbs on a group from the manager's role until the end."""
    kind = unstructured(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"))
    found = (await live.client.get(kind, ("", "kubeflow-trainer-controller-manager"))).to_dict()
    rules = [{**each, "verbs": [verb for verb in each["verbs"] if verb not in verbs]} if api_group in each.get("apiGroups", ()) else each
             for each in found["rules"]]  # fmt: skip

    async def write(wanted: Any) -> None:
        metadata = {"name": found["metadata"]["name"]}
        await live.client.apply(kind.wrap({"apiVersion": found["apiVersion"], "kind": "ClusterRole", "metadata": metadata,
                                           "rules": wanted}), field_owner="trainerctl", force=True)  # fmt: skip

    live.undo.push_async_callback(write, found["rules"])
    await write(rules)


async def forbidden(live: Live) -> None:
    await role(live, "jobset.x-k8s.io", "create", "patch", "update")
    await starts(until="TrainJobResourcesCreationFailed")(live)


async def runtime_removed(live: Live) -> None:
    """Delete the runtime, whose finalizer is removed by hand, of a TrainJob whose children are then deleted."""
    await role(live, "jobset.x-k8s.io", "create", "patch", "update")
    job = await starts(until="TrainJobResourcesCreationFailed")(live)
    del job
    kind = unstructured(GVK("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"))
    runtime = await live.client.get(kind, (live.namespace, "plain"))
    await live.client.delete(runtime)
    await live.change(kind, "plain", metadata={"finalizers": None})


async def gone(live: Live) -> None:
    """Delete the namespace of a TrainJob that a finalizer keeps."""
    await live.start(finalizers=["example.com/backup"], spec={"suspend": True})
    live.undo.push_async_callback(live.change, TrainJob, NAME, metadata={"finalizers": None})
    namespace = unstructured(GVK("", "v1", "Namespace"))
    await live.client.delete(await live.client.get(namespace, ("", live.namespace)))
    await live.until(
        lambda snapshot: any(
            each.text("status", "phase") == "Terminating" for each in snapshot.all("Namespace")
        ),
        "it ends",
    )


async def claim(live: Live, **spec: Any) -> dict[str, Any]:
    """Create a claim, and return the part of a pod spec that uses it."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    await live.make("v1", "PersistentVolumeClaim", "data", spec=wanted)
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


async def claim_pending(live: Live) -> None:
    pod = await claim(live, resources={"requests": {"storage": "900Ti"}})
    await starts(pod=pod)(live)


async def storage_class(live: Live) -> None:
    pod = await claim(live, storageClassName="fast")
    await live.start(pod=pod)
    await live.event("ProvisioningFailed")


async def claim_lost(live: Live) -> None:
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
    await live.change(volume, bound, metadata={"finalizers": None})
    await live.client.delete(obj)
    await live.until(
        lambda snapshot: any(each.text("status", "phase") == "Lost" for each in snapshot.all(claims)), "lost"
    )


async def node_lost(live: Live) -> None:
    await live.played(is_running())

    def silent(snapshot: Any) -> bool:
        name = snapshot.pods[0].text("spec", "nodeName")
        return any(
            each.name == name and each.condition("Ready").get("status") == "Unknown"
            for each in snapshot.all("Node")
        )

    await live.until(silent, "the control plane marks the node")


async def node_removed(live: Live) -> None:
    await live.played(is_running())
    node = (await live.snapshot()).pods[0].text("spec", "nodeName")
    await live.remove(await live.client.get(unstructured(GVK("", "v1", "Node")), ("", node)))


async def cordoned(live: Live) -> None:
    pod = await live.worker(unschedulable=True)
    pod["tolerations"] = [{"key": "example.com/own", "operator": "Exists"}]
    await starts(pod=pod)(live)


async def untolerated(live: Live) -> None:
    pod = await live.worker()
    del pod["tolerations"]
    await starts(pod=pod)(live)


async def full(live: Live) -> None:
    pod = await live.worker()
    gpus = {"limits": {"nvidia.com/gpu": "8"}}
    await live.start(container(resources=gpus), name="first", runtime="first", pod=pod)

    async def bound() -> bool:
        return any(each.spec.node_name for each in await live.client.list(Pod, namespace=live.namespace))

    await eventually(bound, timeout=60, reason="the first pod takes the node")
    await starts(container(resources=gpus), pod=pod)(live)


def queued(*conditions: Any, **parts: Any) -> State:
    return lambda live: live.workload(*conditions, **parts)


def no_quota(message: str, reason: str = "Pending") -> Any:
    return condition("QuotaReserved", "False", reason, message)


async def queue_missing(live: Live) -> None:
    await live.workload(no_quota("LocalQueue team-queue doesn't exist", "Inadmissible"), no_queue=True)


async def stopped(live: Live, component: str, timeout: float = 60) -> None:
    """Stop a component until the end."""
    await live.cluster.supervisor.stop(component)
    live.undo.push_async_callback(live.cluster.restart)


async def job_set_controller(live: Live) -> None:
    await stopped(live, "jobset-controller")
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        await unhooked(live, kind, "jobset")
    await live.start()
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.settled(snapshot.job_set),
        "time has passed",
    )


async def unhooked(live: Live, kind: str, words: str) -> None:
    """Delete webhook configurations until the end."""
    found = await live.client.list(unstructured(GVK("admissionregistration.k8s.io", "v1", kind)))
    for each in found:
        if words in each.name:
            data = each.to_dict()
            data["metadata"] = {"name": each.name}
            await live.client.delete(each)
            live.undo.push_async_callback(live.client.create, Unstructured.wrap(data))


async def manager(live: Live) -> None:
    await stopped(live, "trainer-controller-manager")
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        await unhooked(live, kind, "trainer")
    await live.start()
    await live.until(lambda snapshot: snapshot.settled(snapshot.train_job), "time has passed")


async def manager_scaled_down(live: Live) -> None:
    await manager(live)
    labels = {"app": "trainer"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container("manager")]}}
    await live.make("apps/v1", "Deployment", "kubeflow-trainer-controller-manager",
                    spec={"replicas": 0, "selector": {"matchLabels": labels}, "template": template})  # fmt: skip


async def job_controller(live: Live) -> None:
    await stopped(live, "kube-controller-manager")
    await live.start()
    await live.until(
        lambda snapshot: bool(snapshot.jobs) and snapshot.settled(snapshot.jobs[0]), "time has passed"
    )


async def scheduler(live: Live) -> None:
    await live.start(pod={"schedulerName": "nope"})
    await live.until(
        lambda snapshot: bool(snapshot.pods) and snapshot.settled(snapshot.pods[0]), "time has passed"
    )


async def between_retries(live: Live) -> None:
    await live.start(container(command=["sh", "-c", "exit 4"]), job={"backoffLimit": 3})
    await live.ended(4)
    for pod in await live.client.list(Pod, namespace=live.namespace):
        await live.client.delete(pod, grace_period_seconds=0)

    def waits(snapshot: Snapshot) -> bool:
        return any(job.number("status", "failed") and snapshot.lacking(job) for job in snapshot.jobs)

    await live.until(waits, "the Job waits")


async def deadline(live: Live) -> None:
    await live.start(job={"activeDeadlineSeconds": 2})
    await live.until(
        lambda snapshot: any(job.is_true("Failed") for job in snapshot.jobs), "the deadline has passed"
    )


PYTHON: Final = ["python", "-c"]
HIGH: Final = {"limits": {"nvidia.com/gpu": "16"}}
ENV: Final = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}
PULL: Final = "failed to pull and unpack image: failed to resolve reference: registry.example/train:1: "


def on_one_host(labels: dict[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "no-such-zone"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


async def job_refused(live: Live) -> None:
    """Make JobSet create a Job that is not valid: JobSet has no event for that."""
    await live.start(container(imagePullPolicy="Sometimes"))
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.settled(snapshot.job_set),
        "time has passed",
    )


async def key_missing(live: Live) -> None:
    await live.make("v1", "Secret", "hf-token", stringData={"other": "x"})
    await processes(container(env=[ENV]), waiting="CreateContainerConfigError")(live)


async def retries_exhausted(live: Live) -> None:
    await live.start(container(command=["sh", "-c", "exit 4"]))
    await live.condition("Failed")
    for pod in await live.client.list(Pod, namespace=live.namespace):
        await live.client.delete(pod, grace_period_seconds=0)
    await live.until(lambda snapshot: not snapshot.pods, "the pods are deleted")


async def ports_taken(live: Live) -> None:
    pod = await live.worker()
    ports = [{"containerPort": 8080, "hostPort": 8080}]
    await live.start(container(ports=ports), name="first", runtime="first", pod=pod)
    await eventually(lambda: bound(live), timeout=60, reason="the first pod takes the port")
    await starts(container(ports=ports), pod=pod)(live)


async def bound(live: Live) -> bool:
    return any(each.spec.node_name for each in await live.client.list(Pod, namespace=live.namespace))


async def volume_of_another_zone(live: Live) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["moon"]}]}
    claimed = {"namespace": live.namespace, "name": "data"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nonexistent"},
            "claimRef": claimed, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "storageClassName": "local"}  # fmt: skip
    await live.make("v1", "PersistentVolume", live.namespace, shared=True, spec=spec)
    pod = await claim(live, storageClassName="local", volumeName=live.namespace)
    await live.becomes("v1", "PersistentVolumeClaim", "data", "spec", "volumeName")
    await starts(pod=pod, words="affinity")(live)


async def service_removed(live: Live) -> None:
    await live.start()
    await live.runs()
    await stopped(live, "jobset-controller")
    service = unstructured(GVK("", "v1", "Service"))
    await live.client.delete(await live.client.get(service, (live.namespace, NAME)))
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.settled(snapshot.job_set),
        "time has passed",
    )


async def unsupported(live: Live) -> None:
    await unhooked(live, "ValidatingWebhookConfiguration", "trainer")
    await live.runtime()
    spec = {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "Nothing", "name": "plain"}}
    await live.client.create(
        TrainJob.from_dict({"metadata": {"name": NAME, "namespace": live.namespace}, "spec": spec})
    )
    await live.condition("Failed")


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
