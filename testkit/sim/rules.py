# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules that every change of an object must follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.machinery import Object
from controller_runtime.simtest import Event, Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TRAIN_JOB_DEADLINE_EXCEEDED_REASON as DEADLINE_EXCEEDED
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.kueue import flavor_of, placed_at
from testkit.sim.objects import by_uid, controller, is_deleted, is_overdue, is_suspended, is_true
from testkit.sim.spechistory import SpecHistory, place_of, runtime_of
from testkit.sim.users import AUDITED, UNKNOWN
from testkit.sim.webhook import PURPOSE

Document = dict[str, Any]
_STALEST = 90.0
"""Seconds for which a manager may not know of a change: no fault lasts longer."""
_RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
_OTHERS = "kueue.x-k8s.io/multikueue"
_HOST_FILE = "-mpi-hostfile"
_SIBLINGS: dict[str, list[tuple[type[Object], str]]] = {
    "gang": [(PodGroup, "")],
    "mpi": [(ConfigMap, _HOST_FILE), (Secret, "-mpi-ssh-auth")],
}
"""The kinds and name suffixes of the JobSet's siblings, by runtime."""


class Rules:
    """The rules and their state during one life."""

    def __init__(self, sim: Simulation, past: SpecHistory, lost: Mapping[str, float]) -> None:
        """``lost`` has the times at which runtimes were last deleted by force, by name."""
        self._sim = sim
        self._lost = lost
        self._past = past
        self._ended: dict[str, set[str]] = {"Completed": set(), "Failed": set()}
        """The uids of the TrainJobs whose JobSets have had the condition, by condition."""
        self._deleted: dict[tuple[str, str], float] = {}
        """The times at which objects were last deleted, by kind and name."""
        self._released: set[tuple[str, str]] = set()
        """Pairs of the uids of a JobSet and of an owner that was removed from it."""

    def see(self, event: Event) -> None:
        """Check a change."""
        self._past.see(event)
        kind = event.table.properties.gvk.kind
        self._foreign(event)
        if event.type == "DELETED":
            self._runtime_is_unused(kind, event.document)
            self._deleted[kind, _name(event.document)] = self._sim.loop.time()
            return
        if kind == "TrainJob":
            self._train_job(event)
        elif kind == "JobSet":
            self._job_set(event)
        elif kind == "Pod" and event.type == "ADDED":
            self._pod(event.document)
        elif kind in ("ConfigMap", "PodGroup"):
            self._sibling(event.document)
        elif kind == "Secret" and event.before is not None:
            same = event.before.get("data") == event.document.get("data")
            assert same, f"keys of pods that may run were replaced: {_name(event.document)}"

    @staticmethod
    def _foreign(event: Event) -> None:
        """Check that an object of another purpose does not change."""
        before, now = event.before, event.document
        if before is not None and PURPOSE in (before["metadata"].get("labels") or {}):
            for part in ("spec", "data"):
                assert before.get(part) == now.get(part), (
                    f"the manager changed an object that it does not own: {_name(now)}"
                )
            assert not _owner_uids(now), f"an object of others was given an owner: {_name(now)}"

    def _runtime_is_unused(self, kind: str, runtime: Document) -> None:
        """Check that no TrainJob refers to a deleted runtime, unless the runtime's finalizer was removed by force."""
        name = _name(runtime)
        if kind not in _RUNTIMES or self._sim.loop.time() - self._lost.get(name, -_STALEST) < _STALEST:
            return
        for job in self._sim.server.objects(TrainJob):
            is_old = self._past.age(job["metadata"]["uid"]) > _STALEST
            assert not is_old or runtime_of(job) != place_of(kind, runtime), (
                f"a runtime was deleted while a TrainJob referred to it: {name}, {_name(job)}"
            )

    def _train_job(self, event: Event) -> None:
        """Check a TrainJob.

        It is valid, unless it is being deleted. It becomes Complete only after its JobSet was Completed, and Failed
        only after its JobSet has failed or its deadline has passed. If it failed at its deadline, it keeps this reason.
        It keeps the conditions of other writers.
        """
        if event.before is not None and is_true(event.before, AUDITED):
            assert is_true(event.document, AUDITED), (
                f"a condition of another writer was removed: {_name(event.document)}"
            )
        job, name = event.document, _name(event.document)
        self._conditions(job, event.before or {})
        overrides = job["spec"].get("podTemplateOverrides") or ()
        targets = [target["name"] for each in overrides for target in each.get("targetJobs") or ()]
        assert UNKNOWN not in targets or is_deleted(job), f"an invalid TrainJob is stored: {name}"
        reason = _failure(event.before or {})
        assert reason != DEADLINE_EXCEEDED or _failure(job) == reason, (
            f"a TrainJob that failed at its deadline has another reason now: {name}"
        )
        both = is_true(job, "Complete") and is_true(job, "Failed")
        assert not both, f"a TrainJob is Complete and Failed: {name}"
        for own, theirs in (("Complete", "Completed"), ("Failed", "Failed")):
            began = is_true(event.document, own) and not is_true(event.before or {}, own)
            if own == "Failed" and is_overdue(job):
                continue
            assert not began or event.document["metadata"]["uid"] in self._ended[theirs], (
                f"a TrainJob is {own} and its JobSet was not: {_name(event.document)}"
            )

    @staticmethod
    def _conditions(job: Document, earlier: Document) -> None:
        """Check that a condition's time changes only with its status, and that Suspended is True before it is False."""
        before = {each["type"]: each for each in earlier.get("status", {}).get("conditions") or ()}
        for now in job.get("status", {}).get("conditions") or ():
            kind, old = now["type"], before.get(now["type"])
            moved = old is not None and old["lastTransitionTime"] != now["lastTransitionTime"]
            assert not moved or old is None or old["status"] != now["status"], (
                f"the time of a condition changes without its status: {_name(job)}: {kind}"
            )
            assert old is not None or kind != "Suspended" or now["status"] == "True", (
                f"a TrainJob is resumed that was not suspended: {_name(job)}"
            )

    def _owners(self, event: Event) -> None:
        """Check that a JobSet does not get back an owner that was removed from it."""
        uid, owners = event.document["metadata"]["uid"], _owner_uids(event.document)
        self._released |= {(uid, owner) for owner in _owner_uids(event.before or {}) - owners}
        returned = [owner for owner in owners if (uid, owner) in self._released]
        assert not returned, f"a JobSet was returned to an owner that released it: {_name(event.document)}"

    def _job_set(self, event: Event) -> None:
        self._owners(event)
        job_set, uid = event.document, (controller(event.document) or {}).get("uid", "")
        for condition, uids in self._ended.items():
            if is_true(job_set, condition):
                uids.add(uid)
        job = by_uid(self._sim, TrainJob, uid)
        if event.before is None and job is not None:
            ended = is_true(job, "Complete") or is_true(job, "Failed")
            assert not ended, f"the JobSet of a TrainJob that ended was built again: {_name(job_set)}"
            assert job["spec"].get("managedBy") != _OTHERS, (
                f"a JobSet of a TrainJob that another controller manages: {_name(job_set)}"
            )
        runs, before = not is_suspended(job_set), event.before
        adopted = before is not None and (controller(before) or {}).get("uid") != uid
        if uid and runs and (before is None or is_suspended(before) or adopted):
            self._start(job_set, uid)

    def _start(self, job_set: Document, uid: str) -> None:
        """Check that a JobSet may start.

        The JobSet's spec must follow from a recent state of the TrainJob in which the TrainJob was not suspended. The
        siblings must exist, and be for the JobSet's number of pods.
        """
        states = [each for each in self._past.train_job(uid, within=_STALEST) if not is_suspended(each)]
        wanted = [_wanted_of(each) for each in states]
        assert _spec_of(job_set) in wanted, (
            f"a JobSet starts with another spec than its TrainJob's: {_name(job_set)} "
            f"has {_spec_of(job_set)}, wanted {wanted}"
        )
        siblings = _SIBLINGS.get(states[0]["spec"]["runtimeRef"]["name"], ())
        if by_uid(self._sim, TrainJob, uid) is None:
            siblings = ()  # the manager may not know that the TrainJob was deleted; its children will be deleted, too
        for sibling, suffix in siblings:
            self._exists(sibling, _name(job_set) + suffix, uid)
        for kind in (ConfigMap, PodGroup):
            for each in self._sim.server.objects(kind):
                if (controller(each) or {}).get("uid") == uid:
                    self._fits(each, job_set)

    def _exists(self, kind: type[Object], name: str, uid: str) -> None:
        """Check that a sibling exists, unless it was recently deleted. The Secret may be a user's."""
        if self._sim.loop.time() - self._deleted.get((kind.gvk.kind, name), -_STALEST) < _STALEST:
            return
        found = [each for each in self._sim.server.objects(kind) if _name(each) == name]
        assert any(kind is Secret or (controller(each) or {}).get("uid") == uid for each in found), (
            f"a JobSet starts without a sibling: {kind.gvk.kind} {name}"
        )

    def _sibling(self, sibling: Document) -> None:
        """Check that the sibling of a running JobSet is for the JobSet's number of pods."""
        uid = (controller(sibling) or {}).get("uid")
        for job_set in self._sim.server.objects(JobSet) if uid else ():
            if (controller(job_set) or {}).get("uid") == uid and not is_suspended(job_set):
                self._fits(sibling, job_set)

    @staticmethod
    def _fits(sibling: Document, job_set: Document) -> None:
        jobs = job_set["spec"]["replicatedJobs"]
        pods = sum(each["template"]["spec"].get("parallelism") or 1 for each in jobs)
        if _name(sibling).endswith(_HOST_FILE):
            found = len(sibling["data"]["hostfile"].splitlines())
        elif "minMember" in sibling.get("spec", {}):
            found = sibling["spec"]["minMember"]
        else:
            return
        assert found == pods, (
            f"a sibling does not fit the running JobSet: {_name(sibling)} is for {found} pods of {pods}"
        )

    def _pod(self, pod: Document) -> None:
        """Check that a new pod has the spec of its JobSet's template."""
        job = by_uid(self._sim, Job, (controller(pod) or {}).get("uid", ""))
        owner = controller(job) if job is not None else None
        for job_set in self._sim.server.objects(JobSet) if owner else ():
            if owner is not None and _name(job_set) == owner["name"]:
                found = _spec_of_pods(pod["spec"])
                wanted = [
                    _spec_of_pods(each["template"]["spec"]["template"]["spec"])
                    for each in job_set["spec"]["replicatedJobs"]
                ]
                assert is_suspended(job_set) or found in wanted, (
                    f"a pod runs another spec than its JobSet's: {_name(pod)} has {found}, wanted {wanted}"
                )


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _failure(job: Document) -> str:
    """Return the reason why a TrainJob has failed, or an empty text."""
    conditions = job.get("status", {}).get("conditions") or ()
    failed = [each["reason"] for each in conditions if each["type"] == "Failed" and each["status"] == "True"]
    return str(failed[0]) if failed else ""


def _wanted_of(train_job: Document) -> tuple[object, ...]:
    flavor = flavor_of(train_job["spec"])
    pod = placed_at(flavor) if flavor else {}
    return train_job["spec"]["trainer"]["image"], *_placement(pod)


def _spec_of(job_set: Document) -> tuple[object, ...]:
    """Return the trainer's image, and the node selector and tolerations of the nodes' pods."""
    jobs = {
        each["name"]: each["template"]["spec"]["template"]["spec"]
        for each in job_set["spec"]["replicatedJobs"]
    }
    trainer = jobs.get("launcher", jobs["node"])
    return trainer["containers"][0]["image"], *_placement(jobs["node"])


def _placement(pod: Document) -> tuple[object, ...]:
    return pod.get("nodeSelector"), pod.get("tolerations")


def _spec_of_pods(spec: Document) -> tuple[object, ...]:
    return spec["containers"][0]["image"], spec["containers"][0].get("env"), *_placement(spec)


def _owner_uids(document: Document) -> set[str]:
    return {ref["uid"] for ref in document.get("metadata", {}).get("ownerReferences") or ()}
