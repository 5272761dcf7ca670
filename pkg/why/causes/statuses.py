# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The containers of a snapshot's pods with their states. Containers of removed pods are taken from events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controller_runtime.machinery import JSON

from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY
from pkg.why import terminations
from pkg.why.liveobject import LiveObject, at, maps, number, text
from pkg.why.snapshot import Snapshot, event_time, step_of

_PARTS: Final = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))


@dataclass(frozen=True, slots=True)
class Status:
    """One container and its status."""

    pod: LiveObject
    name: str
    image: str
    data: JSON
    is_init: bool
    is_gone: bool = False
    """True if the pod was removed."""
    is_kept: bool = False
    """True if the pod was removed, and its log was kept."""
    is_previous: bool = False
    """True if the container was restarted after this end, so that its log is the previous one."""

    @property
    def waiting(self) -> str:
        """Why the container waits, or an empty string."""
        return text(self.data, "state", "waiting", "reason")

    @property
    def message(self) -> str:
        """The message of the state."""
        return text(self.data, "state", "waiting", "message") or text(
            self.data, "state", "terminated", "message"
        )

    @property
    def ended(self) -> JSON:
        """The termination of a container that has ended, or that has ended and waits to start again."""
        current = at(self.data, "state", "terminated")
        if current is not None:
            return current
        return at(self.data, "lastState", "terminated") if self.waiting else None

    @property
    def restarts(self) -> int:
        """The number of restarts."""
        return number(self.data, "restartCount")

    @property
    def label(self) -> str:
        """The container and its step in words, such as ``container sidecar of step node``."""
        kind = "init container" if self.is_init else "container"
        return f"{kind} {self.name}" + (
            f" of step {step_of(self.pod)}" if step_of(self.pod) != self.name else ""
        )

    @property
    def line(self) -> str:
        """The state as a line of evidence."""
        parts = [f"container {self.name} of {self.pod}"]
        if self.waiting:
            parts.append(f"waits: {self.waiting}{f' ({self.message})' if self.message else ''}")
        if (ended := self.ended) is not None:
            reason, code = text(ended, "reason"), number(ended, "exitCode")
            parts.append(f"ended with exit code {code}{f' ({reason})' if reason else ''}")
        if self.restarts:
            parts.append(f"{self.restarts} restarts")
        if self.is_gone:
            parts.append("the pod is removed")
        return ", ".join(parts)


def statuses(snapshot: Snapshot) -> Iterator[Status]:
    """Yield the containers of the snapshot's pods, and the containers of :func:`removed`."""
    for pod in snapshot.pods:
        yield from of_pod(pod)
    yield from removed(snapshot)


def removed(snapshot: Snapshot) -> Iterator[Status]:
    """Yield failed containers of removed pods, from the kept pods and from the events of the TrainJob.

    They are used only if a Job, the JobSet or the TrainJob has failed. Events older than the present Jobs are
    ignored, because they describe earlier runs of the JobSet.
    """
    above = [
        snapshot.train_job,
        *snapshot.jobs,
        *([snapshot.job_set] if snapshot.job_set is not None else []),
    ]
    if not any(each.is_true("Failed") for each in above):
        return
    yield from _of_kept(snapshot)
    existing = {pod.name for pod in snapshot.all_pods}
    kept = {
        step_of(pod) for pod in snapshot.removed
    }  # they say more, and an event may be of an earlier attempt
    for event in snapshot.events(snapshot.train_job, terminations.REASON):
        ended, seen = terminations.parse(event.text("message")), event_time(event)
        if ended is None or seen is None or ended.pod in existing or ended.step in kept:
            continue
        jobs = [each for each in snapshot.jobs if each.label(REPLICATED_JOB_NAME_KEY) == ended.step]
        if all(each.created is None or each.created <= seen for each in jobs):
            yield _of_event(snapshot, event, ended, jobs[0].at("spec", "template", "spec") if jobs else None)


def _of_kept(snapshot: Snapshot) -> Iterator[Status]:
    for pod in snapshot.removed:
        metadata = {name: value for name, value in pod.at("metadata").items() if name != "deletionTimestamp"}
        shown = LiveObject({**pod.data, "kind": "Pod", "metadata": metadata})
        for is_init, status, ended in terminations.failures(pod):
            data: JSON = {"state": {"terminated": ended}, "restartCount": number(status, "restartCount")}
            is_previous, image = at(status, "state", "terminated") != ended, text(status, "image")
            yield Status(
                shown, text(status, "name"), image, data, is_init, True, True, is_previous=is_previous
            )


def _of_event(snapshot: Snapshot, event: LiveObject, ended: terminations.Termination, spec: JSON) -> Status:
    """Return the status that an event describes; ``spec`` is the spec of the removed pod."""
    metadata = {
        "name": ended.pod,
        "namespace": snapshot.train_job.namespace,
        "labels": {REPLICATED_JOB_NAME_KEY: ended.step},
    }
    terminated: JSON = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "message": ended.message,
        "finishedAt": event.text("firstTimestamp"),
    }
    pod = LiveObject({"kind": "Pod", "metadata": metadata, "spec": spec or {}})
    return Status(
        pod, ended.container, "", {"state": {"terminated": terminated}}, ended.is_init, is_gone=True
    )


def of_pod(pod: LiveObject) -> Iterator[Status]:
    """Yield the containers of a pod that have a status."""
    for specs, states in _PARTS:
        images = {text(each, "name"): text(each, "image") for each in maps(pod.data, "spec", specs)}
        for each in pod.maps("status", states):
            name = text(each, "name")
            yield Status(pod, name, images.get(name, ""), each, is_init=specs == "initContainers")
