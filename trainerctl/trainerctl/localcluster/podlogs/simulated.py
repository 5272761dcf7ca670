# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logs of simulated pods, computed for each request. Times in logs match the pods' status, which kwok writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio
from controller_runtime.machinery import JSON
from controller_runtime.machinery.goduration import parse_duration
from pkg.constants import trainer as constants
from pkg.why import LiveObject
from pkg.why.liveobject import maps, moment, number, text, texts
from pkg.why.snapshot import COMPLETION_INDEX

from trainerctl.localcluster.podlogs.server import Line, Query, Target

_SPECS: Final = ("containers", "initContainers")
_STATUSES: Final = ("containerStatuses", "initContainerStatuses")
RUN_FOR: Final = "sim.local/run-for"
EXIT_CODE: Final = "sim.local/exit-code"
MARK: Final = "[simulated]"
"""The first word of every line."""
_RUN_FOR: Final = timedelta(seconds=2)
"""How long the pod of a Job runs by default. The annotation ``RUN_FOR`` sets another time."""
_STEPS: Final = 10
_STEPS_OF_AN_EPOCH: Final = 5
_FAILS_AFTER: Final = 6
"""A container that will fail writes this many steps."""
_SHOWN: Final = 120
"""Maximum number of characters of the command that are shown."""
_INITIALIZERS: Final = frozenset({constants.DATASET_INITIALIZER, constants.MODEL_INITIALIZER})
_POLL: Final = 0.25
ReadPod = Callable[[str, str], Awaitable[LiveObject | None]]
"""Takes a namespace and a name, and returns the pod, or None if it does not exist."""


@dataclass(frozen=True)
class Container:
    """The container of a pod with this name. The pod may have no such container."""

    pod: LiveObject
    name: str

    @property
    def spec(self) -> JSON:
        """The container in the pod's spec, or None."""
        return self._named(("spec", kind) for kind in _SPECS)

    @property
    def started(self) -> datetime | None:
        """The time at which the container started, or None if it has not started."""
        return moment(self._state, "running", "startedAt") or moment(self._state, "terminated", "startedAt")

    @property
    def ended(self) -> datetime | None:
        """The time at which the container ended, or None if it has not ended."""
        return moment(self._state, "terminated", "finishedAt")

    @property
    def exit_code(self) -> int:
        return number(self._state, "terminated", "exitCode")

    @property
    def waiting_reason(self) -> str:
        """The reason why the container has not started."""
        return text(self._state, "waiting", "reason") or "ContainerCreating"

    @property
    def rank(self) -> int:
        """The completion index of the pod."""
        index = self.pod.annotation(COMPLETION_INDEX)
        return int(index) if index.isascii() and index.isdecimal() else 0

    def variable(self, name: str) -> str:
        """Return the value of an environment variable, or an empty text if the container does not set it."""
        values = [text(each, "value") for each in maps(self.spec, "env") if each.get("name") == name]
        return values[-1] if values else ""

    @property
    def _state(self) -> JSON:
        found = self._named(("status", kind) for kind in _STATUSES)
        return found.get("state") if found else None

    def _named(self, paths: Iterable[tuple[str, str]]) -> dict[str, JSON] | None:
        found = (each for path in paths for each in self.pod.maps(*path))
        return next((each for each in found if each.get("name") == self.name), None)


def lines(container: Container, now: datetime) -> list[Line]:
    """Return the lines that the container has written until ``now``, oldest first.

    If no Job owns the pod, only the first line is returned, because such a pod runs until it is deleted.
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
    """Yield the lines between the first and the last line. Their times are evenly spaced."""
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
    """Return the rank. Add the number of nodes if a variable of the container contains it."""
    nodes = container.variable("PET_NNODES")
    return f"rank={container.rank}" + (f" nodes={nodes}" if nodes.isdecimal() else "")


def _duration(pod: LiveObject) -> timedelta:
    try:
        return timedelta(microseconds=max(0, parse_duration(pod.annotation(RUN_FOR)) // 1000))
    except (ValueError, OverflowError):
        return _RUN_FOR


class SimulatedLogs:
    """Computes logs. ``read_pod`` is called for each request and, while a log is followed, again and again."""

    def __init__(
        self,
        read_pod: ReadPod,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        poll: float = _POLL,
    ) -> None:
        self._read_pod = read_pod
        self._now = now
        self._poll = poll

    async def log(self, target: str) -> AsyncIterator[bytes]:
        """Yield the pieces of a log. With ``follow``, continue until the container ends or the pod is removed.

        Raises:
            LogError: the log does not exist; nothing was yielded.
        """
        container, query = await self._requested(Target.parse(target, self._now()))
        written = lines(container, self._now())
        new, left = query.first(written), query.limit
        while True:
            data = b"".join(map(query.render, new))[:left]
            left = None if left is None else left - len(data)
            yield data
            if not query.follow or container.ended is not None or left == 0:
                return
            await anyio.sleep(self._poll)
            pod = await self._read_pod(container.pod.namespace, container.pod.name)
            if pod is None or pod.uid != container.pod.uid:
                return
            sent, container = len(written), Container(pod, container.name)
            written = lines(container, self._now())
            new = written[sent:]

    async def _requested(self, wanted: Target) -> tuple[Container, Query]:
        """Return the requested container and the options of the request."""
        pod = await self._read_pod(wanted.namespace, wanted.pod)
        if pod is None:
            raise wanted.no_pod()
        container = Container(pod, wanted.container)
        if container.spec is None:
            raise wanted.no_container()
        if wanted.query.previous:
            raise wanted.no_previous()
        if container.started is None:
            raise wanted.waits(container.waiting_reason)
        return container, wanted.query
