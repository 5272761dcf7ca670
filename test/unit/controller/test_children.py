# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob's JobSet and its siblings through edits, suspensions and restarts, with the real plugins.

The API server is in memory. Where a test says so, it refuses and defaults as JobSet's webhooks do, and keeps a
deleted JobSet until ``collect`` removes it with its Jobs, as the garbage collector does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, ResourceRequirements, Secret
from controller_runtime.apis.machinery.errors import ConflictError, ForbiddenError, NotFoundError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client.fake import Call, FakeClient
from controller_runtime.reconcile import Request, Result

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoPodGroup
from pkg.controller import TrainJobReconciler
from pkg.runtime import core
from pkg.util.trainjob import ChildConflictError

T = TypeVar("T", bound=Object)
KEY = Request("ns", "job")
START = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
IMMUTABLE = 'admission webhook "vjobset.kb.io" denied the request: spec.replicatedJobs: Invalid value: []: field is immutable'


def scheduling_removed(spec: dict[str, Any]) -> Any:
    jobs = copy.deepcopy(spec.get("replicatedJobs") or [])
    for job in jobs:
        pod = job["template"]["spec"]["template"]
        for field in ("labels", "annotations"):
            pod.get("metadata", {}).pop(field, None)
        for field in ("nodeSelector", "tolerations", "schedulingGates"):
            pod.get("spec", {}).pop(field, None)
    return jobs


class Server(FakeClient):
    """An API server with, or without, JobSet's webhooks, JobSet's controller and a garbage collector."""

    webhook = True
    role_may_delete = True

    def __init__(self, *objects: Object, now: Callable[[], datetime]) -> None:
        super().__init__(*objects, now=now)
        self.mutate: Callable[[dict[str, Any], bool], None] = lambda _spec, _create: None

    async def apply(self, obj: T, **options: Any) -> T:
        live = self._stored(obj)
        if isinstance(obj, JobSet):
            obj = self._admitted(obj, live)
        if live is not None and isinstance(obj, JobSet) and self.webhook:
            preview = await self.quietly(super().apply, obj, options | {"dry_run": True})
            before, after = live["spec"], preview.to_dict()["spec"]
            mutable = before.get("suspend") or after.get("suspend")
            strip: Callable[[Any], Any] = (
                scheduling_removed if mutable else lambda spec: spec["replicatedJobs"]
            )
            if strip(before) != strip(after):
                self._log("apply", type(obj), obj.key, obj.to_dict(), options={"refused": True, **options})
                raise ForbiddenError(IMMUTABLE, code=403, reason="Forbidden")
        return await super().apply(obj, **options)

    def _stored(self, obj: Object) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = self._table(type(obj)).find(obj.key).document
        except NotFoundError:
            return None
        return document

    def _admitted(self, obj: Any, live: dict[str, Any] | None) -> Any:
        """Default as the webhook and the CRD do."""
        wire = obj.to_dict()
        spec = wire["spec"]
        if self.webhook:
            spec.setdefault("network", {}).setdefault("enableDNSHostnames", True)
            spec["network"].setdefault("publishNotReadyAddresses", True)
            spec.setdefault("successPolicy", {"operator": "All"})
            spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
        for job in spec["replicatedJobs"]:
            job.setdefault("groupName", "default")
            job.setdefault("replicas", 1)
            if self.webhook:
                job["template"]["spec"].setdefault("completionMode", "Indexed")
                job["template"]["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
        self.mutate(spec, live is None)
        return JobSet.from_dict(wire)

    async def delete(self, obj: Object, **options: Any) -> None:
        if not isinstance(obj, JobSet) or options.get("propagation") != "Foreground":
            return await super().delete(obj, **options)
        if not self.role_may_delete:
            self._log("delete", type(obj), obj.key)
            raise ForbiddenError("jobsets is forbidden: cannot delete", code=403, reason="Forbidden")
        self._log("delete", JobSet, obj.key)
        await self.quietly(super().delete, obj, options | {"dry_run": True})
        held = (await self.get(JobSet, obj.key)).deep_copy()
        held.metadata.finalizers = ["foregroundDeletion"]
        await self.quietly(super().delete, await self.quietly(self.update, held))
        return None

    async def quietly(self, call: Callable[..., Any], obj: Object, options: Any = None) -> Any:
        """Make a call that is not counted as the manager's."""
        before = len(self.calls)
        made = await call(obj, **(options or {}))
        del self.calls[before:]
        return made

    async def observe(self, **counts: int) -> None:
        """Count the Jobs in the status, as JobSet's controller does."""
        job_set = await self.get(JobSet, KEY)
        jobs = [
            {
                "name": job.name,
                **dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0),
                **counts,
            }
            for job in job_set.spec.replicated_jobs or ()
        ]
        job_set.status = job_set.status.from_dict({"restarts": 0, "replicatedJobsStatus": jobs})
        await self.status.update(job_set)

    async def collect(self) -> None:
        """Remove the deleted JobSet, as the garbage collector does once its Jobs are gone."""
        job_set = await self.get(JobSet, KEY)
        assert job_set.metadata.deletion_timestamp
        job_set.metadata.finalizers = []
        self.memory._drop(self._table(JobSet), KEY, job_set.to_dict())


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        del obj
        self.events.append(f"{event_type} {reason}: {message}")


class World:
    """A reconciler with the real plugins over a Server."""

    def __init__(self, *objects: Object) -> None:
        self.now = START
        self.server = Server(*objects, now=lambda: self.now)
        self.recorder = Recorder()
        self.result = Result()

    async def restart(self) -> None:
        """Replace the process: nothing is remembered."""
        runtimes = await core.new(self.server, FakeClient())
        self.reconciler = TrainJobReconciler(self.server, self.recorder, runtimes, now=lambda: self.now)

    async def reconcile(self) -> list[str]:
        """Reconcile once; return what was written to children, dry runs and refusals named."""
        before = len(self.server.calls)
        self.result = await self.reconciler.reconcile(KEY)
        return [
            written(call) for call in self.server.calls[before:] if call.is_write and call.subresource == ""
        ]

    async def train_job(self, change: Callable[[TrainJob], None]) -> None:
        job = await self.server.get(TrainJob, KEY)
        change(job)
        await self.server.update(job)

    async def suspend(self, suspend: bool) -> None:
        await self.train_job(lambda job: setattr(job.spec, "suspend", suspend))

    async def edit_image(self, image: str = "two") -> None:
        await self.train_job(lambda job: setattr(job.spec.trainer, "image", image))

    async def edit_nodes(self, nodes: int) -> None:
        await self.train_job(lambda job: setattr(job.spec.trainer, "num_nodes", nodes))

    async def job_set(self) -> dict[str, Any]:
        return (await self.server.get(JobSet, KEY)).to_dict()

    async def pod(self) -> dict[str, Any]:
        spec: dict[str, Any] = (await self.job_set())["spec"]["replicatedJobs"][-1]["template"]["spec"][
            "template"
        ]["spec"]
        return spec

    async def image(self) -> str:
        return str((await self.pod())["containers"][0]["image"])

    async def rebuilt(self) -> list[str]:
        """Let the garbage collector work, and reconcile."""
        await self.server.collect()
        return await self.reconcile()


def written(call: Call) -> str:
    how = " dry run" if call.options.get("dry_run") else " refused" if call.options.get("refused") else ""
    return f"{call.verb} {call.kind.kind}{how}"


def runtime(*jobs: str, **spec: Any) -> ClusterTrainingRuntime:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    resources = {"requests": {"cpu": "1"}}
    replicated = [
        {
            "name": name,
            "template": {
                "metadata": {"labels": labels} if name in ("node", "launcher") and name == jobs[0] else {},
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "node", "image": "base", "resources": resources}]}
                    }
                },
            },
        }
        for name in jobs
    ]
    template = {"spec": {"replicatedJobs": replicated}}
    return ClusterTrainingRuntime.from_dict(
        {"metadata": {"name": "rt"}, "spec": {"template": template, **spec}}
    )


PLAIN = {"mlPolicy": {"numNodes": 2}}
GANG = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 9}}}
VOLCANO = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"volcano": {}}}


def train_job(**spec: Any) -> TrainJob:
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "rt"}
    trainer = {"image": "one", "numNodes": 2}
    return TrainJob.from_dict(
        {
            "metadata": {"name": "job", "namespace": "ns", "uid": "uid-job"},
            "spec": {"runtimeRef": ref, "trainer": trainer, "suspend": False, **spec},
        }
    )


async def world(policy: dict[str, Any] = PLAIN, *objects: Object, webhook: bool = True, **spec: Any) -> World:
    jobs = ("launcher", "node") if "mpi" in policy.get("mlPolicy", {}) else ("node",)
    made = World(runtime(*jobs, **policy), train_job(**spec), *objects)
    made.server.webhook = webhook
    await made.restart()
    return made


async def suspended_world(policy: dict[str, Any] = PLAIN, *, webhook: bool = True, **spec: Any) -> World:
    """Return a world whose suspended TrainJob has its children, known to JobSet's controller."""
    w = await world(policy, webhook=webhook, suspend=True, **spec)
    await w.reconcile()
    await w.server.observe(suspended=1)
    assert await w.reconcile() == []
    return w


def never_runs(w: World, image: str) -> None:
    """Require that no request asked for a JobSet of this image to run."""
    for call in w.server.calls:
        if call.kind == JobSet.gvk and call.verb == "apply" and call.body["spec"].get("suspend") is False:
            assert f"'image': '{image}'" not in str(call.body)


# Edits of a suspended TrainJob.


@pytest.mark.parametrize("webhook", [True, False], ids=["webhook", "no webhook"])
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
async def test_an_edit_of_a_suspended_train_job_takes_effect(webhook: bool, restart: bool) -> None:
    w = await suspended_world(webhook=webhook)
    uid = (await w.job_set())["metadata"]["uid"]
    await w.edit_image()
    if restart:
        await w.restart()
    assert await w.reconcile() == [
        "apply JobSet dry run",
        "delete JobSet",
    ]
    assert "is built again" in w.recorder.events[-1]
    assert await w.reconcile() == []  # it waits until the Jobs are gone
    assert w.result.requeue_after
    assert await w.rebuilt() == ["apply JobSet"]
    made = await w.job_set()
    assert made["metadata"]["uid"] != uid
    assert made["spec"]["suspend"] is True
    assert await w.image() == "two"
    assert await w.reconcile() == []
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False
    assert await w.image() == "two"
    never_runs(w, "one")


async def test_an_edit_and_a_resumption_in_one_update_never_start_the_old_spec() -> None:
    w = await suspended_world(GANG)
    await w.edit_nodes(5)
    await w.edit_image()
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2
    assert await w.rebuilt() == ["apply PodGroup", "apply JobSet"]
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 5
    assert (await w.job_set())["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 5
    never_runs(w, "one")
    assert await w.reconcile() == []


async def test_a_deletion_names_the_version_that_was_judged() -> None:
    w = await suspended_world()
    await w.edit_image()
    metadata = (await w.job_set())["metadata"]
    seen: list[Any] = []
    delete = w.server.delete

    async def remembered(obj: Object, **options: Any) -> None:
        seen.append(options)
        await delete(obj, **options)

    w.server.delete = remembered  # type: ignore[method-assign] # to see the options
    await w.reconcile()
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert seen == [{"propagation": "Foreground", "preconditions": wanted}]


async def test_before_the_first_look_of_jobsets_controller_a_job_set_follows_in_place() -> None:
    w = await world(webhook=False, suspend=True)
    await w.reconcile()
    uid = (await w.job_set())["metadata"]["uid"]
    await w.edit_image()
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert (await w.job_set())["metadata"]["uid"] == uid
    assert await w.image() == "two"


async def test_a_job_set_that_no_controller_observed_follows_soon_after_it_is_suspended() -> None:
    w = await world(webhook=False)
    await w.reconcile()
    await w.edit_image()
    await w.suspend(True)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert await w.image() == "one"
    assert w.result.requeue_after == timedelta(seconds=1)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert await w.image() == "two"


async def test_a_young_job_set_whose_jobs_may_be_under_way_is_not_deleted_yet() -> None:
    w = await world(suspend=True)
    await w.reconcile()
    await w.edit_image()
    assert await w.reconcile() == ["apply JobSet dry run"]
    assert w.result.requeue_after == timedelta(seconds=1)
    w.now += timedelta(seconds=11)
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]


async def test_where_deleting_is_not_allowed_the_refusal_is_reported_and_nothing_changes() -> None:
    w = await suspended_world(GANG)
    w.server.role_may_delete = False
    before = await w.job_set(), await w.server.get(PodGroup, KEY)
    await w.edit_nodes(5)
    await w.suspend(False)
    for _ in range(2):
        with pytest.raises(ForbiddenError, match="field is immutable"):
            await w.reconcile()
    assert (await w.job_set(), await w.server.get(PodGroup, KEY)) == before
    assert w.recorder.events[-1].startswith(
        "Warning TrainJobResourcesCreationFailed: TrainJob resources reconciliation failed: admission webhook"
    )


async def test_a_refusal_for_another_reason_deletes_nothing() -> None:
    w = await suspended_world(GANG)
    await w.edit_nodes(5)

    async def denied(*_: Any, **__: Any) -> Any:
        raise ForbiddenError("the team's policy says no", code=403, reason="Forbidden")

    w.server.apply = denied  # type: ignore[method-assign] # one call fails
    with pytest.raises(ForbiddenError, match="policy says no"):
        await w.reconcile()
    assert (await w.job_set())["metadata"].get("deletionTimestamp") is None
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2


async def test_what_the_job_no_longer_requests_goes_away_even_if_no_manager_ran_then() -> None:
    env = [{"name": "KEEP", "value": "1"}, {"name": "GO", "value": "1"}]
    w = await suspended_world(trainer={"image": "one", "env": env, "numNodes": 2})
    only_one = TrainJob.from_dict({"spec": {"trainer": {"image": "one", "env": env[:1], "numNodes": 2}}})
    await w.train_job(lambda job: setattr(job.spec, "trainer", only_one.spec.trainer))
    await w.restart()
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    await w.rebuilt()
    assert (await w.pod())["containers"][0]["env"] == [{"name": "KEEP", "value": "1"}]


async def test_a_refusal_that_no_comparison_foresaw_leads_to_a_new_job_set() -> None:
    w = await suspended_world()
    apply = w.server.apply

    async def strict(obj: Any, **options: Any) -> Any:
        if isinstance(obj, JobSet) and obj.metadata.uid:
            raise ForbiddenError(IMMUTABLE, code=403, reason="Forbidden")
        return await apply(obj, **options)

    w.server.apply = strict  # type: ignore[method-assign] # a stricter server
    await w.suspend(False)
    assert await w.reconcile() == ["delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


# What changes in place.


def override(**spec: Any) -> list[dict[str, Any]]:
    return [{"targetJobs": [{"name": "node"}], "spec": spec}]


async def test_kueues_way_changes_the_job_set_in_place() -> None:
    w = await suspended_world()
    uid = (await w.job_set())["metadata"]["uid"]

    async def set_overrides(**spec: Any) -> None:
        wanted = TrainJob.from_dict({"spec": {"podTemplateOverrides": override(**spec) if spec else None}})
        await w.train_job(
            lambda job: setattr(job.spec, "pod_template_overrides", wanted.spec.pod_template_overrides)
        )

    for pool in ("a", "b"):
        await set_overrides(nodeSelector={"pool": pool}, tolerations=[{"key": pool, "operator": "Exists"}])
        await w.suspend(False)
        assert await w.reconcile() == ["apply JobSet"]
        assert (await w.pod())["nodeSelector"] == {"pool": pool}
        assert (await w.job_set())["spec"]["suspend"] is False
        await w.server.observe(active=1)
        await w.suspend(True)
        assert await w.reconcile() == ["apply JobSet"]
        await w.server.observe(suspended=1)
        await set_overrides()
        assert await w.reconcile() == ["apply JobSet"]
        assert "nodeSelector" not in await w.pod()
        assert await w.reconcile() == []
    assert (await w.job_set())["metadata"]["uid"] == uid


async def test_what_others_write_on_the_job_set_stays() -> None:
    w = await suspended_world()
    live = await w.server.get(JobSet, KEY)
    live.metadata.labels = {"kueue.x-k8s.io/queue-name": "q"}
    live.metadata.annotations = {"theirs": "1"}
    await w.server.update(live, field_owner="kueue")
    assert await w.reconcile() == []
    await w.restart()
    await w.reconcile()
    await w.suspend(False)
    await w.reconcile()
    metadata = (await w.job_set())["metadata"]
    assert metadata["labels"] == {"kueue.x-k8s.io/queue-name": "q"}
    assert metadata["annotations"] == {"theirs": "1"}


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
async def test_drift_of_a_suspended_job_set_is_undone(restart: bool) -> None:
    w = await suspended_world(labels={"team": "ours"})
    live = await w.server.get(JobSet, KEY)
    live.metadata.labels = {"team": "theirs"}
    live.spec.suspend = False
    await w.server.update(live, field_owner="admin")
    if restart:
        await w.restart()
    assert await w.reconcile() == ["apply JobSet"]
    made = await w.job_set()
    assert made["metadata"]["labels"] == {"team": "ours"}
    assert made["spec"]["suspend"] is True


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
@pytest.mark.parametrize("policy", [GANG, VOLCANO], ids=["coscheduling", "volcano"])
async def test_what_runs_stays_as_it_is_whatever_is_edited(policy: dict[str, Any], restart: bool) -> None:
    w = await world(policy, annotations={"ours": "1"})
    await w.reconcile()
    await w.server.observe(active=1)
    kind: type[Any] = PodGroup if policy is GANG else VolcanoPodGroup
    live, group = await w.server.get(JobSet, KEY), await w.server.get(kind, KEY)
    live.metadata.annotations = {"ours": "2"}
    await w.server.update(live, field_owner="admin")
    group.spec.min_member = 1
    await w.server.update(group, field_owner="admin")
    await w.edit_image()
    await w.edit_nodes(7)
    if restart:
        await w.restart()
    assert await w.reconcile() == []
    assert await w.image() == "one"
    assert (await w.job_set())["metadata"]["annotations"] == {"ours": "2"}
    assert (await w.server.get(kind, KEY)).spec.min_member == 1


async def test_empty_maps_of_resources_are_sent_as_the_train_job_has_them() -> None:
    w = await world()
    empty = ResourceRequirements(limits={}, requests={})
    await w.train_job(lambda job: setattr(job.spec.trainer, "resources_per_node", empty))
    await w.reconcile()
    assert (await w.pod())["containers"][0]["resources"] == {"limits": {}, "requests": {}}


async def test_an_empty_map_of_the_pod_template_is_sent_as_it_lives() -> None:
    w = await world(labels={"a": "1"})
    await w.reconcile()
    live = await w.job_set()
    live["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {}
    await w.server.update(JobSet.from_dict(live))
    await w.server.observe(active=1)
    await w.edit_image()
    await w.suspend(True)
    await w.reconcile()
    assert (await w.job_set())["spec"] == {**live["spec"], "suspend": True}


# Suspending what was edited.


async def test_an_edited_running_job_is_suspended_as_it_is_and_built_again_once_it_has_stopped() -> None:
    w = await world(GANG)
    await w.reconcile()
    await w.server.observe(active=1)
    before = (await w.job_set())["spec"]
    await w.edit_image()
    await w.edit_nodes(5)
    await w.suspend(True)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert (await w.job_set())["spec"] == {**before, "suspend": True}
    assert await w.reconcile() == ["apply JobSet dry run"]
    assert (
        w.recorder.events[-1]
        == "Normal JobSetRecreating: Waiting until the Jobs of JobSet ns/job have stopped"
    )
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 2
    await w.server.observe(suspended=1)
    assert await w.reconcile() == ["apply JobSet dry run", "delete JobSet"]
    assert await w.rebuilt() == ["apply JobSet", "apply PodGroup"]
    assert await w.image() == "two"
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 5


# Servers that change what they are sent.


async def test_a_restart_asks_nothing_about_a_job_set_that_holds_defaults() -> None:
    w = await suspended_world(GANG)
    for _ in range(2):
        await w.restart()
        assert await w.reconcile() == []


async def test_a_webhook_that_suspends_what_is_created_does_not_keep_it_suspended() -> None:
    w = await world()
    w.server.mutate = lambda spec, create: spec.update(suspend=True) if create else None
    assert await w.reconcile() == ["apply JobSet", "apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_field_that_the_server_drops_neither_deletes_nor_repeats() -> None:
    w = await world(suspend=True)

    def prune(spec: dict[str, Any], _create: bool) -> None:
        for job in spec["replicatedJobs"]:
            job["template"]["spec"]["template"]["spec"]["containers"][0].pop("image")

    w.server.mutate = prune
    await w.reconcile()
    await w.server.observe(suspended=1)
    assert await w.reconcile() == []
    await w.restart()
    assert await w.reconcile() == ["apply JobSet dry run"]
    assert await w.reconcile() == []
    await w.suspend(False)
    assert await w.reconcile() == ["apply JobSet dry run", "apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False


async def test_a_webhook_that_changes_what_is_created_does_not_cause_a_cycle_of_deletions() -> None:
    w = await suspended_world()

    def mirror(spec: dict[str, Any], create: bool) -> None:
        if create:
            container = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
            container["image"] = "mirror/" + container["image"]

    w.server.mutate = mirror
    await w.edit_image()
    deleted = 0
    for _ in range(6):
        try:
            calls = await w.reconcile()
        except ForbiddenError as error:
            assert "immutable" in str(error)  # noqa: PT017 # it repeats until the webhook is changed
            await w.server.observe(suspended=1)
            continue
        deleted += calls.count("delete JobSet")
        if "delete JobSet" in calls:
            await w.server.collect()
    assert deleted == 1
    assert any("immutable" in event for event in w.recorder.events)


async def test_a_job_set_deleted_in_the_middle_is_tried_again_without_a_warning() -> None:
    w = await suspended_world()
    apply = w.server.apply

    async def late(obj: Any, **_: Any) -> Any:
        await FakeClient.delete(w.server, obj)
        raise ConflictError("Precondition failed: UID in precondition: a, UID in object meta: ", code=409)

    w.server.apply = late  # type: ignore[method-assign] # the deletion comes first
    await w.suspend(False)
    await w.reconcile()
    assert w.result.requeue_after
    assert w.recorder.events == []
    w.server.apply = apply  # type: ignore[method-assign] # no more deletions
    assert await w.reconcile() == ["apply JobSet"]


# MPI.

MPI = {"mlPolicy": {"numNodes": 2, "mpi": {}}}


async def hosts(w: World) -> int:
    found = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    return len((found.data or {})["hostfile"].splitlines())


async def test_the_host_file_agrees_with_the_job_set() -> None:
    w = await suspended_world(MPI)
    await w.edit_nodes(4)
    await w.reconcile()
    assert await hosts(w) == 2
    await w.rebuilt()
    assert await hosts(w) == 4
    await w.suspend(False)
    await w.reconcile()
    await w.edit_nodes(6)  # of a running TrainJob
    assert await w.reconcile() == []
    await w.restart()
    assert await w.reconcile() == []
    assert await hosts(w) == 4


async def test_a_running_jobs_host_file_is_restored() -> None:
    w = await world(MPI)
    await w.reconcile()
    found = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    found.data = {"hostfile": "none"}
    await w.server.update(found)
    await w.restart()
    assert await w.reconcile() == ["apply ConfigMap"]
    assert await hosts(w) == 2


# Objects that are not ours.


def planted(kind: type[Object], name: str, **parts: Any) -> Object:
    return kind.from_dict({"metadata": {"name": name, "namespace": "ns", "uid": "u"}, **parts})


@pytest.mark.parametrize(
    ("policy", "stranger"),
    [
        (PLAIN, planted(JobSet, "job", spec={"replicatedJobs": [{"name": "x", "template": {}}]})),
        (MPI, planted(ConfigMap, "job-mpi-hostfile", data={"hostfile": "evil"})),
        (MPI, planted(Secret, "job-mpi-ssh-auth", data={"ssh-privatekey": "eA=="})),
        (GANG, planted(PodGroup, "job", spec={"minMember": 1})),
        (VOLCANO, planted(VolcanoPodGroup, "job", spec={"minMember": 1})),
    ],
    ids=lambda value: value.gvk.kind if isinstance(value, Object) else "",
)
@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_an_object_without_our_controller_is_neither_used_nor_changed(
    policy: dict[str, Any], stranger: Object, suspend: bool
) -> None:
    w = await world(policy, stranger, suspend=suspend)
    before = await w.server.get(type(stranger), stranger.key)
    with pytest.raises((ChildConflictError, ExceptionGroup)):
        await w.reconcile()
    assert await w.server.get(type(stranger), stranger.key) == before
    assert "exists and has no controller" in w.recorder.events[0]
    if not isinstance(stranger, JobSet) and not suspend:
        with pytest.raises(NotFoundError):
            await w.job_set()


async def orphaned(w: World) -> None:
    """Delete the TrainJob and orphan its JobSet; create it again."""
    job, live = await w.server.get(TrainJob, KEY), await w.server.get(JobSet, KEY)
    live.metadata.owner_references = None
    await w.server.update(live)
    await w.server.delete(job)
    again = train_job(suspend=job.spec.suspend)
    again.metadata.uid = "uid-again"
    w.server.add(again)


@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_an_orphan_of_ours_is_adopted(suspend: bool) -> None:
    w = await world(suspend=suspend)
    await w.reconcile()
    await w.server.observe(active=1)
    await orphaned(w)
    uid = (await w.job_set())["metadata"]["uid"]
    assert (await w.reconcile())[0] == "patch JobSet"
    metadata = (await w.job_set())["metadata"]
    assert metadata["uid"] == uid
    assert metadata["ownerReferences"][0]["uid"] == "uid-again"
    assert (await w.server.get(TrainJob, KEY)).status.jobs_status
    assert await w.reconcile() == []


async def test_an_orphan_is_not_adopted_for_a_train_job_whose_deletion_the_cache_does_not_know() -> None:
    w = await world()
    await w.reconcile()
    await orphaned(w)
    deleted = (await w.server.get(TrainJob, KEY)).deep_copy()
    deleted.metadata.deletion_timestamp = "2025-01-01T00:00:00Z"
    runtimes = await core.new(w.server, FakeClient())
    w.reconciler = TrainJobReconciler(
        w.server, w.recorder, runtimes, reader=FakeClient(deleted), now=lambda: w.now
    )
    assert await w.reconcile() == []
    assert w.result.requeue_after
    assert "ownerReferences" not in (await w.job_set())["metadata"]


async def test_a_running_orphan_with_another_spec_is_not_adopted_and_gives_no_verdict() -> None:
    w = await world()
    await w.reconcile()
    await w.server.observe(active=1)
    await orphaned(w)
    await w.edit_image()
    with pytest.raises(ChildConflictError):
        await w.reconcile()
    assert "ownerReferences" not in (await w.job_set())["metadata"]
    assert (await w.server.get(TrainJob, KEY)).status.jobs_status is None


# A namespace that is being terminated.


async def test_a_terminating_namespace_is_not_asked_again_at_once_and_causes_no_warning() -> None:
    w = await world(MPI)
    refused = 0

    async def terminating(*_: Any, **__: Any) -> Any:
        nonlocal refused
        refused += 1
        details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
        raise ForbiddenError("unable to create new content", code=403, reason="Forbidden", details=details)

    w.server.apply = terminating  # type: ignore[method-assign] # the server says no
    for _ in range(30):  # woken by everything that goes
        await w.reconcile()
        assert w.result.requeue_after == timedelta(seconds=60)
        w.now += timedelta(seconds=2)
    assert refused == 1
    w.now += timedelta(seconds=2)
    await w.reconcile()
    assert refused == 2
    assert w.recorder.events == []
