# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The lines that a simulated container has written; the times follow the stages of the simulated nodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pkg.constants import trainer as constants
from pkg.podgrouper.plugins import parse_duration
from pkg.why import Thing
from pkg.why.things import text, texts

from trainerctl.localcluster.podlogs.container import Container

RUN_FOR: Final = "sim.local/run-for"
EXIT_CODE: Final = "sim.local/exit-code"
MARK: Final = "[simulated]"
"""The first word of every line."""
_RUN_FOR: Final = timedelta(seconds=2)
"""The time for which the pod of a Job runs without the annotation."""
_STEPS: Final = 10
_STEPS_OF_AN_EPOCH: Final = 5
_FAILS_AFTER: Final = 6
"""The last step of a container that fails."""
_SHOWN: Final = 120
"""Maximum characters of the command that are shown."""
_INITIALIZERS: Final = frozenset({constants.DATASET_INITIALIZER, constants.MODEL_INITIALIZER})


class Line(NamedTuple):
    """A line and the time at which it was written."""

    at: datetime
    text: str


def lines(container: Container, now: datetime) -> list[Line]:
    """Return the lines that the container has written until ``now``, oldest first.

    A pod that no Job owns runs until it is deleted, and writes only the first line.
    """
    start = container.started
    if start is None:
        return []
    written = [Line(start, f"{MARK} {_introduction(container)}")]
    if any(owner.get("kind") == "Job" for owner in container.pod.maps("metadata", "ownerReferences")):
        until = container.ended or now
        written += [Line(at, f"{MARK} {said}") for at, said in _work(container, start) if at <= until]
        if container.ended is not None:
            written.append(Line(container.ended, f"{MARK} {_end(container)}"))
    return written


def _introduction(container: Container) -> str:
    words = [*texts(container.spec, "command"), *texts(container.spec, "args")]
    command = " ".join(" ".join(words).split()) or "that of the image"
    if len(command) > _SHOWN:
        command = f"{command[:_SHOWN]}..."
    return f"No container runs in this cluster. Image: {text(container.spec, 'image')}. Command: {command}"


def _work(container: Container, start: datetime) -> Iterator[Line]:
    """Yield the lines between the first and the last one, at equal intervals."""
    pod = container.pod
    count = _FAILS_AFTER if pod.annotation(EXIT_CODE) else _STEPS
    interval = _duration(pod) / (count + 1)
    loads = not _INITIALIZERS.isdisjoint({pod.label(constants.LABEL_TRAIN_JOB_ANCESTOR), container.name})
    for step in range(1, count + 1):
        if loads:
            said = f"progress={100 * step // _STEPS}%"
        else:
            epoch = (step - 1) // _STEPS_OF_AN_EPOCH + 1
            loss = 2.4 / (1 + 0.35 * step) + 0.003 * (container.rank % 7)
            said = f"{_place(container)} epoch={epoch} step={step}/{_STEPS} loss={loss:.4f}"
        yield Line(start + interval * step, said)


def _end(container: Container) -> str:
    if container.exit_code:
        return f"{_place(container)} failed: exit code {container.exit_code} (annotation {EXIT_CODE})"
    return f"{_place(container)} done"


def _place(container: Container) -> str:
    """Return the rank, and the number of nodes if the pod has it."""
    nodes = container.variable("PET_NNODES")
    return f"rank={container.rank}" + (f" nodes={nodes}" if nodes.isdecimal() else "")


def _duration(pod: Thing) -> timedelta:
    try:
        return timedelta(microseconds=max(0, parse_duration(pod.annotation(RUN_FOR)) // 1000))
    except (ValueError, OverflowError):
        return _RUN_FOR
