# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logs of simulated pods, computed for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import anyio
from pkg.why import Thing

from trainerctl.localcluster.podlogs.container import Container
from trainerctl.localcluster.podlogs.query import Query
from trainerctl.localcluster.podlogs.server import Target
from trainerctl.localcluster.podlogs.training import lines

_POLL: Final = 0.25

ReadPod = Callable[[str, str], Awaitable[Thing | None]]
"""Returns the pod of a namespace and a name, or None if it does not exist."""


class SimulatedLogs:
    """Computes logs; ``read_pod`` is called for each request, and again while a log is followed."""

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
        """Yield the pieces of a log; a followed one ends with its container or its pod.

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
        """Return the container and the options of a request."""
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
