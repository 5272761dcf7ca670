# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Serves the logs of pods that run as local processes to the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import anyio
from controller_runtime import client
from controller_runtime.apis.core.v1 import ContainerStateRunning, ContainerStatus, Pod
from controller_runtime.machinery.errors import NotFoundError

from trainerctl.localcluster.podlogs.server import Target
from trainerctl.localcluster.processes import logs
from trainerctl.localcluster.processes.pod import PodRunner
from trainerctl.localcluster.processes.settings import Settings
from trainerctl.localcluster.processes.status import ContainerRecord

_POLL: Final = 0.25


class ProcessLogs:
    """Reads the logs of pods that run or have ended. ``runner`` returns the runner of a pod that runs."""

    def __init__(
        self, reader: client.Reader, settings: Settings, runner: Callable[[str, str], PodRunner | None]
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._runner = runner

    async def log(self, target: str) -> AsyncIterator[bytes]:
        """Yield the pieces of a log. With ``follow``, continue until the container ends.

        Raises:
            LogError: the log does not exist; nothing was yielded.
        """
        wanted = Target.parse(target, self._settings.now())
        pod = await self._pod(wanted)
        folder, is_running = self._started(pod, wanted)
        reader, left = logs.LogReader(folder, wanted.query), wanted.query.limit
        yield b""
        try:
            while True:
                follows = wanted.query.follow and is_running()
                for piece in reader.read():
                    data = piece[:left]
                    left = None if left is None else left - len(data)
                    yield data
                    if left == 0:
                        return
                    await anyio.lowlevel.checkpoint()
                if not follows:
                    return
                await anyio.sleep(_POLL)
                yield b""  # the client may have disconnected
        finally:
            reader.close()

    async def _pod(self, wanted: Target) -> Pod:
        try:
            return await self._reader.get(Pod, (wanted.namespace, wanted.pod))
        except NotFoundError as error:
            raise wanted.no_pod() from error

    def _started(self, pod: Pod, wanted: Target) -> tuple[Path, Callable[[], bool]]:
        """Return the folder of the requested log, and a function that returns True while the log may still grow.

        Raises:
            LogError: the container does not exist, has not started, or has no previous log.
        """
        every = [*(pod.spec.init_containers or []), *(pod.spec.containers or [])]
        if not any(each.name == wanted.container for each in every):
            raise wanted.no_container()
        folder = self._settings.logs(pod.metadata.uid or "", wanted.container)
        runs = logs.runs(folder)
        if wanted.query.previous:
            if (previous := _previous(pod, wanted)) not in runs:
                raise wanted.no_previous()
            return folder / str(previous), lambda: False
        if not runs:
            raise wanted.waits(_waiting(pod, wanted))
        run, uid = runs[-1], pod.metadata.uid

        def is_running() -> bool:
            runner = self._runner(wanted.namespace, wanted.pod)
            record = _record(runner, wanted.container) if runner and runner.pod.metadata.uid == uid else None
            if record is None or record.starting == run:
                return record is not None
            return isinstance(record.state, ContainerStateRunning) and record.restarts == run

        return folder / str(run), is_running


def _status(pod: Pod, wanted: Target) -> ContainerStatus | None:
    every = [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]
    return next((each for each in every if each.name == wanted.container), None)


def _waiting(pod: Pod, wanted: Target) -> str:
    """Return the reason why a container waits."""
    found = _status(pod, wanted)
    if found is not None and found.state is not None and found.state.waiting is not None:
        return found.state.waiting.reason or ""
    return pod.status.reason or "ContainerCreating"


def _previous(pod: Pod, wanted: Target) -> int:
    """Return the number of the last run that has ended, or -1 if no run has ended.

    A waiting container has no current run, so its newest run counts as ended.
    """
    found = _status(pod, wanted)
    if found is None:
        return -1
    waits = found.state is not None and found.state.waiting is not None
    return (found.restart_count or 0) - (0 if waits else 1)


def _record(runner: PodRunner, name: str) -> ContainerRecord | None:
    return next((each for each in runner.record.init + runner.record.containers if each.name == name), None)
