# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scenarios that use the manager's features; together they need every permission of its roles.

Each scenario returns when its feature has worked, and raises an error if it does not work.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller_runtime import rest
from controller_runtime.apis.authentication.v1 import BoundObjectReference, TokenRequest, TokenRequestSpec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod, ServiceAccount
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, Object, unstructured
from controller_runtime.machinery.errors import AlreadyExistsError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver import status_url, token_audience
from testkit.builders import make_ended_status, written_cluster_runtime, written_runtime, written_train_job
from testkit.clusters import job_set_at, until
from testkit.processes import answer

PRIORITY: Final = unstructured(GVK("scheduling.k8s.io", "v1", "PriorityClass"))
Run = Any  # the class Run of test/integration/rbac, which cannot be imported here
Scenario = Callable[[LiveClient, str, Run], Awaitable[None]]


async def job_set_of(client: LiveClient, namespace: str, run: Run, name: str, **policies: Any) -> None:
    """Create a runtime with these policies and a TrainJob that refers to it; return once the JobSet exists."""
    await run.ready()
    await client.create(written_runtime(namespace, name, **policies))
    await client.create(written_train_job(namespace, name, name=name, suspend=True))
    await job_set_at(client, (namespace, name), timeout=20)


async def start(client: LiveClient, namespace: str, run: Run) -> None:
    """Do nothing: the manager needs permissions for its caches, lease and certificates even to start."""


async def torch(client: LiveClient, namespace: str, run: Run) -> None:
    """Let the manager create and change a JobSet, report the state in a condition, and report a failure in an event."""
    await job_set_of(client, namespace, run, "torch", mlPolicy={"torch": {"numProcPerNode": "auto"}})
    job = await client.get(TrainJob, (namespace, "torch"))
    await client.patch(job, raw_patch(MERGE, b'{"spec":{"suspend":false}}'))

    async def resumed() -> bool:
        spec = (await client.get(JobSet, (namespace, "torch"))).to_dict()["spec"]
        conditions = (await client.get(TrainJob, (namespace, "torch"))).status.conditions or []
        return not spec.get("suspend") and any(each.type == "Suspended" for each in conditions)

    await eventually(resumed, timeout=20, reason="the JobSet and the condition follow")
    other = await client.create(ConfigMap.from_dict({"metadata": {"name": "other", "namespace": namespace}}))
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": other.metadata.uid,
        "controller": True,
    }
    taken = {"metadata": {"name": "taken", "namespace": namespace, "ownerReferences": [owner]}, "spec": {}}
    await client.create(JobSet.from_dict(taken))  # each attempt to create ours fails and is reported
    await client.create(written_train_job(namespace, "torch", name="taken"))


async def rebuild(client: LiveClient, namespace: str, run: Run) -> None:
    """Edit the image of a suspended TrainJob whose JobSet has Jobs: the JobSet must be built again."""
    await job_set_of(client, namespace, run, "edited")
    job_set = await client.get(JobSet, (namespace, "edited"))
    counts = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 1}
    job_set.status = job_set.status.from_dict({"restarts": 0, "replicatedJobsStatus": [counts]})
    await client.status.update(job_set)
    job = await client.get(TrainJob, (namespace, "edited"))
    await client.patch(job, raw_patch(MERGE, b'{"spec":{"trainer":{"image":"other"}}}'))

    async def deleted() -> bool:
        found = await client.get(JobSet, (namespace, "edited"))
        return found.metadata.deletion_timestamp is not None

    await eventually(deleted, timeout=20, reason="the JobSet is being built again")


async def cluster_runtime(client: LiveClient, namespace: str, run: Run) -> None:
    """Create a TrainJob that refers to a ClusterTrainingRuntime: the manager adds its finalizer to the runtime."""
    await run.ready()
    made = await client.create(written_cluster_runtime(f"torch-{namespace}"[:60].strip("-")))
    await client.create(written_train_job(namespace, made.name, name="c", kind=None, suspend=True))


async def mpi(client: LiveClient, namespace: str, run: Run) -> None:
    await job_set_of(client, namespace, run, "mpi", mlPolicy={"mpi": {"runLauncherAsNode": True}})


async def coscheduling(client: LiveClient, namespace: str, run: Run) -> None:
    await job_set_of(client, namespace, run, "gang", podGroupPolicy={"coscheduling": {}})


async def volcano(client: LiveClient, namespace: str, run: Run) -> None:
    """Let the manager build a gang of Volcano with a priority; admission reads the PriorityClass."""
    await run.ready()
    priority = await client.create(
        PRIORITY.from_dict({"metadata": {"name": f"p-{namespace}"[:60].strip("-")}, "value": 1})
    )
    pod = {"priorityClassName": priority.name}
    await client.create(written_runtime(namespace, "volcano", pod=pod, podGroupPolicy={"volcano": {}}))
    await client.create(written_train_job(namespace, "volcano", name="volcano", suspend=True))


async def workload(client: LiveClient, namespace: str, run: Run) -> None:
    """Let the manager build a gang of Kubernetes itself, and build it again for another number of nodes."""
    await job_set_of(client, namespace, run, "native", podGroupPolicy={"workload": {}})
    job = await client.get(TrainJob, (namespace, "native"))
    await client.patch(job, raw_patch(MERGE, b'{"spec":{"trainer":{"numNodes":3}}}'))


async def pod_token(client: LiveClient, namespace: str, train_job: str) -> str:
    """Create a pod of a TrainJob that has its JobSet; return the token with which the pod reports the progress."""
    metadata: dict[str, Any] = {"name": "default", "namespace": namespace}
    account = await client.create(ServiceAccount.from_dict({"metadata": metadata}))
    pod_spec = {"serviceAccountName": "default", "containers": [{"name": "node", "image": "busybox"}]}
    template = {"spec": {**pod_spec, "restartPolicy": "Never"}}
    owner: Object = await client.get(JobSet, (namespace, train_job))
    for kind, name, spec in ((Job, f"{train_job}-node-0", {"template": template}), (Pod, "p", pod_spec)):
        gvk, uid = type(owner).gvk, owner.metadata.uid
        named = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": owner.name, "uid": uid}
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [{**named, "controller": True}]}
        owner = await client.create(kind.from_dict({"metadata": metadata, "spec": spec}))
    bound = BoundObjectReference(kind="Pod", api_version="v1", name="p", uid=owner.metadata.uid)
    wanted = TokenRequestSpec(audiences=[token_audience(namespace, train_job)], bound_object_ref=bound)
    issued = await client.subresource("token").create(account, TokenRequest(spec=wanted))
    return issued.status.token or ""


async def status(client: LiveClient, namespace: str, run: Run) -> None:
    """Report the progress of a TrainJob from one of its pods."""
    await job_set_of(client, namespace, run, "status")
    config = rest.Config(
        host=f"https://127.0.0.1:{run.status}",
        tls=rest.TLSConfig(verify=False),
        credentials=rest.StaticToken(await pod_token(client, namespace, "status")),
    )
    async with rest.Transport(config) as transport:
        body = b'{"trainerStatus": {"progressPercentage": 1, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}'

        async def stored() -> bool:
            response = await transport.send(rest.Request("POST", status_url(namespace, "status"), body=body))
            assert response.status == 200, await response.read()
            return True

        # A permission that was just granted takes effect after some seconds.
        await eventually(stored, timeout=10, interval=0.5, reason="the update is stored")


async def failure(
    client: LiveClient, namespace: str, run: Run, name: str = "failing", *, timeout: float = 30
) -> None:
    """Let a container of a TrainJob fail: an event of the TrainJob must say how the container ended."""
    await job_set_of(client, namespace, run, name)
    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    metadata = {"name": f"{name}-node-0-0-abcde", "namespace": namespace, "labels": labels}
    spec = {"serviceAccountName": "default", "containers": [{"name": "node", "image": "busybox"}]}
    if not await client.list(ServiceAccount, namespace=namespace, fields={"metadata.name": "default"}):
        account = {"metadata": {"name": "default", "namespace": namespace}}
        await client.create(ServiceAccount.from_dict(account))
    pod = await client.create(Pod.from_dict({"metadata": metadata, "spec": spec}))
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    state = {"name": "node", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    pod.set_unchecked("status", type(pod.status).from_dict({"phase": "Failed", "containerStatuses": [state]}))
    await client.status.update(pod)

    async def recorded() -> bool:
        found = [
            each for each in await client.list(Event, namespace=namespace) if each.reason == "ContainerFailed"
        ]
        return any("exit code 137 (OOMKilled)" in (each.message or "") for each in found)

    await eventually(recorded, timeout=timeout, interval=0.5, reason="the event says how the container ended")


async def finish(client: LiveClient, namespace: str, run: Run, name: str) -> None:
    """Let a TrainJob become Complete whose runtime says that finished TrainJobs are deleted at once."""
    await job_set_of(client, namespace, run, name, runPolicy={"ttlSecondsAfterFinished": 0})
    job_set = await client.get(JobSet, (namespace, name))
    job_set.status = make_ended_status("Completed")
    await client.status.update(job_set)
    await until(client, await client.get(TrainJob, (namespace, name)), "Complete")


async def is_deleted(client: LiveClient, namespace: str, name: str, *, timeout: float) -> None:
    """Wait until a TrainJob is deleted with its children; no garbage collector has to run."""

    async def deleted() -> bool:
        metadata = (await client.get(TrainJob, (namespace, name))).metadata
        return bool(metadata.deletion_timestamp) and "foregroundDeletion" in (metadata.finalizers or ())

    await eventually(deleted, timeout=timeout, reason="the TrainJob is being deleted")


async def metrics(client: LiveClient, namespace: str, run: Run) -> None:
    """Request the metrics without a token, with a wrong one, and with that of an account without the permission."""
    account = ServiceAccount.from_dict({"metadata": {"name": "scraper", "namespace": namespace}})
    with contextlib.suppress(AlreadyExistsError):
        await client.create(account)
    token = (await client.subresource("token").create(account, TokenRequest())).status.token or ""
    url = f"https://127.0.0.1:{run.metrics}/metrics"
    name = f"system:serviceaccount:{namespace}:scraper"
    assert await answer(url, token) == (403, f"Authorization denied for user {name}\n")
    assert await answer(url) == (401, "Unauthorized\n")
    assert await answer(url, token[:-8] + "AAAAAAAA") == (401, "Unauthorized\n")


SCENARIOS: Final[dict[str, Scenario]] = {
    each.__name__: each
    for each in (
        start,
        torch,
        rebuild,
        cluster_runtime,
        mpi,
        coscheduling,
        volcano,
        workload,
        status,
        metrics,
    )
}
