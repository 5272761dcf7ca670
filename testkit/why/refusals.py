# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Causes in refusals and deletions by the API server or a controller, each brought about on a real control plane."""

from __future__ import annotations

from typing import Any

from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import StatusError

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.why.live import ENV, NAME, LiveTrainJob, container, processes, starts


async def managed(live: LiveTrainJob) -> None:
    await live.start(spec={"managedBy": "kueue.x-k8s.io/multikueue"})


async def suspended(live: LiveTrainJob) -> None:
    await live.start(spec={"suspend": True})
    await live.condition("Suspended")


async def kept(live: LiveTrainJob) -> None:
    job = await live.start(finalizers=["example.com/backup"])
    live.undo.push_async_callback(live.change, TrainJob, NAME, metadata={"finalizers": None})
    await live.client.delete(job)


async def quota(live: LiveTrainJob) -> None:
    await live.make("v1", "ResourceQuota", "compute", spec={"hard": {"pods": "0"}})
    await live.becomes("v1", "ResourceQuota", "compute", "status", "used")
    await starts(until="FailedCreate")(live)


async def quota_of_jobs(live: LiveTrainJob) -> None:
    await live.make("v1", "ResourceQuota", "jobs", spec={"hard": {"count/jobs.batch": "0"}})
    await live.becomes("v1", "ResourceQuota", "jobs", "status", "used")
    await live.start()
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.spec_is_settled(snapshot.job_set),
        "time has passed",
    )


async def limit_range(live: LiveTrainJob) -> None:
    await live.make(
        "v1", "LimitRange", "small", spec={"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}
    )
    await starts(container(resources={"limits": {"memory": "2Gi"}}), until="FailedCreate")(live)


async def pod_security(live: LiveTrainJob) -> None:
    namespace = unstructured(GVK("", "v1", "Namespace"))
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    obj = namespace.wrap(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": live.namespace, "labels": labels}}
    )
    await live.client.apply(obj, field_owner="test", force=True)
    await refused(live)
    await starts(until="FailedCreate")(live)


async def refused(live: LiveTrainJob) -> None:
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


async def webhook_unreachable(live: LiveTrainJob) -> None:
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


async def policy(live: LiveTrainJob) -> None:
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


async def name_taken(live: LiveTrainJob) -> None:
    template = {"spec": {"template": {"spec": {"containers": [container()], "restartPolicy": "Never"}}}}
    await live.make(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        NAME,
        spec={"replicatedJobs": [{"name": "a", "template": template}]},
    )
    await starts(until="TrainJobResourcesCreationFailed")(live)


async def role(live: LiveTrainJob, api_group: str, *verbs: str) -> None:
    """Remove verbs on a group from the manager's role until the end of the test."""
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


async def forbidden(live: LiveTrainJob) -> None:
    await role(live, "jobset.x-k8s.io", "create", "patch", "update")
    await starts(until="TrainJobResourcesCreationFailed")(live)


async def runtime_removed(live: LiveTrainJob) -> None:
    """Delete the runtime of a TrainJob without children; the runtime's finalizer is removed by hand."""
    await role(live, "jobset.x-k8s.io", "create", "patch", "update")
    await starts(until="TrainJobResourcesCreationFailed")(live)
    kind = unstructured(GVK("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"))
    runtime = await live.client.get(kind, (live.namespace, "plain"))
    await live.client.delete(runtime)
    await live.change(kind, "plain", metadata={"finalizers": None})


async def gone(live: LiveTrainJob) -> None:
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


async def deadline(live: LiveTrainJob) -> None:
    await live.start(job={"activeDeadlineSeconds": 2})
    await live.until(
        lambda snapshot: any(job.is_true("Failed") for job in snapshot.jobs), "the deadline has passed"
    )


async def job_refused(live: LiveTrainJob) -> None:
    """Make JobSet create a Job that is not valid: JobSet does not report that in an event."""
    await live.start(container(imagePullPolicy="Sometimes"))
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.spec_is_settled(snapshot.job_set),
        "time has passed",
    )


async def key_missing(live: LiveTrainJob) -> None:
    await live.make("v1", "Secret", "hf-token", stringData={"other": "x"})
    await processes(container(env=[ENV]), waiting="CreateContainerConfigError")(live)


async def retries_exhausted(live: LiveTrainJob) -> None:
    await live.start(container(command=["sh", "-c", "exit 4"]))
    await live.condition("Failed")
    await live.event("ContainerFailed")
    for pod in await live.client.list(Pod, namespace=live.namespace):
        await live.client.delete(pod, grace_period_seconds=0)
    await live.client.delete_all_of(Event, namespace=live.namespace)  # as after an hour
    await live.until(lambda snapshot: not snapshot.pods, "the pods are deleted")
