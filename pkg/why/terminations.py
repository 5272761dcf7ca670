# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The text of an event that describes how a container failed. The manager records it, and a diagnosis reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from controller_runtime.machinery.printable import printable_line

from pkg.why.liveobject import MOST_MATCHED

REASON: Final = "ContainerFailed"
"""The reason of the event."""
_LONGEST: Final = 256
"""We keep this many characters from the end of a message, because a traceback ends with the error."""
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
