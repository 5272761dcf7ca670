# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Least privilege, by the API server's audit log: what the role grants is asked for, and refused once it is taken away.

RBAC_EVERY_GRANT=1 takes every grant away in turn, not only one of each kind.
"""

import contextlib
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import pytest
from controller_runtime import rest
from controller_runtime.apis.authentication.v1 import BoundObjectReference, TokenRequest, TokenRequestSpec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod, ServiceAccount
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Object, unstructured
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import EventuallyError, eventually

from hack import rbac
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.statusserver import status_url, token_audience

pytestmark = pytest.mark.integration

TRAINER: Final = "trainer.kubeflow.org"
PRIORITY: Final = unstructured(GVK("scheduling.k8s.io", "v1", "PriorityClass"))
Run = Any  # conftest's
Scenario = Callable[[LiveClient, str, Run], Awaitable[None]]
HOOKS: Final = "admissionregistration.k8s.io"
READ: Final = ("get", "list", "watch")


def grants(group: str, resource: str, *verbs: str) -> set[rbac.Grant]:
    return {(group, resource, verb) for verb in verbs}


USED: Final[dict[str, set[rbac.Grant]]] = {
    "start": {
        *grants(TRAINER, "trainjobs", "list", "watch"),
        *grants(TRAINER, "trainingruntimes", "list", "watch"),
        *grants(TRAINER, "clustertrainingruntimes", "list", "watch"),
        *grants("jobset.x-k8s.io", "jobsets", "list", "watch"),
        *grants("coordination.k8s.io", "leases", "get", "create", "update"),
        *grants("", "secrets", *READ, "update"),
        *grants(HOOKS, "validatingwebhookconfigurations", *READ, "update"),
        *grants(HOOKS, "mutatingwebhookconfigurations", *READ, "update"),
        *grants("", "events", "create"),
    },
    "torch": {
        *grants("jobset.x-k8s.io", "jobsets", "create", "patch"),
        *grants(TRAINER, "trainjobs/status", "patch"),
        *grants(TRAINER, "trainingruntimes", "patch"),
        *grants("", "events", "patch"),
    },
    "rebuild": grants("jobset.x-k8s.io", "jobsets", "delete"),
    "cluster_runtime": grants(TRAINER, "clustertrainingruntimes", "patch"),
    "mpi": {
        *grants("", "secrets", "create", "patch"),
        *grants("", "configmaps", "create", "patch", "list", "watch"),
    },
    "coscheduling": {
        *grants("scheduling.x-k8s.io", "podgroups", "create", "patch", "list", "watch"),
        *grants("", "limitranges", "list", "watch"),
        *grants("node.k8s.io", "runtimeclasses", "list", "watch"),
    },
    "volcano": {
        *grants("scheduling.volcano.sh", "podgroups", "create", "patch", "list", "watch"),
        *grants("scheduling.k8s.io", "priorityclasses", "list", "watch"),
    },
    "workload": grants("scheduling.k8s.io", "workloads", "create", "delete", "list", "patch", "watch"),
    "status": {
        *grants("", "pods", "get"),
        *grants("batch", "jobs", "get"),
        *grants("", "/.well-known/openid-configuration", "get"),
        *grants("", "/openid/v1/jwks", "get"),
    },
    "metrics": {
        *grants("authentication.k8s.io", "tokenreviews", "create"),
        *grants("authorization.k8s.io", "subjectaccessreviews", "create"),
    },
}
"""Requests of each scenario that earlier scenarios did not send."""

ADMISSION: Final = grants(TRAINER, "trainjobs/finalizers", "update")
"""Permissions that the API server checks for us when a child blocks the deletion of its TrainJob; not in the audit log."""

ROLLBACK: Final = {
    *grants("", "configmaps", "get", "update"),
    *grants("", "events", "update", "watch"),
    *grants("", "limitranges", "get"),
    *grants("coordination.k8s.io", "leases", "list"),
    *grants("jobset.x-k8s.io", "jobsets", "get", "update"),
    *grants("node.k8s.io", "runtimeclasses", "get"),
    *grants("scheduling.volcano.sh", "podgroups", "get", "update"),
    *grants("scheduling.x-k8s.io", "podgroups", "get", "update"),
    *grants(TRAINER, "clustertrainingruntimes", "get", "update"),
    *grants(TRAINER, "clustertrainingruntimes/finalizers", "get", "patch", "update"),
    *grants(TRAINER, "trainingruntimes", "get", "update"),
    *grants(TRAINER, "trainingruntimes/finalizers", "get", "patch", "update"),
    *grants(TRAINER, "trainjobs", "get", "patch", "update"),
    *grants(TRAINER, "trainjobs/finalizers", "get", "patch"),
    *grants(TRAINER, "trainjobs/status", "get", "update"),
}
"""What the Go manager has and asks for, and ours does not. It also lists every webhook configuration, so its own role must be
applied before its image is put back."""

OTHER_RELEASES: Final = {
    *grants("scheduling.k8s.io", "podgroups", "create", "delete", "get", "list", "patch", "watch"),
    *grants("scheduling.k8s.io", "workloads", "get"),
}
"""Permissions that newer releases of Kubernetes need, where a gang is a PodGroup, and a read after a lost answer."""

TAKEN: Final = [
    ("start", (TRAINER, "trainjobs", "list")),
    ("start", ("coordination.k8s.io", "leases", "update")),
    ("start", ("", "secrets", "update")),
    ("torch", ("jobset.x-k8s.io", "jobsets", "create")),
    ("torch", (TRAINER, "trainjobs/status", "patch")),
    ("rebuild", ("jobset.x-k8s.io", "jobsets", "delete")),
    ("cluster_runtime", (TRAINER, "clustertrainingruntimes", "patch")),
    ("mpi", ("", "configmaps", "patch")),
    ("coscheduling", ("", "limitranges", "watch")),
    ("volcano", ("scheduling.k8s.io", "priorityclasses", "list")),
    ("workload", ("scheduling.k8s.io", "workloads", "delete")),
    ("status", ("", "pods", "get")),
    ("status", ("", "/openid/v1/jwks", "get")),
    ("metrics", ("authorization.k8s.io", "subjectaccessreviews", "create")),
]
"""One grant of each kind, and the scenario that misses it."""


def runtime(namespace: str, name: str, *, priority: str = "", **policies: Any) -> TrainingRuntime:
    def job(name: str, *, labels: dict[str, str] | None = None) -> dict[str, Any]:
        pod: dict[str, Any] = {"containers": [{"name": "node", "image": "busybox"}]}
        if priority:
            pod["priorityClassName"] = priority
        return {
            "name": name,
            "template": {"metadata": {"labels": labels or {}}, "spec": {"template": {"spec": pod}}},
        }

    trainer = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    jobs = [job("node", labels=trainer)]
    if "mpi" in policies.get("mlPolicy", {}):
        jobs = [job("launcher", labels=trainer), job("node")]
    spec = {"template": {"spec": {"replicatedJobs": jobs}}, **policies}
    return TrainingRuntime.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})


async def job_set_of(client: LiveClient, namespace: str, run: Run, name: str, **policies: Any) -> None:
    """Make a TrainJob of a runtime with these policies, and return once it has its JobSet."""
    await run.ready()
    await client.create(runtime(namespace, name, **policies))
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": name}, "suspend": True}
    await client.create(
        TrainJob.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    )
    await eventually(
        lambda: client.get(JobSet, (namespace, name)), timeout=20, reason=f"{name} has its JobSet"
    )


async def start(client: LiveClient, namespace: str, run: Run) -> None:
    """Nothing but starting: caches, lease, certificates."""


async def torch(client: LiveClient, namespace: str, run: Run) -> None:
    """A JobSet is created and follows its TrainJob; a condition reports its state, an event a failure."""
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
    await client.create(JobSet.from_dict(taken))  # so each attempt to create ours fails and is reported
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}}
    await client.create(
        TrainJob.from_dict({"metadata": {"name": "taken", "namespace": namespace}, "spec": spec})
    )


async def rebuild(client: LiveClient, namespace: str, run: Run) -> None:
    """A suspended TrainJob is edited in what a JobSet with Jobs cannot follow."""
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
    """A ClusterTrainingRuntime in use is kept from being deleted."""
    await run.ready()
    made = runtime(namespace, f"torch-{namespace}"[:60].strip("-")).to_dict()
    await client.create(
        ClusterTrainingRuntime.from_dict(
            {"metadata": {"name": made["metadata"]["name"]}, "spec": made["spec"]}
        )
    )
    spec = {"runtimeRef": {"name": made["metadata"]["name"]}, "suspend": True}
    await client.create(TrainJob.from_dict({"metadata": {"name": "c", "namespace": namespace}, "spec": spec}))


async def mpi(client: LiveClient, namespace: str, run: Run) -> None:
    await job_set_of(client, namespace, run, "mpi", mlPolicy={"mpi": {"runLauncherAsNode": True}})


async def coscheduling(client: LiveClient, namespace: str, run: Run) -> None:
    await job_set_of(client, namespace, run, "gang", podGroupPolicy={"coscheduling": {}})


async def volcano(client: LiveClient, namespace: str, run: Run) -> None:
    """A gang with a priority, which admission looks for."""
    await run.ready()
    priority = await client.create(
        PRIORITY.from_dict({"metadata": {"name": f"p-{namespace}"[:60].strip("-")}, "value": 1})
    )
    await client.create(runtime(namespace, "volcano", priority=priority.name, podGroupPolicy={"volcano": {}}))
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": "volcano"}, "suspend": True}
    await client.create(
        TrainJob.from_dict({"metadata": {"name": "volcano", "namespace": namespace}, "spec": spec})
    )


async def workload(client: LiveClient, namespace: str, run: Run) -> None:
    """A gang of Kubernetes itself, which is built again with another count."""
    await job_set_of(client, namespace, run, "native", podGroupPolicy={"workload": {}})
    job = await client.get(TrainJob, (namespace, "native"))
    await client.patch(job, raw_patch(MERGE, b'{"spec":{"trainer":{"numNodes":3}}}'))


async def status(client: LiveClient, namespace: str, run: Run) -> None:
    """A pod of a TrainJob reports its progress."""
    await job_set_of(client, namespace, run, "status")
    metadata: dict[str, Any] = {"name": "default", "namespace": namespace}
    account = await client.create(ServiceAccount.from_dict({"metadata": metadata}))
    pod_spec = {"serviceAccountName": "default", "containers": [{"name": "node", "image": "busybox"}]}
    template = {"spec": {**pod_spec, "restartPolicy": "Never"}}
    owner: Object = await client.get(JobSet, (namespace, "status"))
    for kind, name, spec in ((Job, "status-node-0", {"template": template}), (Pod, "p", pod_spec)):
        gvk, uid = type(owner).gvk, owner.metadata.uid
        named = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": owner.name, "uid": uid}
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [{**named, "controller": True}]}
        owner = await client.create(kind.from_dict({"metadata": metadata, "spec": spec}))
    bound = BoundObjectReference(kind="Pod", api_version="v1", name="p", uid=owner.metadata.uid)
    wanted = TokenRequestSpec(audiences=[token_audience(namespace, "status")], bound_object_ref=bound)
    issued = await client.subresource("token").create(account, TokenRequest(spec=wanted))
    config = rest.Config(
        host=f"https://127.0.0.1:{run.status}",
        tls=rest.TLSConfig(verify=False),
        credentials=rest.StaticToken(issued.status.token or ""),
    )
    async with rest.Transport(config) as transport:
        body = b'{"trainerStatus": {"progressPercentage": 1, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}'
        response = await transport.send(rest.Request("POST", status_url(namespace, "status"), body=body))
        assert response.status == 200, await response.read()


async def metrics(client: LiveClient, namespace: str, run: Run) -> None:
    """A client with a token reads the metrics or is refused."""
    account = await client.create(
        ServiceAccount.from_dict({"metadata": {"name": "scraper", "namespace": namespace}})
    )
    issued = await client.subresource("token").create(account, TokenRequest())

    def ask() -> int:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"https://127.0.0.1:{run.metrics}/metrics")
        request.add_header("Authorization", f"Bearer {issued.status.token}")
        try:
            with urllib.request.urlopen(request, context=trusting, timeout=15) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert await anyio.to_thread.run_sync(ask) == 403


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


def grants_to_take() -> list[tuple[str, rbac.Grant]]:
    if not os.environ.get("RBAC_EVERY_GRANT"):
        return TAKEN
    return [(name, grant) for name, wanted in USED.items() for grant in sorted(wanted)]


def test_every_grant_has_a_use_or_a_reason() -> None:
    used = set().union(*USED.values())
    assert not used & (ADMISSION | ROLLBACK)
    assert not ADMISSION & ROLLBACK
    wanted = used | ADMISSION | ROLLBACK | OTHER_RELEASES
    parts = [part for part in rbac.Part if part is not rbac.Part.POD_GROUPER]
    assert set().union(*map(rbac.collected, parts)) == wanted
    assert all(grant in USED[name] for name, grant in TAKEN)


@pytest.mark.timeout(180)
async def test_each_scenario_asks_for_what_it_is_granted_and_is_refused_nothing(
    run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under() as run:
        for name, scenario in SCENARIOS.items():
            await scenario(live_client, namespace, run)
            wanted = USED[name]

            def all_asked(wanted: set[rbac.Grant] = wanted) -> bool:
                missing = wanted - run.asked().granted
                assert not missing
                return True

            await eventually(all_asked, timeout=30, reason=name)
        asked = run.asked()
        assert not asked.refused
        known = {each for each in asked.granted if not each[1].startswith("selfsubject")}
        assert known <= set().union(*USED.values()), "asked for, and listed as unused"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "grant"), grants_to_take(), ids=lambda each: each if isinstance(each, str) else " ".join(each)
)
async def test_a_feature_is_refused_what_is_taken_away(
    name: str, grant: rbac.Grant, run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under(without={grant}) as run, anyio.create_task_group() as tasks:

        async def attempt() -> None:
            with contextlib.suppress(EventuallyError, StatusError, AssertionError):
                await SCENARIOS[name](live_client, namespace, run)

        def missed() -> bool:
            return grant in run.asked().refused

        tasks.start_soon(attempt)
        await eventually(missed, timeout=60, reason=f"{grant} is missed")
        tasks.cancel_scope.cancel()


async def test_a_child_cannot_block_its_owners_deletion_without_the_right_to_its_finalizers(
    run_under: Any, live_client: LiveClient, namespace: str
) -> None:
    async with run_under(without=ADMISSION) as run, anyio.create_task_group() as tasks:

        async def attempt() -> None:
            with contextlib.suppress(EventuallyError):
                await torch(live_client, namespace, run)

        tasks.start_soon(attempt)
        wanted = ("jobset.x-k8s.io", "jobsets", "patch")
        await eventually(lambda: wanted in run.asked().refused, timeout=60, reason="no JobSet may be made")
        tasks.cancel_scope.cancel()
