# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Short scripts without faults, which find lost wake-ups: after each event, its result must exist within ten seconds.

Every timer by which a manager recovers from a lost event is longer. Before each event, the scripts wait until nothing
happens any more and until the next retry of a TrainJob that cannot proceed is minutes away. Nothing else but the event
can therefore cause the result.

Some scripts bring a TrainJob into a rare state, in which a manager must do nothing, or must do it later.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import anyio
import msgspec
import yaml
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Event, LimitRange, Pod, Secret
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.machinery.meta import format_time
from controller_runtime.simtest import MANAGER, Simulation, miss_changes

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.scheduling import v1beta1
from pkg.apis.trainer.v1alpha1 import (
    TRAIN_JOB_GANG_UNAVAILABLE,
    ClusterTrainingRuntime,
    TrainingRuntime,
    TrainJob,
)
from pkg.apis.volcano import v1beta1 as volcano
from pkg.constants import trainer as constants
from testkit.sim import runtimes
from testkit.sim.cluster import HELD
from testkit.sim.managers import renew
from testkit.sim.objects import by_name, is_deleted, is_overdue, is_suspended, is_true, owned
from testkit.sim.trainers import Trainers, authority, install_authority

Document = dict[str, Any]
SOON: Final = 10.0
"""Seconds within which a result must exist."""
_INSTALLED: Final = 45.0
"""Seconds within which an installed kind must be used.

A manager looks for a missing kind every 10 to 12 seconds, and retries a TrainJob that needs it every 30 seconds.
"""
_ARRIVED: Final = 15.0
"""Seconds within which a manager uses a kind that arrives for the first time: it looks for the kind, and then wakes all
TrainJobs that wait for it.
"""
_RETRIES: Final = 30.0
"""A TrainJob that needs a missing kind is retried at this interval."""
_STEP: Final = 0.25
_QUIET: Final = 20.0
"""After so many seconds, everything that an action causes has happened."""
_LONG: Final = 200.0
"""After so many seconds of failures, the next retry is minutes away."""
_MODELS: Final = 60.0
"""Seconds within which the models of other controllers react."""
_TO_LIVE: Final = 240
"""The time to live of a finished TrainJob in seconds: its end is announced a minute before."""
DEFAULT_TTL: Final = 400
"""The time to live of finished TrainJobs for which neither they nor their runtimes set one, in seconds."""
_UNOBSERVED: Final = 10.0
"""The age in seconds at which a JobSet without a status has no Jobs."""
_TAKEN: Final = 60.0
"""A TrainJob is retried at this interval while an object of another purpose has the name of a child."""
_UNWATCHED: Final = 10.0
"""Seconds after which a broken watch of failed pods starts again."""
_STARTED: Final = 60.0
"""A TrainJob that has not started after so many seconds is reported."""
_RECORDED: Final = 5
"""The number of different failures of a JobSet's run that are recorded."""
VOLCANO: Final = "podgroups.scheduling.volcano.sh"
"""A kind that the server must not serve before the scripts begin."""
_GANGS: Final = {"podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"}
_TRAIN_JOBS: Final = "trainjobs.trainer.kubeflow.org"
_NO_OWNERS: Final[Document] = {"metadata": {"ownerReferences": None}}
_NO_FINALIZERS: Final = raw_patch(MERGE, b'{"metadata":{"finalizers":null}}')


async def within(sim: Simulation, found: Callable[[], object], event: str, seconds: float = SOON) -> None:
    """Return when ``found`` returns a true value.

    Raises:
        AssertionError: this takes longer than ``seconds``, or a rule was broken.
    """
    until = sim.loop.time() + seconds
    while not found():
        assert sim.loop.time() < until, f"nothing follows an event within {seconds:.0f} s: {event}"
        await anyio.sleep(_STEP)
    if sim.failures:
        raise sim.failures[0]


class Wakeups:
    """The scripts for one simulated cluster. Each script has a TrainJob of its own."""

    def __init__(self, sim: Simulation, trainers: Trainers | None = None) -> None:
        self._sim = sim
        self._trainers = trainers
        self._rng = random.Random(f"{sim.seed}/wakeups")
        self._made = 0

    # What scripts consist of.

    async def _within(self, found: Callable[[], object], event: str, seconds: float = SOON) -> None:
        await within(self._sim, found, event, seconds)

    async def _quiet(self, seconds: float = _QUIET) -> None:
        """Wait for ``seconds`` and a random time, so that the timers of managers are at different points."""
        await anyio.sleep(seconds + self._rng.uniform(0.0, 30.0))

    async def _runtime(
        self,
        name: str,
        kind: type[Object] = ClusterTrainingRuntime,
        *,
        pod: Document | None = None,
        **spec: Any,
    ) -> str:
        """Create a runtime whose pods do not end, like the runtime ``name`` of all simulations; return its name.

        ``pod`` is added to the specs of its pods.
        """
        self._made += 1
        copy: Document = msgspec.json.decode(msgspec.json.encode(runtimes.SPECS[name]))
        for job in copy["template"]["spec"]["replicatedJobs"]:
            template = job["template"]["spec"]["template"]
            template["metadata"] = {"annotations": {HELD: "1h"}}
            template["spec"] |= pod or {}
        metadata = {"name": f"{name}-{self._made}"}
        if kind is TrainingRuntime:
            metadata["namespace"] = "default"
        made: Object = kind.from_dict({"metadata": metadata, "spec": copy | spec})
        await self._sim.client("admin").create(made)
        await anyio.sleep(1.0)
        return made.name

    async def _create(
        self,
        runtime: str,
        kind: type[Object] = ClusterTrainingRuntime,
        *,
        suspend: bool = True,
        quiet: bool = True,
        name: str = "",
        **spec: Any,
    ) -> Document:
        """Create a TrainJob; with ``quiet``, wait until nothing happens any more. Without ``name``, the name is new."""
        self._made += 1
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": kind.gvk.kind, "name": runtime}
        managed = {"managedBy": "trainer.kubeflow.org/trainjob-controller"}
        whole = {"runtimeRef": reference, "suspend": suspend, "trainer": {"image": "i"}, **managed, **spec}
        metadata = {"namespace": "default", "name": name or f"job-{self._made}"}
        job = {"metadata": metadata, "spec": whole}
        made = await self._sim.client().create(TrainJob.from_dict(job))
        if quiet:
            await self._quiet()
        return made.to_dict()

    async def _patch(
        self, kind: type[Object], document: Document, change: Document, user: str = "user"
    ) -> None:
        body = raw_patch(MERGE, msgspec.json.encode(change))
        await self._sim.client(user).patch(kind.from_dict(document), body)

    def _now(self, job: Document) -> Document:
        """Return the stored TrainJob."""
        found = by_name(self._sim, TrainJob, job)
        assert found is not None
        return found

    def _child(self, kind: type[Object], job: Document) -> Document | None:
        """Return the only object of a kind that a TrainJob controls and that is not being deleted, or None."""
        found = [each for each in owned(self._sim, kind, job) if not is_deleted(each)]
        return found[0] if len(found) == 1 else None

    def _has(self, kind: type[Object], job: Document) -> Callable[[], bool]:
        return lambda: self._child(kind, job) is not None

    async def _deleted(self, kind: type[Object], job: Document) -> None:
        """Delete a TrainJob's child of a kind, and wait until it is gone: another child must exist soon."""
        child = self._child(kind, job)
        assert child is not None, f"there is no {kind.gvk.kind} of {job['metadata']['name']}"
        uid = child["metadata"]["uid"]
        await self._sim.client().delete(kind.from_dict(child), propagation="Foreground")

        def is_gone() -> bool:
            self._sim.server.collect_garbage()
            return self._sim.server.with_uid(kind, uid) is None

        await self._within(is_gone, "the deletion of a child, by the garbage collector", _MODELS)
        await self._within(self._has(kind, job), f"the deletion of a {kind.gvk.kind}")

    def _withdraw(self, *resources: str) -> None:
        """Stop serving the kinds with these resources, as ``RESOURCE.GROUP``, to managers, and end their watches."""
        self._sim.server.missing |= {*resources}
        self._sim.server.watches.cut(lambda watch: str(watch.table.resource.group_resource) in resources)

    # JobSets.

    async def end(self) -> None:
        """Let the JobSet of a TrainJob complete."""
        await self._completed(await self._runtime("plain"))

    async def _completed(
        self, runtime: str, kind: type[Object] = ClusterTrainingRuntime, **spec: Any
    ) -> Document:
        """Create a TrainJob, and let its JobSet complete."""
        job = await self._create(runtime, kind, suspend=False, **spec)
        for pod in self._pods(job):
            await self._patch_status(pod, {"phase": "Succeeded"})
        await self._within(
            lambda: any(is_true(each, "Completed") for each in owned(self._sim, JobSet, job)),
            "the end of the pods, by the models",
            _MODELS,
        )
        await self._within(lambda: is_true(self._now(job), "Complete"), "the completion of a JobSet")
        return job

    async def count(self) -> None:
        """Let the pods of a TrainJob start."""
        job = await self._create(await self._runtime("plain"))
        await self._patch(TrainJob, job, {"spec": {"suspend": False}})

        def counts() -> list[Document]:
            return [
                each
                for job_set in owned(self._sim, JobSet, job)
                for each in job_set.get("status", {}).get("replicatedJobsStatus") or ()
            ]

        await self._within(
            lambda: any(each["active"] for each in counts()), "a resume, by the models", _MODELS
        )
        await self._within(
            lambda: self._now(job)["status"].get("jobsStatus") == counts(), "a change of a JobSet's status"
        )

    async def suspend_child(self) -> None:
        """Suspend the JobSet of a running TrainJob."""
        job = await self._create(await self._runtime("plain"), suspend=False)
        child = self._child(JobSet, job)
        assert child is not None
        await self._patch(JobSet, child, {"spec": {"suspend": True}})
        await self._within(
            lambda: not is_suspended(self._child(JobSet, job) or {"spec": {"suspend": True}}),
            "a change of a JobSet's spec",
        )

    async def delete_job_set(self) -> None:
        """Delete the JobSet of a suspended TrainJob."""
        await self._deleted(JobSet, await self._create(await self._runtime("plain")))

    async def edit_unobserved(self) -> None:
        """Change a suspended TrainJob whose JobSet is new, and whose JobSet controller does not work.

        The JobSet is built again only when no Job can be under way any more, and no event reports that.
        """
        status = ("jobset-controller", "update", "jobsets.jobset.x-k8s.io")
        self._sim.server.denied.add(status)
        job = await self._create(await self._runtime("plain"), quiet=False)
        await self._within(self._has(JobSet, job), "the creation of a TrainJob")
        await self._patch(TrainJob, job, {"spec": {"trainer": {"image": "other"}}})
        await self._within(partial(self._mentions, job, "other"), "the age of a JobSet", _UNOBSERVED + SOON)
        self._sim.server.denied.discard(status)

    async def free_name(self) -> None:
        """Delete a JobSet of another purpose that has had a TrainJob's name for minutes."""
        runtime, name = await self._runtime("plain"), f"job-{self._made + 1}"
        other = JobSet.from_dict(
            {"metadata": {"namespace": "default", "name": name}, "spec": {"suspend": True}}
        )
        await self._sim.client().create(other)
        job = await self._create(runtime)
        assert job["metadata"]["name"] == name
        await self._quiet(_LONG)
        await self._sim.client().delete(other)
        await self._within(self._has(JobSet, job), "the deletion of a JobSet whose name a TrainJob needs")

    async def free_sibling_name(self) -> None:
        """Delete a ConfigMap of another purpose that has had the name of a JobSet's sibling for minutes."""
        runtime, name = await self._runtime("mpi"), f"job-{self._made + 1}"
        metadata = {"namespace": "default", "name": f"{name}-mpi-hostfile"}
        other = ConfigMap.from_dict({"metadata": metadata, "data": {"hostfile": "other"}})
        await self._sim.client().create(other)
        job = await self._create(runtime)
        assert job["metadata"]["name"] == name
        await self._quiet(_LONG)
        await self._sim.client().delete(other)
        await self._within(
            self._has(ConfigMap, job),
            "the deletion of a ConfigMap whose name a TrainJob needs",
            _TAKEN + SOON,
        )

    async def orphan(self) -> None:
        """Remove the owner of the JobSet of a suspended TrainJob: the TrainJob must adopt it."""
        job = await self._create(await self._runtime("plain"))
        child = self._child(JobSet, job)
        assert child is not None
        await self._patch(JobSet, child, _NO_OWNERS)
        await self._within(self._has(JobSet, job), "the loss of a JobSet's owner")

    async def end_as_orphan(self) -> None:
        """Let a JobSet complete that has no owner and another spec than its TrainJob: the TrainJob must not follow."""
        job = await self._create(await self._runtime("plain"), suspend=False)
        child, pods = self._child(JobSet, job), self._pods(job)
        assert child is not None
        await self._patch(TrainJob, job, {"spec": {"trainer": {"image": "other"}}})
        await self._quiet()
        await self._patch(JobSet, child, _NO_OWNERS)
        for pod in pods:
            await self._patch_status(pod, {"phase": "Succeeded"})

        def has_completed() -> bool:
            return is_true(by_name(self._sim, JobSet, child) or {}, "Completed")

        await self._within(has_completed, "the end of the pods, by the models", _MODELS)
        await self._touch(job)
        assert not is_true(self._now(job), "Complete"), "a TrainJob follows a JobSet that it does not control"

    async def end_in_time(self) -> None:
        """Let a JobSet complete before the deadline, and let the manager write the status after the deadline."""
        runtime, seconds = await self._runtime("plain"), 120
        ends = self._sim.loop.time() + seconds
        job = await self._create(runtime, suspend=False, quiet=False, activeDeadlineSeconds=seconds)
        await anyio.sleep(30.0)
        with self._denied(_TRAIN_JOBS):
            for pod in self._pods(job):
                await self._patch_status(pod, {"phase": "Succeeded"})
            await anyio.sleep(ends + SOON - self._sim.loop.time())
        await self._within(lambda: is_true(self._now(job), "Complete"), "the end of a TrainJob", _LONG)
        await self._quiet()
        assert self._child(JobSet, job) is not None, "the JobSet of a TrainJob that ended in time is deleted"

    async def take_name_of_ended(self) -> None:
        """Create a JobSet of another purpose in the place of that of a TrainJob that has ended.

        The status of the TrainJob must stay.
        """
        job = await self._completed(await self._runtime("plain"))
        child, counts = self._child(JobSet, job), self._now(job)["status"]["jobsStatus"]
        assert child is not None
        await self._sim.client().delete(JobSet.from_dict(child), propagation="Foreground")
        await self._within(
            lambda: by_name(self._sim, JobSet, child) is None, "a deletion, by the garbage collector", _MODELS
        )
        jobs = [{"name": "other", "template": {"spec": each["template"]["spec"]}} for each in _jobs_of(child)]
        spec = {"suspend": True, "replicatedJobs": jobs}
        metadata = {"namespace": "default", "name": child["metadata"]["name"]}
        other = await self._sim.client().create(JobSet.from_dict({"metadata": metadata, "spec": spec}))
        await self._quiet()
        await self._touch(job)
        assert self._now(job)["status"]["jobsStatus"] == counts, (
            "a TrainJob follows a JobSet of another purpose"
        )
        await self._sim.client().delete(other)

    async def _touch(self, job: Document) -> None:
        """Change a TrainJob in a way that does not affect its children, and wait until nothing happens any more."""
        await self._patch(TrainJob, job, {"metadata": {"annotations": {"example.com/touched": "yes"}}})
        await self._quiet()

    # TrainJobs.

    async def relabel_unled(self) -> None:
        """Remove a label of a suspended TrainJob while no manager leads: the next leader must remove it, too."""
        job = await self._create(await self._runtime("plain"), labels={"team": "a"})
        assert self._labels(job) == {"team": "a"}
        for name in [name for name, manager in self._sim.managers.items() if manager.elected.is_set()]:
            self._sim.kill(name)
        await self._patch(TrainJob, job, {"spec": {"labels": None}})
        await self._within(lambda: not self._labels(job), "a change while no manager leads", _LONG)

    def _labels(self, job: Document) -> Document:
        """Return the labels of the JobSet of a TrainJob."""
        return (self._child(JobSet, job) or {"metadata": {}})["metadata"].get("labels") or {}

    async def resume(self) -> None:
        """Resume a TrainJob, suspend it, and resume it again."""
        job = await self._create(await self._runtime("plain"))
        for suspend in (False, True, False):
            await self._patch(TrainJob, job, {"spec": {"suspend": suspend}})
            await self._within(
                partial(self._is_followed, job, suspend), f"a change of a TrainJob: suspend is {suspend}"
            )
            await self._quiet(_MODELS)
            noted = self._now(job)["metadata"].get("annotations") or {}
            assert constants.SUSPENDED_ANNOTATION not in noted, "a suspension is noted after its end"

    def _is_followed(self, job: Document, suspend: bool) -> bool:
        sets = owned(self._sim, JobSet, job)
        return [is_suspended(each) for each in sets] == [suspend] == [is_true(self._now(job), "Suspended")]

    async def start_late(self) -> None:
        """Let a TrainJob not start, and then another one of its name: each has a minute, until an event reports it.

        The manager does not see that there is no TrainJob of this name for a moment.
        """
        status = ("jobset-controller", "update", "jobsets.jobset.x-k8s.io")
        self._sim.server.denied.add(status)
        runtime = await self._runtime("plain")
        first = await self._create(runtime, suspend=False, quiet=False)
        await anyio.sleep(_STARTED - 2 * SOON)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(miss_changes, self._sim, 1.0)
            await anyio.sleep(0.1)
            await self._sim.client().delete(TrainJob.from_dict(first), propagation="Background")
            job = await self._create(runtime, suspend=False, quiet=False, name=first["metadata"]["name"])
        await anyio.sleep(_STARTED - SOON)
        reason = "TrainJobNotStarted"
        assert not self._events(job, reason), "a TrainJob that has not started is reported too early"
        await self._within(lambda: self._events(job, reason), "the time of a TrainJob to start", 2 * SOON)
        self._sim.server.denied.discard(status)

    async def expire(self) -> None:
        """Let the deadline of a TrainJob pass."""
        await self._expire(await self._runtime("plain"))

    async def expire_denied(self) -> None:
        """Let the deadline of a TrainJob pass whose JobSet may not be written: the next retry is later."""
        runtime = await self._runtime("plain")
        with self._denied():
            await self._expire(runtime, seconds=140)

    async def _expire(self, runtime: str, seconds: int = 90) -> None:
        ends = self._sim.loop.time() + seconds
        job = await self._create(runtime, suspend=False, activeDeadlineSeconds=seconds)
        await anyio.sleep(ends - 5.0 - self._sim.loop.time())
        assert not is_true(self._now(job), "Failed"), "a TrainJob fails before its deadline"
        await self._within(lambda: is_true(self._now(job), "Failed"), "a deadline", 5.0 + SOON)

    async def fail_overdue(self) -> None:
        """Let a JobSet fail after the deadline, when the manager may not delete it: the reason of the failure stays."""
        runtime = await self._runtime("plain")
        with self._denied("jobsets.jobset.x-k8s.io", "delete"):
            job = await self._create(runtime, suspend=False, activeDeadlineSeconds=90)
            await self._within(lambda: is_true(self._now(job), "Failed"), "a deadline", 90.0 + SOON)
            for pod in self._pods(job):
                await self._patch_status(pod, {"phase": "Failed"})
            await self._within(
                lambda: any(is_true(each, "Failed") for each in owned(self._sim, JobSet, job)),
                "the failure of the pods, by the models",
                _MODELS,
            )
            await self._touch(job)
            assert is_overdue(self._now(job)), "a TrainJob that failed at its deadline has another reason now"
        await self._within(lambda: not owned(self._sim, JobSet, job), "a retry, by its timer", _LONG)

    @contextmanager
    def _denied(self, resource: str = "jobsets.jobset.x-k8s.io", *verbs: str) -> Iterator[None]:
        """Deny the managers' requests, by default the writes of JobSets.

        No event follows when they are permitted again.
        """
        denied = {(MANAGER, verb, resource) for verb in verbs or ("create", "update", "patch", "apply")}
        self._sim.server.denied |= denied
        yield
        self._sim.server.denied -= denied

    async def fail_again(self) -> None:
        """Deny a manager's writes for minutes; after a success, deny one more write."""
        runtime = await self._runtime("plain")
        with self._denied():
            job = await self._create(runtime)
            await self._quiet(_LONG)
            assert not owned(self._sim, JobSet, job), "a JobSet is written without permission"
        await self._patch(TrainJob, job, {"spec": {"trainer": {"image": "first"}}})
        await self._within(partial(self._mentions, job, "first"), "a change of a TrainJob")
        with self._denied():
            await self._patch(TrainJob, job, {"spec": {"trainer": {"image": "second"}}})
            await anyio.sleep(1.0)
            assert not self._mentions(job, "second"), "a JobSet is written without permission"
        await self._within(partial(self._mentions, job, "second"), "the first failure after a success")

    def _mentions(self, job: Document, text: str) -> bool:
        """Return True if the JobSet of a TrainJob contains a text."""
        return f"'{text}'" in str(self._child(JobSet, job))

    # Runtimes.

    async def edit_runtime(self) -> None:
        """Change the runtime of a suspended TrainJob."""
        for kind in (ClusterTrainingRuntime, TrainingRuntime):
            name = await self._runtime("plain", kind)
            job = await self._create(name, kind)
            found = await self._sim.client("admin").get(kind, _key(kind, name))
            document = found.to_dict()
            jobs = document["spec"]["template"]["spec"]["replicatedJobs"]
            jobs[-1]["template"]["spec"]["template"]["spec"]["containers"][0]["workingDir"] = "/new"
            await self._sim.client("admin").update(kind.from_dict(document))
            await self._within(partial(self._mentions, job, "/new"), f"a change of a {kind.gvk.kind}")

    async def install_runtime(self) -> None:
        """Install the runtime that a TrainJob has lacked for minutes."""
        for kind in (ClusterTrainingRuntime, TrainingRuntime):
            name = await self._runtime("plain", kind)
            job = await self._create(name, kind)
            found = await self._remove_runtime(kind, name)
            child = self._child(JobSet, job)
            assert child is not None
            await self._sim.client().delete(JobSet.from_dict(child), propagation="Foreground")
            await self._quiet(_LONG)
            assert not owned(self._sim, JobSet, job)
            await self._install_runtime(found)
            await self._within(self._has(JobSet, job), f"the arrival of a {kind.gvk.kind}")
            await self._within(
                partial(self._has_finalizers, found, [constants.RESOURCE_IN_USE_FINALIZER]),
                f"the arrival of a {kind.gvk.kind} that is in use",
            )

    async def _remove_runtime(self, kind: type[Object], name: str) -> Object:
        """Delete a runtime by force, and return it."""
        admin = self._sim.client("admin")
        found = await admin.get(kind, _key(kind, name))
        await admin.delete(found)
        await admin.patch(found, _NO_FINALIZERS)
        return found

    async def _install_runtime(self, removed: Object, **spec: Any) -> None:
        """Install a removed runtime again; ``spec`` is added to its spec."""
        document = removed.to_dict()
        metadata = {key: document["metadata"].get(key) for key in ("name", "namespace")}
        whole = {"metadata": metadata, "spec": {**document["spec"], **spec}}
        await self._sim.client("admin").create(type(removed).from_dict(whole))

    async def protect_runtime(self) -> None:
        """Refer to a runtime, delete the runtime, and then delete the TrainJob."""
        for kind in (ClusterTrainingRuntime, TrainingRuntime):
            name = await self._runtime("plain", kind)
            wanted = kind.from_dict({"metadata": _metadata(kind, name)})

            assert self._finalizers(wanted) == []
            job = await self._create(name, kind, quiet=False)
            held = [constants.RESOURCE_IN_USE_FINALIZER]
            await self._within(
                partial(self._has_finalizers, wanted, held), f"the first reference to a {kind.gvk.kind}"
            )
            await self._quiet()
            await self._sim.client("admin").delete(wanted)
            await self._quiet()
            assert self._finalizers(wanted) == held
            await self._sim.client().delete(TrainJob.from_dict(job), propagation="Background")
            await self._within(
                partial(self._has_finalizers, wanted, None), f"the last reference to a {kind.gvk.kind}"
            )

    async def release_runtime(self) -> None:
        """Delete a runtime to which no TrainJob refers any more."""
        for kind in (ClusterTrainingRuntime, TrainingRuntime):
            name = await self._runtime("plain", kind)
            job = await self._create(name, kind)
            await self._sim.client().delete(TrainJob.from_dict(job), propagation="Background")
            await self._quiet()
            runtime = kind.from_dict({"metadata": _metadata(kind, name)})
            assert self._finalizers(runtime) == [constants.RESOURCE_IN_USE_FINALIZER]
            await self._sim.client("admin").delete(runtime)
            await self._within(
                partial(self._has_finalizers, runtime, None), f"the deletion of an unused {kind.gvk.kind}"
            )

    def _finalizers(self, runtime: Object) -> list[str] | None:
        """Return the finalizers of a runtime, or None if it does not exist."""
        found = by_name(self._sim, type(runtime), runtime.to_dict())
        return None if found is None else found["metadata"].get("finalizers") or []

    def _has_finalizers(self, runtime: Object, wanted: list[str] | None) -> bool:
        return self._finalizers(runtime) == wanted

    # Siblings of JobSets.

    async def delete_siblings(self) -> None:
        """Delete the siblings of a suspended JobSet, one after the other."""
        kinds: dict[str, Sequence[type[Object]]] = {
            "gang": [PodGroup],
            "mpi": [ConfigMap, Secret],
            "volcano": [volcano.PodGroup],
            "flux": [ConfigMap, Secret],
        }
        policies: Document = {
            "volcano": {"podGroupPolicy": {"volcano": {}}},
            "flux": {"mlPolicy": {"numNodes": 1, "flux": {}}},
        }
        # Two plugins watch the same kinds, so only the first of them shows whether its own watch begins.
        for runtime, siblings in sorted(kinds.items(), reverse=bool(self._sim.seed % 2)):
            own = policies.get(runtime)
            name = await (self._runtime("plain", **own) if own else self._runtime(runtime))
            job = await self._create(name)
            for kind in siblings:
                await self._deleted(kind, job)
                await self._quiet()

    async def edit_siblings(self) -> None:
        """Change the siblings of a suspended JobSet."""
        changes: dict[str, tuple[type[Object], Document]] = {
            "gang": (PodGroup, {"spec": {"minMember": 77}}),
            "mpi": (ConfigMap, {"data": {"hostfile": "nowhere"}}),
        }
        for runtime, (kind, change) in changes.items():
            job = await self._create(await self._runtime(runtime))
            child = self._child(kind, job)
            assert child is not None
            ((part, values),) = change.items()
            await self._patch(kind, child, change)
            await self._within(
                partial(self._differs, kind, job, part, values), f"a change of a {kind.gvk.kind}"
            )

    def _differs(self, kind: type[Object], job: Document, part: str, values: Document) -> bool:
        child = self._child(kind, job)
        return child is not None and not values.items() <= child[part].items()

    async def change_limits(self) -> None:
        """Create, change and delete the objects that determine the resources of pods.

        Each time, a suspended gang has failed for minutes for another reason, which is gone now.
        """
        runtime = await self._runtime("gang", pod={"runtimeClassName": "sandbox"})
        limits = LimitRange.from_dict(
            {"metadata": {"namespace": "default", "name": "limits"}, "spec": {"limits": []}}
        )
        sandbox = RuntimeClass.from_dict({"metadata": {"name": "sandbox"}, "handler": "sandbox"})
        for wanted in (limits, sandbox):
            kind, admin = type(wanted), self._sim.client("admin")
            labelled = raw_patch(MERGE, b'{"metadata":{"labels":{"changed":"yes"}}}')
            acts: dict[str, Callable[[], Awaitable[object]]] = {
                "creation": partial(admin.create, wanted),
                "change": partial(admin.patch, wanted, labelled),
                "deletion": partial(admin.delete, wanted),
            }
            for change, act in acts.items():
                with self._denied():
                    job = await self._create(runtime)
                    await self._quiet(_LONG)
                    assert not owned(self._sim, JobSet, job), "a JobSet is written without permission"
                await act()
                await self._within(self._has(JobSet, job), f"the {change} of a {kind.gvk.kind}")

    # Kinds that are not always served.

    async def install_volcano(self) -> None:
        """Install Volcano, which the cluster has never had, while TrainJobs have waited for it for minutes.

        Their retries are spread evenly, so at least half of them have no retry before the result must exist.
        """
        runtime = await self._runtime("plain", podGroupPolicy={"volcano": {}})
        jobs = []
        for _ in range(6):
            jobs.append(await self._create(runtime, quiet=False))
            await anyio.sleep(_RETRIES / 6)
        await self._quiet(_LONG)
        assert not any(owned(self._sim, JobSet, job) for job in jobs)
        self._sim.server.missing.discard(VOLCANO)
        await anyio.sleep(_ARRIVED)
        for job in jobs:
            await self._within(self._has(volcano.PodGroup, job), "the arrival of Volcano", 0.0)

    async def install_job_set(self) -> None:
        """Install JobSet while a TrainJob has waited for it for minutes."""
        await self._install("plain", "jobsets.jobset.x-k8s.io", JobSet)

    async def install_pod_group(self) -> None:
        """Install the scheduler plugins while a TrainJob has waited for them for minutes."""
        await self._install("gang", "podgroups.scheduling.x-k8s.io", PodGroup)

    async def _install(self, runtime: str, resource: str, kind: type[Object]) -> None:
        name = await self._runtime(runtime)
        before = await self._create(name)  # from now on, the kind is watched
        self._withdraw(resource)
        await self._quiet(120.0)
        job = await self._create(name)
        await self._quiet(_LONG)
        assert not owned(self._sim, kind, job)
        self._sim.server.missing.clear()
        for each in (before, job):
            await self._within(
                self._has(kind, each), f"the installation of {kind.gvk.group_kind}", _INSTALLED
            )
        await self._within(self._has(JobSet, job), f"the installation of {kind.gvk.group_kind}", _INSTALLED)

    async def native_gang(self) -> None:
        """Delete a gang of a suspended JobSet; then let the server stop serving gangs, and serve them again.

        A TrainJob that runs is not affected.
        """
        runtime = await self._runtime("plain", podGroupPolicy={"workload": {}})
        running = await self._create(runtime, suspend=False)
        job = await self._create(runtime)
        await self._deleted(v1beta1.PodGroup, job)
        await self._quiet()
        self._withdraw(*_GANGS)
        await self._quiet(120.0)
        await self._touch(running)
        assert not is_true(self._now(running), TRAIN_JOB_GANG_UNAVAILABLE), (
            "a TrainJob that runs lacks its gang"
        )
        late = await self._create(runtime, suspend=False)
        await self._quiet(_LONG)
        assert not owned(self._sim, JobSet, late)
        self._sim.server.missing.clear()
        await self._within(self._has(JobSet, late), "the arrival of the gang API", _INSTALLED)

    # Pods.

    async def fail(self) -> None:
        """Let a container of a TrainJob fail."""
        job = await self._create(await self._runtime("plain"), suspend=False)
        await self._fail(job)
        await self._within(partial(self._is_explained, job), "the failure of a pod")

    async def fail_in_many_ways(self) -> None:
        """Let many containers of a TrainJob fail: the first failures are recorded, and no others."""
        job = await self._create(await self._runtime("plain"), suspend=False)
        await self._fail(job, *(f"c{number}" for number in range(_RECORDED + 2)))
        await self._quiet()
        recorded = len(self._events(job, "ContainerFailed"))
        assert recorded == _RECORDED, f"{recorded} failures of a TrainJob are recorded, not {_RECORDED}"

    async def fail_unseen(self) -> None:
        """Let a TrainJob fail while the managers may not watch pods, and then permit it."""
        job = await self._create(await self._runtime("plain"), suspend=False)
        with self._denied("pods", "list", "watch"):
            pods = self._sim.server.table(Pod)
            self._sim.server.watches.cut(lambda watch: watch.table is pods)
            await anyio.sleep(1.0)
            await self._fail(job)
            await self._within(
                lambda: is_true(self._now(job), "Failed"), "the failure of a pod, by the models", _MODELS
            )
            assert not self._is_explained(job)
        await self._within(
            partial(self._is_explained, job), "the failure of a pod that is listed later", _UNWATCHED + SOON
        )

    async def _fail(self, job: Document, *containers: str) -> None:
        """Let containers of a TrainJob fail, by default the trainer."""
        ended = {"exitCode": 3, "reason": "Error", "finishedAt": format_time(datetime.now(UTC))}
        unready = {"image": "i", "imageID": "", "ready": False, "restartCount": 0}
        statuses = [
            {"name": name, **unready, "state": {"terminated": ended}} for name in containers or ["node"]
        ]
        await self._patch_status(self._pods(job)[0], {"phase": "Failed", "containerStatuses": statuses})

    def _is_explained(self, job: Document) -> bool:
        """Return True if an event of a TrainJob says which container failed."""
        return bool(self._events(job, "ContainerFailed"))

    def _events(self, job: Document, reason: str) -> list[Document]:
        """Return the events of a TrainJob with a reason."""
        uid = job["metadata"]["uid"]
        events = self._sim.server.objects(Event)
        return [
            each for each in events if (each["involvedObject"].get("uid"), each["reason"]) == (uid, reason)
        ]

    def _pods(self, job: Document) -> list[Document]:
        """Return the pods of a TrainJob's JobSet."""
        jobs = [each for job_set in owned(self._sim, JobSet, job) for each in owned(self._sim, Job, job_set)]
        pods = [pod for each in jobs for pod in owned(self._sim, Pod, each)]
        assert pods, f"no pods of {job['metadata']['name']}"
        return pods

    async def _patch_status(self, pod: Document, status: Document) -> None:
        body = raw_patch(MERGE, msgspec.json.encode({"status": status}))
        await self._sim.client("kubelet").status.patch(Pod.from_dict(pod), body)

    # Snapshots of runtimes, in the second generation.

    async def delete_snapshot(self) -> None:
        """Delete the snapshot of a suspended TrainJob."""
        await self._deleted(ConfigMap, await self._create(await self._runtime("plain")))

    async def edit_snapshot(self) -> None:
        """Change the snapshot of a suspended TrainJob."""
        job = await self._create(await self._runtime("plain"))
        snapshot = self._child(ConfigMap, job)
        assert snapshot is not None
        runtime = yaml.safe_load(snapshot["data"]["runtime"])
        jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        jobs[-1]["template"]["spec"]["template"]["spec"]["containers"][0]["workingDir"] = "/new"
        await self._patch(ConfigMap, snapshot, {"data": {"runtime": yaml.safe_dump(runtime)}})
        await self._within(partial(self._mentions, job, "/new"), "a change of a snapshot")

    # The certificate authority of the status server, and the time to live, behind feature gates.

    async def report(self) -> None:
        """Let the pods of TrainJobs report progress, also for other TrainJobs and after the deletion of their own.

        Reports that failed must not stand in the way of later ones.
        """
        admin, trainers = self._sim.client("admin"), self._trainers
        assert trainers is not None
        await install_authority(self._sim)
        runtime = await self._runtime("plain")
        job, other = [await self._create(runtime, suspend=False) for _ in range(2)]
        (pod, *_), (stranger, *_) = self._pods(job), self._pods(other)
        for _ in range(3):
            assert await trainers.report(pod, job, self._rng) == HTTPStatus.OK
            assert await trainers.report(stranger, job, self._rng) == HTTPStatus.FORBIDDEN
            await self._quiet()
        assert self._now(job)["status"]["jobsStatus"], "a report replaced the rest of the status"
        with self._denied(_TRAIN_JOBS):
            for _ in range(6):
                code = await trainers.report(pod, job, self._rng)
                assert code == HTTPStatus.INTERNAL_SERVER_ERROR, (
                    f"a report without permission has the code {code}"
                )
        for _ in range(4):
            assert await trainers.report(pod, job, self._rng) == HTTPStatus.OK, "a report is refused"
        await self._sim.client().delete(TrainJob.from_dict(job), propagation="Background")
        await self._quiet()
        assert await trainers.report(pod, job, self._rng) == HTTPStatus.FORBIDDEN
        await admin.delete(authority())

    def _has_authority(self, job: Document, text: str) -> Callable[[], bool]:
        return lambda: (self._child(ConfigMap, job) or {}).get("data") == {"ca.crt": text}

    async def renew_authority(self) -> None:
        """Create, change and create again the Secret with the certificate authority, and delete a TrainJob's copy."""
        admin, runtime = self._sim.client("admin"), await self._runtime("plain")
        job = await self._create(runtime)
        await self._quiet(_LONG)
        for text in ("first", "second", "third"):
            secret = authority(text)
            if text == "second":
                await self._patch(Secret, secret.to_dict(), {"data": secret.data}, "admin")
            else:
                await admin.create(secret)
            await self._within(self._has_authority(job, text), f"the {text} certificate authority")
            await self._quiet()
            if text == "second":
                await admin.delete(secret)
                await self._quiet()
        await self._deleted(ConfigMap, job)

    async def expire_finished(self) -> None:
        """Let finished TrainJobs live for their own time, and for a time that their runtime gets later.

        While the runtime is missing, the default of the managers does not apply.
        """
        for kind in (ClusterTrainingRuntime, TrainingRuntime):
            name = await self._runtime("plain", kind)
            job = await self._completed(name, kind, ttlSecondsAfterFinished=_TO_LIVE)
            ends = self._sim.loop.time() + _TO_LIVE
            other = await self._completed(name, kind)
            await anyio.sleep(ends - 2 * SOON - self._sim.loop.time())
            assert not self._is_gone(job)
            await self._within(partial(self._is_gone, job), "the end of a TrainJob's time to live", 3 * SOON)
            runtime = kind.from_dict({"metadata": _metadata(kind, name)})
            policy = {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 20}}}
            await self._patch(kind, runtime.to_dict(), policy, "admin")
            await self._within(partial(self._is_gone, other), f"a new time to live of a {kind.gvk.kind}")
            late = await self._runtime("plain", kind)
            last = await self._completed(late, kind)
            removed = await self._remove_runtime(kind, late)
            await self._quiet(DEFAULT_TTL + SOON)
            assert not self._is_gone(last), "a TrainJob is deleted although its runtime is missing"
            await self._install_runtime(removed, **policy["spec"])
            await self._within(partial(self._is_gone, last), f"a {kind.gvk.kind} with a time to live")

    def _is_gone(self, job: Document) -> bool:
        found = by_name(self._sim, TrainJob, job)
        return found is None or is_deleted(found)


SCRIPTS: Final = (
    Wakeups.install_volcano,
    Wakeups.end,
    Wakeups.count,
    Wakeups.suspend_child,
    Wakeups.delete_job_set,
    Wakeups.edit_unobserved,
    Wakeups.free_name,
    Wakeups.orphan,
    Wakeups.end_as_orphan,
    Wakeups.end_in_time,
    Wakeups.take_name_of_ended,
    Wakeups.relabel_unled,
    Wakeups.resume,
    Wakeups.start_late,
    Wakeups.expire,
    Wakeups.expire_denied,
    Wakeups.fail_overdue,
    Wakeups.fail_again,
    Wakeups.edit_runtime,
    Wakeups.install_runtime,
    Wakeups.protect_runtime,
    Wakeups.release_runtime,
    Wakeups.delete_siblings,
    Wakeups.edit_siblings,
    Wakeups.free_sibling_name,
    Wakeups.change_limits,
    Wakeups.install_job_set,
    Wakeups.install_pod_group,
    Wakeups.native_gang,
    Wakeups.fail,
    Wakeups.fail_in_many_ways,
    Wakeups.fail_unseen,
)


def _jobs_of(job_set: Document) -> list[Document]:
    found: list[Document] = job_set["spec"]["replicatedJobs"]
    return found


def _metadata(kind: type[Object], name: str) -> Document:
    return {"name": name} | ({"namespace": "default"} if kind is TrainingRuntime else {})


def _key(kind: type[Object], name: str) -> tuple[str, str]:
    return ("default" if kind is TrainingRuntime else "", name)


SECOND: Final = (Wakeups.delete_snapshot, Wakeups.edit_snapshot, Wakeups.resume)
"""The scripts for managers of the second generation."""
GATED: Final = (Wakeups.report, Wakeups.renew_authority, Wakeups.expire_finished)
"""The scripts for managers with the feature gates TrainJobStatus and TTLAfterFinished."""


async def play(
    sim: Simulation,
    scripts: Sequence[Callable[[Wakeups], Awaitable[None]]] = SCRIPTS,
    trainers: Trainers | None = None,
) -> None:
    """Play scripts, one after the other."""
    wakeups = Wakeups(sim, trainers)
    for script in scripts:
        sim.record("wakeups", script.__name__)
        await script(wakeups)
        await renew(sim, after=_QUIET)
