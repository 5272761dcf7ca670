# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How containers failed, and the text of the event about it, which the manager records and a diagnosis reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller_runtime.machinery.meta import parse_time
from controller_runtime.machinery.printable import printable_line

from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY
from pkg.why.liveobject import MOST_MATCHED

if TYPE_CHECKING:
    from controller_runtime.apis.core.v1 import ContainerStateTerminated, ContainerStatus, Pod

REASON: Final = "ContainerFailed"
"""The reason of the event."""
_LONGEST: Final = 256
"""We keep this many characters from the end of a message, because a traceback ends with the error."""
_CRASH_LOOP: Final = timedelta(minutes=10)
"""The kubelet forgets the crashes of a container that has run for this long."""
_REASON: Final = re.compile(r"\w{1,64}", re.ASCII)
_TEXT: Final = re.compile(
    r"\b(?P<init>Init c|C)ontainer (?P<container>\S{1,63}) of Pod (?P<pod>\S{1,253}) \(step (?P<step>\S{1,253})\) "
    r"ended with exit code (?P<code>\d{1,5}) \((?P<reason>\w{1,64})\)(?:: (?P<message>.*))?$",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container of a pod ended."""

    pod: str
    step: str
    """The replicated job of the pod."""
    container: str
    is_init: bool
    exit_code: int
    reason: str
    message: str = ""

    def __str__(self) -> str:
        """Return the text of the event, in one line."""
        kind = "Init container" if self.is_init else "Container"
        reason = self.reason if _REASON.fullmatch(self.reason) else "Error"
        words = printable_line(" ".join(self.message[-2 * _LONGEST :].split()))
        said = f": {words if len(words) <= _LONGEST else '…' + words[-_LONGEST:]}" if words else ""
        where = f"{kind} {self.container} of Pod {self.pod} (step {self.step})"
        return f"{where} ended with exit code {self.exit_code} ({reason}){said}"


def parse(text: str) -> Termination | None:
    """Return the termination that an event's text describes, or None."""
    found = _TEXT.search(text[:MOST_MATCHED])
    if found is None:
        return None
    return Termination(
        pod=found["pod"],
        step=found["step"],
        container=found["container"],
        is_init=found["init"] != "C",
        exit_code=int(found["code"]),
        reason=found["reason"],
        message=found["message"] or "",
    )


def terminations(pod: Pod) -> Iterator[Termination]:
    """Yield how each failed container of a pod ended.

    A container that was stopped because the pod was deleted did not fail. If the container had crashed before and was
    stopped soon after its restart, its last crash counts.
    """
    step = (pod.metadata.labels or {}).get(REPLICATED_JOB_NAME_KEY) or pod.name
    for is_init, status, ended in failures(pod):
        code, reason, message = ended.exit_code or 0, ended.reason or "", ended.message or ""
        yield Termination(pod.name, step, status.name, is_init, code, reason, message)


def failures(pod: Pod) -> Iterator[tuple[bool, ContainerStatus, ContainerStateTerminated]]:
    """Yield each failed container of a pod, and its failure. The first value is True for init containers."""
    asked: datetime | None = None
    if (
        pod.metadata.deletion_timestamp is not None
    ):  # the end of the grace period, which began with the request
        grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
        asked = parse_time(pod.metadata.deletion_timestamp) - grace
    status = pod.status
    for is_init, found in ((True, status.init_container_statuses), (False, status.container_statuses)):
        for each in found or ():
            ended = _failure(each, asked)
            if ended is not None:
                yield is_init, each, ended


def _failure(status: ContainerStatus, asked: datetime | None) -> ContainerStateTerminated | None:
    ended = status.state.terminated if status.state is not None else None
    if ended is None or _passed(ended, asked) >= timedelta():
        ended = status.last_state.terminated if status.last_state is not None else None
        if ended is not None and _passed(ended, asked) < -_CRASH_LOOP:
            return None
    return ended if ended is not None and ended.exit_code else None


def _passed(ended: ContainerStateTerminated, asked: datetime | None) -> timedelta:
    """Return the time from the request to delete the pod until the container ended.

    The time is negative if the container ended before the request, or if one of the two times is missing.
    """
    if asked is None or not ended.finished_at:
        return -timedelta.resolution
    return parse_time(ended.finished_at) - asked
