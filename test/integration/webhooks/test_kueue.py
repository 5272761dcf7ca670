# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kueue of both generations of types: TrainJobs of mixed generations lose nothing when it places and evicts them."""

import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime import webhook
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import InvalidError, StatusError
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from testkit.builders import pod_override, runtime_patch, train_job_document, written_train_job
from testkit.kueue_writes import MANAGER, POD_SET, QUEUE, ActiveError, Kueue, KueueWebhook

pytestmark = pytest.mark.integration

JOBS = 50
AT_ONCE = 5
PATH = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
Document = dict[str, Any]
Phase = Callable[[str], Any]


def of_user(name: str) -> Document:
    """Return where a user wants pods to run, with the key of Kueue's flavors."""
    return {
        "nodeSelector": {name: "yes", "flavor": name},
        "tolerations": [{"key": "flavor", "operator": "Equal", "value": name}],
    }


FIRST: Document = {
    "podTemplateOverrides": [pod_override(of_user("first"))],
    "labels": {"first": "yes"},
    "annotations": {"first": "yes"},
}
SECOND: Document = {
    "runtimePatches": [
        runtime_patch(
            "trainer.kubeflow.org/kubeflow-sdk",
            {**of_user("second"), "terminationGracePeriodSeconds": 45},
            metadata={"labels": {"second": "yes"}},
        )
    ],
    "activeDeadlineSeconds": 3600,
}
LATE = runtime_patch("example.com/late", of_user("late"))
"""A user's patch that is added to every second TrainJob after Kueue's webhook has seen it."""
KINDS: list[Document] = [
    FIRST,
    SECOND,
    {**FIRST, **SECOND},
    {"trainer": {"numProcPerNode": "auto"}, **SECOND},
    {"trainer": {"numNodes": 2}},
]


@pytest.fixture
def kueue_webhook(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str, tmp_path: Path
) -> Callable[[int], AbstractAsyncContextManager[None]]:
    """Return a function that serves Kueue's mutating webhook for the namespace's new TrainJobs, called after ours."""
    authority = trainer_control_plane.control_plane.authority
    authority.server("kueue", ["127.0.0.1", "localhost"]).write(tmp_path)

    @asynccontextmanager
    async def serve(generation: int) -> AsyncIterator[None]:
        server = webhook.Server("127.0.0.1", 0)
        server.use(webhook.CertWatcher(tmp_path / "tls.crt", tmp_path / "tls.key"))
        mutator = KueueWebhook(generation)
        server.register(PATH, webhook.MutatorHandler(TrainJob, mutator))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.start)
            await server.ready()
            url = f"https://127.0.0.1:{server.port}{PATH}"
            manifest = await live_client.create(configuration(namespace, url, authority.certificate))
            labels = {"labels": {QUEUE: "q"}}
            probe = written_train_job(namespace, "none", name="probe", kind=None, metadata=labels)

            async def asked() -> bool:
                with suppress(StatusError):  # from the webhook, because the runtime is missing
                    await live_client.create(probe, dry_run=True)
                return mutator.asked > 0

            await eventually(asked, timeout=30, reason="the API server asks Kueue's webhook")
            yield
            await live_client.delete(manifest)
            tasks.cancel_scope.cancel()

    return serve


def configuration(namespace: str, url: str, authority: bytes) -> Unstructured:
    rule = {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE"],
        "resources": ["trainjobs"],
    }
    hook = {
        "name": "mtrainjob.kb.io",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
        "rules": [rule],
        "matchConditions": [{"name": "ours", "expression": f"request.namespace == '{namespace}'"}],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "admissionReviewVersions": ["v1"],
    }
    return Unstructured.wrap(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": f"{namespace}-kueue"},
            "webhooks": [hook],
        }
    )


def users_part(train_job: Document) -> Document:
    """Return a spec without Kueue's fields and without the mirror of the user's."""
    spec: Document = json.loads(json.dumps(train_job["spec"]))
    spec.pop("suspend")
    if overrides := spec.pop("podTemplateOverrides", None):
        kept = [each for each in overrides if POD_SET not in each.get("metadata", {}).get("labels", {})]
        spec |= {"podTemplateOverrides": kept} if kept else {}
    labels = {key: value for key, value in spec.pop("labels", {}).items() if key != QUEUE}
    spec |= {"labels": labels} if labels else {}
    others = (MANAGER, *constants.FIRST_GENERATION_MANAGERS)
    patches = [each for each in spec.pop("runtimePatches", ()) if each["manager"] not in others]
    return spec | ({"runtimePatches": patches} if patches else {})


class World:
    """The TrainJobs of a namespace, their JobSets, and the statuses that JobSet's controller would write."""

    def __init__(self, client: LiveClient, namespace: str, runtime: str, jobs: int = JOBS) -> None:
        self._client = client
        self._namespace = namespace
        self._runtime = runtime
        self.names = [f"job-{number}" for number in range(jobs)]
        self._users: dict[str, Document] = {}

    async def note_users(self) -> None:
        """Note the users' part of every TrainJob, for :meth:`nothing_is_lost`."""
        self._users = {name: users_part(each) for name, each in (await self.train_jobs()).items()}

    async def nothing_is_lost(self) -> None:
        """Check that every TrainJob has the users' part that was noted."""
        found = await self.train_jobs()
        assert {name: users_part(each) for name, each in found.items()} == self._users

    async def evict_active(self, kueue: Kueue) -> None:
        """Suspend every TrainJob; its placement stays, because its jobs are active."""

        async def evict(name: str) -> None:
            with pytest.raises(ActiveError):
                await kueue.stop(name)

        await self.for_all(evict)

    async def create(self) -> None:
        for number, name in enumerate(self.names):
            labels, spec = {"labels": {QUEUE: "q"}}, KINDS[number % len(KINDS)]
            body = train_job_document(self._namespace, self._runtime, name=name, metadata=labels, **spec)
            await self._client.create(Unstructured.wrap(body))
            if number % 2:
                late = train_job_document(self._namespace, name=name)
                late["spec"] = {"runtimePatches": [LATE]}
                await self._client.apply(Unstructured.wrap(late), field_owner="late-user")

    async def train_jobs(self) -> dict[str, Document]:
        found = await self._client.list(TrainJob, namespace=self._namespace)
        return {each.name: each.to_dict() for each in found}

    async def for_all(self, step: Phase) -> None:
        """Take a step for all TrainJobs, a few at a time as Kueue does."""
        limit = anyio.CapacityLimiter(AT_ONCE)

        async def one(name: str) -> None:
            async with limit:
                await step(name)

        async with anyio.create_task_group() as tasks:
            for name in self.names:
                tasks.start_soon(one, name)

    async def built(self, flavor: str | None) -> None:
        """Wait until each JobSet holds the user's fields and Kueue's placement, or is suspended without one."""

        async def as_wanted() -> bool:
            found = {each.name: each for each in await self._client.list(JobSet, namespace=self._namespace)}
            assert found.keys() == set(self.names)
            for number, name in enumerate(self.names):
                self._check(found[name], KINDS[number % len(KINDS)], number % 2 == 1, flavor)
            return True

        await eventually(
            as_wanted, timeout=120, interval=1, reason=f"the JobSets have the placement of {flavor}"
        )

    @staticmethod
    def _check(job_set: JobSet, kind: Document, late: bool, flavor: str | None) -> None:
        (job,) = job_set.spec.replicated_jobs or []
        pod = job.template.spec.template.spec
        users = ["first"] if "labels" in kind else []
        users += ["second"] if "runtimePatches" in kind else []
        changes = [*users, *(["late"] if late else [])]
        wins = flavor or (changes[-1] if changes else None)
        selector = dict.fromkeys(changes, "yes") | ({"flavor": wins} if wins else {})
        assert (pod.node_selector or {}) == selector
        assert [each.value for each in pod.tolerations or ()] == ([wins] if wins else [])
        assert pod.termination_grace_period_seconds == (45 if "runtimePatches" in kind else None)
        assert {"first", "second"} & (job_set.labels or {}).keys() == set(users)
        assert bool(job_set.spec.suspend) is (flavor is None)

    async def report(self, active: int) -> None:
        """Write the statuses of all JobSets, and wait until the TrainJobs show them."""
        counts = {"ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}
        status = {"status": {"replicatedJobsStatus": [{"name": "node", "active": active, **counts}]}}

        async def one(name: str) -> None:
            target = JobSet.from_dict({"metadata": {"name": name, "namespace": self._namespace}})
            await self._client.status.patch(target, raw_patch(MERGE, json.dumps(status).encode()))

        async def shown() -> bool:
            found = (await self.train_jobs()).values()
            return all(each["status"]["jobsStatus"][0].get("active", 0) == active for each in found)

        await self.for_all(one)
        await eventually(shown, timeout=60, interval=1, reason="the TrainJobs show the counts of their jobs")


@pytest.mark.parametrize("generation", [1, 2])
async def test_placing_evicting_and_placing_again_loses_nothing(
    admitting_manager: Any,
    kueue_webhook: Any,
    live_client: LiveClient,
    acting_as: Any,
    namespace: str,
    torch_runtime: str,
    generation: int,
) -> None:
    sent: list[Request] = []
    async with (
        admitting_manager(sent=sent),
        kueue_webhook(generation),
        acting_as("kueue") as kueue_client,
        acting_as("Kubeflow-SDK") as sdk,
    ):
        kueue = Kueue(kueue_client, namespace, generation)
        world = World(live_client, namespace, torch_runtime)
        await World(sdk, namespace, torch_runtime).create()
        await world.note_users()
        await world.built(None)
        sent.clear()

        await world.for_all(lambda name: kueue.start(name, ["node"], "spot"))
        await world.built("spot")
        await world.nothing_is_lost()
        await world.report(active=1)

        await world.evict_active(kueue)
        await world.report(active=0)
        await world.nothing_is_lost()
        await world.for_all(kueue.stop)
        await world.built(None)
        await world.nothing_is_lost()
        for each in (await world.train_jobs()).values():
            managers = [patch["manager"] for patch in each["spec"].get("runtimePatches", ())]
            assert (MANAGER in managers) is (generation == 2)  # not added for an older release
        await world.for_all(lambda name: kueue.start(name, ["node"], "reserved"))
        await world.built("reserved")
        await world.nothing_is_lost()

    # Kueue's own: a PUT and a patch for each start, a PUT to suspend, and a patch that removes the placement.
    for method in ("PUT", "PATCH"):
        assert 0 <= kueue.writes[method] - 3 * JOBS <= kueue.writes["conflict"]
    # The manager's: two applies for each start at most, two for the eviction; one status for each change of state,
    # and a patch that removes the note of the eviction. Every second TrainJob was changed before its first start, which
    # looks like a suspension to the webhook: one note more.
    ours = [each for each in sent if namespace in each.path]
    # Before the note of a JobSet that this process has not built is removed, it is read once.
    assert sum(each.method == "GET" for each in ours) <= JOBS
    # A busy machine may be so late that an event says so.
    writes = [each for each in ours if each.method != "GET" and not each.path.endswith("/events")]
    counts = Counter(each.path.removesuffix("/status").rsplit("/", 2)[-2] for each in writes)
    assert counts.keys() == {"jobsets", "trainjobs"}
    assert counts["jobsets"] <= 6 * JOBS
    assert counts["trainjobs"] <= 6 * JOBS + JOBS // 2


async def test_a_train_job_gets_its_mirror_although_kueue_chooses_its_queue(
    admitting_manager: Any, kueue_webhook: Any, acting_as: Any, namespace: str, torch_runtime: str
) -> None:
    """Our webhook sees the label of the queue only when the API server calls it again."""
    body = train_job_document(namespace, torch_runtime, **FIRST)
    async with admitting_manager(), kueue_webhook(2), acting_as("Kubeflow-SDK") as sdk:
        made = (await sdk.create(Unstructured.wrap(body))).to_dict()
    assert made["metadata"]["labels"][QUEUE] == "default"
    mirror, kueues = [each["manager"] for each in made["spec"]["runtimePatches"]]
    assert mirror in constants.FIRST_GENERATION_MANAGERS
    assert kueues == MANAGER


@pytest.mark.parametrize("before", [1, 2])
async def test_a_kueue_of_another_release_evicts_what_the_one_before_it_placed(
    admitting_manager: Any,
    kueue_webhook: Any,
    live_client: LiveClient,
    acting_as: Any,
    namespace: str,
    torch_runtime: str,
    before: int,
) -> None:
    """The PUTs of the other release drop fields of the users and of the placement that it does not know."""
    after = 3 - before
    async with admitting_manager(), acting_as("kueue") as kueue_client, acting_as("Kubeflow-SDK") as sdk:
        world = World(live_client, namespace, torch_runtime, len(KINDS))
        async with kueue_webhook(before):
            await World(sdk, namespace, torch_runtime, len(KINDS)).create()
        await world.note_users()
        kueue = Kueue(kueue_client, namespace, before)
        await world.for_all(lambda name: kueue.start(name, ["node"], "spot"))
        await world.built("spot")

        await world.report(active=1)

        kueue = Kueue(kueue_client, namespace, after)

        await world.evict_active(kueue)
        await world.nothing_is_lost()
        await world.report(active=0)
        await world.for_all(kueue.stop)
        await world.nothing_is_lost()
        if after == 2:  # an older one removes the entry of a newer one with the PUT that places the TrainJob
            await world.built(None)
        await world.for_all(lambda name: kueue.start(name, ["node"], "reserved"))
        await world.nothing_is_lost()
        await world.built("reserved")


async def test_a_newer_kueue_places_a_train_job_that_waited_for_the_older_one_once_it_has_an_entry(
    admitting_manager: Any,
    kueue_webhook: Any,
    live_client: LiveClient,
    acting_as: Any,
    namespace: str,
    torch_runtime: str,
) -> None:
    entry = runtime_patch(MANAGER, spec={})
    async with admitting_manager(), acting_as("kueue") as kueue_client, acting_as("Kubeflow-SDK") as sdk:
        world = World(live_client, namespace, torch_runtime, len(KINDS))
        async with kueue_webhook(1):
            await World(sdk, namespace, torch_runtime, len(KINDS)).create()
        await world.note_users()
        kueue = Kueue(kueue_client, namespace, 2)
        with pytest.raises(LookupError, match="kueue runtime patch not found"):
            await kueue.start(world.names[0], ["node"], "spot")

        for name in world.names:  # the command in docs/migration.md
            target: Document = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
            target["metadata"] = {"name": name, "namespace": namespace}
            target["spec"] = {"runtimePatches": [entry]}
            await live_client.apply(Unstructured.wrap(target), field_owner="kueue-upgrade")
        await world.for_all(lambda name: kueue.start(name, ["node"], "spot"))
        await world.built("spot")
        await world.nothing_is_lost()


@pytest.mark.parametrize(("generation", "version"), [(1, "2.1"), (2, "2.3")])
async def test_a_train_job_that_gets_more_nodes_between_two_placements_starts_with_all_of_them(
    admitting_manager: Any,
    kueue_webhook: Any,
    live_client: LiveClient,
    acting_as: Any,
    namespace: str,
    torch_runtime: str,
    generation: int,
    version: str,
) -> None:
    """Kueue counts pods from numNodes of the TrainJob, so the JobSet must have the same number."""
    key = (namespace, "job")

    async def resize(nodes: int) -> None:
        body = json.dumps({"spec": {"trainer": {"numNodes": nodes}}}).encode()
        await live_client.patch(await live_client.get(TrainJob, key), raw_patch(MERGE, body))

    async def pods(count: int, suspended: bool) -> None:
        async def as_many() -> bool:
            job_set = await live_client.get(JobSet, key)
            (job,) = job_set.spec.replicated_jobs or []
            counts = job.template.spec.parallelism, job.template.spec.completions
            return counts == (count, count) and bool(job_set.spec.suspend) is suspended

        await eventually(as_many, timeout=60, reason=f"the JobSet has {count} pods")

    async def collected() -> bool:
        """Act as the garbage collector if the JobSet is being deleted."""
        job_set = await live_client.get(JobSet, key)
        if job_set.metadata.deletion_timestamp is None:
            return False
        body = b'{"metadata": {"finalizers": null}}'
        await live_client.patch(job_set, raw_patch(MERGE, body))
        return True

    gates = "--feature-gates=MutableNumNodes=true,ExecutionAttempts=true"
    async with (
        admitting_manager(gates, version=version),
        kueue_webhook(generation),
        acting_as("kueue") as kueue_client,
    ):
        kueue = Kueue(kueue_client, namespace, generation)
        world = World(live_client, namespace, torch_runtime, 1)
        world.names = ["job"]
        labels = {"labels": {QUEUE: "q"}}
        made = written_train_job(
            namespace, torch_runtime, kind=None, metadata=labels, trainer={"numNodes": 2}
        )
        await live_client.create(made)
        await pods(2, suspended=True)
        await resize(4)
        await pods(4, suspended=True)
        await kueue.start("job", ["node"], "spot")
        await pods(4, suspended=False)
        await world.report(active=1)
        await world.evict_active(kueue)
        if version == "2.3":
            with pytest.raises(InvalidError, match="immutable"):
                await resize(3)
        await world.report(active=0)
        await kueue.stop("job")
        await resize(3)
        await eventually(collected, timeout=60, reason="the JobSet is deleted, because its size is fixed")
        await pods(3, suspended=True)
        await kueue.start("job", ["node"], "reserved")
        await pods(3, suspended=False)
        job_set = await live_client.get(JobSet, key)
        assert (job_set.annotations or {})[constants.STARTS_ANNOTATION] == "2"
