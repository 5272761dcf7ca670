# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a pod as a kubelet writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controller_runtime.apis.core.v1 import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
)
from controller_runtime.machinery import JSON
from controller_runtime.machinery.meta import format_time

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TERMINAL: Final = frozenset({SUCCEEDED, FAILED})
UNKNOWN: Final = "ContainerStatusUnknown"
HOST: Final = "127.0.0.1"
_SCHEME: Final = "process://"
_LOST: Final = "The process ended with the kubelet that ran it"


State = ContainerStateWaiting | ContainerStateRunning | ContainerStateTerminated
_WORDS: Final = {
    ContainerStateWaiting: "waiting",
    ContainerStateRunning: "running",
    ContainerStateTerminated: "terminated",
}


@dataclass
class ContainerRecord:
    """The state of one container."""

    name: str
    image: str
    state: State
    last: ContainerStateTerminated | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    identity: str = ""
    starting: int | None = None
    """The number of the run that is being started. Its process does not run yet, but its log may already exist."""

    @property
    def next_run(self) -> int:
        """The number of the next run. The first run has the number 0."""
        return self.restarts + 1 if self.identity else self.restarts

    def to_dict(self) -> dict[str, JSON]:
        """Return the status of the container."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": f"{_SCHEME}{self.identity}" if self.identity else "",
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started,
            "state": {_WORDS[type(self.state)]: self.state.to_dict()},
            "lastState": {"terminated": self.last.to_dict()} if self.last else {},
        }


@dataclass
class PodRecord:
    """The state of a pod and its containers."""

    address: str
    started_at: datetime
    init: list[ContainerRecord]
    containers: list[ContainerRecord]
    phase: str = PENDING
    reason: str = ""
    message: str = ""
    initialized: bool = False
    sandboxed: bool = False
    """True if the volumes have been made."""


def render(
    record: PodRecord, pod: Pod, now: datetime, written: Mapping[str, JSON] | None = None
) -> dict[str, JSON]:
    """Return the status of a pod.

    If the status of a condition has not changed, its transition time stays the same. ``written`` is the status that we
    wrote last. A condition that is not in ``written`` is compared with ``pod``.
    """
    finished, succeeded = record.phase in TERMINAL, record.phase == SUCCEEDED
    unready = [each.name for each in record.containers if not each.ready]
    ended = "PodCompleted" if succeeded else "PodFailed" if finished else ""
    message = f"containers with unready status: [{' '.join(unready)}]"
    not_ready = (ended or "ContainersNotReady", "" if ended else message)
    pending = [
        each.name
        for each in record.init
        if not isinstance(each.state, ContainerStateTerminated) and not each.started
    ]
    uninitialized = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(pending)}]")
    ready = not unready and not finished
    condition = _Conditions(_transitions(pod, written), now)
    return {
        "phase": record.phase,
        "reason": record.reason or None,
        "message": record.message or None,
        "conditions": [
            condition("PodReadyToStartContainers", record.sandboxed and not finished),
            condition("Initialized", record.initialized, uninitialized, ended if succeeded else ""),
            condition("ContainersReady", ready, not_ready),
            condition("Ready", ready, not_ready),
        ],
        "hostIP": HOST,
        "hostIPs": [{"ip": HOST}],
        "podIP": record.address,
        "podIPs": [{"ip": record.address}],
        "startTime": format_time(record.started_at),
        "initContainerStatuses": [each.to_dict() for each in record.init] or None,
        "containerStatuses": [each.to_dict() for each in record.containers],
    }


def refused(pod: Pod, reason: str, message: str, now: datetime) -> dict[str, JSON]:
    """Return the status of a pod that cannot run here.

    Its phase is Pending, because a Job would replace a failed pod.
    """
    condition = _Conditions(_transitions(pod, None), now)
    waiting = ContainerStateWaiting(reason=reason, message=message)
    return {
        "phase": PENDING,
        "startTime": format_time(now),
        "conditions": [condition(kind, False, (reason, message)) for kind in ("ContainersReady", "Ready")],
        "containerStatuses": [
            ContainerRecord(each.name, each.image or "", waiting).to_dict()
            for each in pod.spec.containers or []
        ],
    }


def is_changed(written: Mapping[str, JSON], pod: Pod) -> bool:
    """Return True if the status of a condition differs between ``written`` and ``pod``."""
    found = {each.type: each.status for each in pod.status.conditions or []}
    return any(found.get(each["type"]) != each["status"] for each in written["conditions"])


def records(
    pod: Pod,
    containers: Sequence[Container],
    runs: Mapping[str, int],
    ends: Mapping[str, ContainerStateTerminated],
    *,
    init: bool,
    now: datetime,
) -> list[ContainerRecord]:
    """Return the containers as an earlier kubelet left them.

    Containers that were running are terminated, because their processes ended together with the kubelet. To find them,
    we use the last written status and the logs: the kubelet may have ended before it could write the status. ``runs``
    contains the number of the last run of each container with a log. ``ends`` contains the results of the runs that
    ended before the kubelet ended.
    """
    statuses = pod.status.init_container_statuses if init else pod.status.container_statuses
    written = {each.name: each for each in statuses or []}
    found = [_record(each, written.get(each.name), now) for each in containers]
    for record in found:
        newest = runs.get(record.name, -1)
        if newest > (record.restarts if record.identity else -1):
            record.restarts, record.identity = newest, identity(pod, record.name, newest)
            record.state = _lost(format_time(now), now)
        if record.name in ends and newest == record.restarts and _is_lost(record.state):
            record.state = ends[record.name]
    return found


def _lost(began: str, now: datetime) -> ContainerStateTerminated:
    return ended(137, began, now, _LOST, UNKNOWN)


def _is_lost(state: State) -> bool:
    return isinstance(state, ContainerStateTerminated) and state.message == _LOST


def ended(
    code: int, began: str, at: datetime, message: str = "", reason: str = ""
) -> ContainerStateTerminated:
    """Return the state of a container whose process has ended."""
    return ContainerStateTerminated(
        exit_code=code,
        reason=reason or ("Error" if code else "Completed"),
        message=message or None,
        started_at=began,
        finished_at=format_time(at),
    )


def identity(pod: Pod, container: str, run: int) -> str:
    """Return the identity of one run of a container. The first run has the number 0."""
    return f"{pod.metadata.uid}-{container}-{run}"


def _record(container: Container, written: ContainerStatus | None, now: datetime) -> ContainerRecord:
    record = ContainerRecord(
        container.name, container.image or "", ContainerStateWaiting(reason="PodInitializing")
    )
    if written is None:
        return record
    record.restarts = written.restart_count or 0
    record.identity = (written.container_id or "").removeprefix(_SCHEME)
    state = written.state or ContainerState()
    record.last = (written.last_state or ContainerState()).terminated
    if state.terminated is not None:
        record.state = state.terminated
    elif state.running is not None:
        record.state = _lost(state.running.started_at or format_time(now), now)
    elif record.identity and record.last is not None:  # the container waited to be restarted
        record.state = record.last
    return record


def _transitions(pod: Pod, written: Mapping[str, JSON] | None) -> dict[str, tuple[str, str]]:
    """Return the status of each condition, and the time of its last transition."""
    found = {
        each.type: (each.status, each.last_transition_time or "") for each in pod.status.conditions or []
    }
    for each in written["conditions"] if written else []:
        found[each["type"]] = (each["status"], each["lastTransitionTime"])
    return found


@dataclass(frozen=True)
class _Conditions:
    """Makes conditions. ``old`` contains the previous status of each condition, and the time of its last transition."""

    old: Mapping[str, tuple[str, str]]
    now: datetime

    def __call__(
        self, kind: str, value: bool, if_false: tuple[str, str] = ("", ""), if_true: str = ""
    ) -> dict[str, JSON]:
        status = "True" if value else "False"
        before, since = self.old.get(kind, ("", ""))
        reason, message = (if_true, "") if value else if_false
        return {
            "type": kind,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since if before == status and since else format_time(self.now),
            "reason": reason or None,
            "message": message or None,
        }
