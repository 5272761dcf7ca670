# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl logs``: prints the logs of a TrainJob's pods. Flags select the step and the rank."""

from __future__ import annotations

import argparse
import itertools
from typing import Final

import anyio
from controller_runtime import rest
from controller_runtime.client import LogOptions
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.printable import printable_line
from pkg.constants.trainer import NODE
from pkg.why import LiveObject, Snapshot, kinds, reading, removed
from pkg.why.liveobject import maps, text
from pkg.why.snapshot import COMPLETION_INDEX, step_of

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console

_COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "red")


async def logs_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the logs. Return 1 if a log cannot be read, or if no pod matches.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        snapshot = await cluster.snapshot(arguments.name)
        pods = _selected(snapshot, arguments)
        if not pods:
            streams.say_error(no_pod(snapshot, arguments.step))
            return 1
        styles = itertools.cycle(_COLOURS if len(pods) > 1 else ("",))
        logs = [_Log(cluster, pod, arguments, out, style) for pod, style in zip(pods, styles, strict=False)]
        if not arguments.follow:
            return max([await each.print() for each in logs])
        async with anyio.create_task_group() as group:
            for each in logs:
                group.start_soon(each.print)
    return max(each.code for each in logs)


def no_pod(snapshot: Snapshot, step: str) -> str:
    """Return a message about a step of which no pod can be read.

    It says how removed pods ended, and which command shows more.
    """
    job = snapshot.train_job
    named = f"{job.name} -n {job.namespace}"
    if reason := snapshot.unread.get(kinds.POD):
        return f"the pods of step {step} cannot be read: {reason}"
    known = [each for each in removed(snapshot) if step_of(each.pod) == step]
    if known:
        ends = [
            printable_line(f"{each.line}: {each.message}" if each.message else each.line) for each in known
        ]
        first = f"the pods of step {step} are removed, and their logs with them"
        return "\n".join([first, *ends, f"see trainerctl why {named}"])
    jobs = [each for each in snapshot.jobs if step_of(each) == step]
    if any(each.is_true("Failed") for each in jobs) and not any(
        step_of(pod) == step for pod in snapshot.pods
    ):
        return (
            f"the pods of step {step} are removed; see trainerctl why {named} and trainerctl events {named}"
        )
    return f"no pod of step {step} matches; see trainerctl get {named}"


def _selected(snapshot: Snapshot, arguments: argparse.Namespace) -> list[LiveObject]:
    """Return the pods of the step, sorted by rank. Without ``--all``, return only pods with the requested rank."""
    pods = [pod for pod in snapshot.pods if step_of(pod) == arguments.step]
    pods.sort(key=_rank)
    if arguments.all:
        return pods
    return [pod for pod in pods if _rank(pod) == arguments.rank]


def container_of(pod: LiveObject) -> str:
    """Return the name of the container that does the work. The launcher of MPI may run in a container ``node``."""
    names = [text(each, "name") for each in maps(pod.data, "spec", "containers")]
    return next((each for each in (step_of(pod), NODE) if each in names), names[0])


def _rank(pod: LiveObject) -> int:
    index = pod.annotation(COMPLETION_INDEX)
    return int(index) if index.isascii() and index.isdigit() else 0


class _Log:
    """The log of one pod; with a ``style``, each line starts with step and rank."""

    def __init__(
        self,
        cluster: live.Connection,
        pod: LiveObject,
        arguments: argparse.Namespace,
        out: Console,
        style: str,
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._arguments = arguments
        self._out = out
        self._style = style
        self.code = 0

    async def print(self) -> int:
        """Print the log, with ``--follow`` until it ends. Return the exit code."""
        if not self._pod.maps("status", "containerStatuses"):
            named = f"{self._arguments.name} -n {self._pod.namespace}"
            streams.say_error(f"{self._pod.name} has not started; see trainerctl why {named}")
            self.code = 1
            return self.code
        pod = reading.pod_named(self._pod.namespace, self._pod.name)
        logs = self._cluster.client.subresource("log")
        try:
            async with logs.stream(pod, follow=self._arguments.follow, **self._options()) as lines:
                async for line in lines:
                    self._say(line.expandtabs())
        except (StatusError, rest.RestError) as error:
            streams.say_error(f"{self._pod.name}: {error}")
            self.code = 1
        return self.code

    def _options(self) -> LogOptions:
        options = LogOptions(container=container_of(self._pod), previous=self._arguments.previous)
        if self._arguments.tail is not None:
            options["tail_lines"] = self._arguments.tail
        return options

    def _say(self, line: str) -> None:
        prefix = ((f"[{step_of(self._pod)} {_rank(self._pod)}] ", self._style),) if self._style else ()
        self._out.say(*prefix, line)
