# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How containers failed, and the text of the event about it, which the manager records and a diagnosis reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controller_runtime.machinery import JSON
from controller_runtime.machinery.printable import printable_line

from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY
from pkg.why.liveobject import MOST_MATCHED, LiveObject, at, moment, number, text

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


def parse(message: str) -> Termination | None:
    """Return the termination that an event's text describes, or None."""
    found = _TEXT.search(message[:MOST_MATCHED])
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


def terminations(pod: LiveObject) -> Iterator[Termination]:
    """Yield how each failed container of a pod ended.

    A container that was stopped because the pod was deleted did not fail. If the container had crashed before and was
    stopped soon after its restart, its last crash counts.
    """
    step = pod.label(REPLICATED_JOB_NAME_KEY) or pod.name
    for is_init, status, ended in failures(pod):
        code, reason, message = number(ended, "exitCode"), text(ended, "reason"), text(ended, "message")
        yield Termination(pod.name, step, text(status, "name"), is_init, code, reason, message)


def failures(pod: LiveObject) -> Iterator[tuple[bool, JSON, JSON]]:
    """Yield each failed container of a pod: True for an init container, its status, and its failure."""
    asked = pod.deletion_requested
    for is_init, part in ((True, "initContainerStatuses"), (False, "containerStatuses")):
        for status in pod.maps("status", part):
            ended = at(status, "state", "terminated")
            if ended is None or _passed(ended, asked) >= timedelta():
                ended = at(status, "lastState", "terminated")
                if ended is not None and _passed(ended, asked) < -_CRASH_LOOP:
                    continue
            if number(ended, "exitCode"):
                yield is_init, status, ended


def _passed(ended: JSON, asked: datetime | None) -> timedelta:
    """Return the time from the request to delete the pod until the container ended.

    The time is negative if the container ended before the request, or if one of the two times is missing.
    """
    end = moment(ended, "finishedAt")
    return -timedelta.resolution if asked is None or end is None else end - asked
