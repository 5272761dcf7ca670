# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl exec``: runs a command in a container of a TrainJob, for example to see where a training hangs."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import load_config
from pkg.why import LiveObject, Snapshot, container_of, kinds
from pkg.why.liveobject import at, maps, text
from pkg.why.phase import training_step
from pkg.why.snapshot import rank_of, step_of

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputError

if TYPE_CHECKING:
    from controller_runtime.interop.kubernetes_asyncio import Execution

_CHUNK: Final = 1 << 15
_LOCAL_PROTOCOLS: Final = ("v4.channel.k8s.io",)
_REFUSED: Final = 1


async def exec_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Run the command, and return its exit code. Return 1 if it cannot be run.

    Raises:
        InputError: the package for WebSocket is not installed.
        StatusError, RestError: the TrainJob cannot be read, or the command cannot be run.
    """
    try:
        from controller_runtime.interop import kubernetes_asyncio  # slow to load, and an extra
    except ModuleNotFoundError as error:
        raise InputError(f"exec needs the extra trainerctl[exec] ({error.name} is not installed)") from error
    async with live.connect(arguments) as cluster:
        snapshot = await cluster.snapshot(arguments.name, explains=False)
    pod = _selected(snapshot, arguments)
    container = arguments.container or (container_of(pod) if pod else "")
    problem = _problem(snapshot, pod, container, arguments)
    if pod is None or problem:
        streams.say_error(problem)
        return _REFUSED
    has_input = arguments.stdin and sys.stdin is not None
    has_terminal = arguments.tty and sys.stdin is not None and sys.stdin.isatty()
    if arguments.tty and not has_terminal:
        streams.say_error("the standard input is not a terminal: --tty is ignored")
    options = {"protocols": _LOCAL_PROTOCOLS} if _node_type(snapshot, pod) == "process" else {}
    config = await load_config(arguments.kubeconfig, context=arguments.context)
    try:
        async with kubernetes_asyncio.execute(
            config,
            (pod.namespace, pod.name),
            arguments.command,
            container=container,
            stdin=has_input,
            tty=has_terminal,
            **options,
        ) as running:
            with _raw_terminal(running if has_terminal else None):
                return await _connect(running, has_input)
    except ForbiddenError as error:
        namespace = pod.namespace
        raise ForbiddenError(
            f"{error}: this needs the verbs get and create of pods/exec; see kubectl auth can-i create pods/exec "
            f"-n {namespace}",
            code=error.code,
            reason=error.reason,
        ) from error


def _selected(snapshot: Snapshot, arguments: argparse.Namespace) -> LiveObject | None:
    """Return the pod of the step and rank. Without a step, it is the one that trains."""
    step = arguments.step or training_step(snapshot)
    pods = sorted(snapshot.pods, key=lambda each: each.name)
    return next((pod for pod in pods if step_of(pod) == step and rank_of(pod) == arguments.rank), None)


def _problem(
    snapshot: Snapshot, pod: LiveObject | None, container: str, arguments: argparse.Namespace
) -> str:
    """Return why no command can run in a container, or an empty text."""
    named = f"{arguments.name} -n {snapshot.train_job.namespace}"
    if pod is None:
        if reason := snapshot.unread.get(kinds.POD):
            return f"the pods cannot be read: {reason}"
        step = f"of step {arguments.step}" if arguments.step else "that trains"
        return f"no pod {step} has rank {arguments.rank}; see trainerctl get {named}"
    if _node_type(snapshot, pod) == "kwok":
        return (
            f"{pod.name} is simulated and runs no command: on a cluster of trainerctl cluster up --run-processes, "
            "pods are processes"
        )
    known = [
        text(each, "name")
        for part in ("containers", "initContainers")
        for each in maps(pod.data, "spec", part)
    ]
    if container not in known:
        return f"{pod.name} has no container {container}; its containers are {', '.join(known)}"
    for part in ("containerStatuses", "initContainerStatuses"):
        for each in pod.maps("status", part):
            if text(each, "name") == container and at(each, "state", "running") is not None:
                return ""
    return f"container {container} of {pod.name} does not run; see trainerctl why {named}"


def _node_type(snapshot: Snapshot, pod: LiveObject) -> str:
    """Return how a node of a local cluster runs pods, or an empty text."""
    name = pod.text("spec", "nodeName")
    return next((each.label("type") for each in snapshot.all(kinds.NODE) if each.name == name), "")


async def _connect(running: Execution, has_input: bool) -> int:
    """Pass the standard streams on until the command has ended. Return its exit code."""
    async with anyio.create_task_group() as tasks:
        if has_input:
            tasks.start_soon(_send_input, running)
        async for stream, data in running.output():
            to = sys.stdout.buffer if stream == 1 else sys.stderr.buffer
            to.write(data)
            to.flush()
        tasks.cancel_scope.cancel()
    return min(running.exit_code or 0, 255)


async def _send_input(running: Execution) -> None:
    source = sys.stdin.fileno()
    while True:
        with suppress(PermissionError):  # a file cannot be waited for, and is always readable
            await anyio.wait_readable(source)
        data = os.read(source, _CHUNK)
        if not data:
            await running.close_input()
            return
        await running.write(data)


@contextmanager
def _raw_terminal(running: Execution | None) -> Iterator[None]:
    """Let the terminal pass on each key, and its size, to the command. Do nothing without a command."""
    if running is None:
        yield
        return
    source, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(source)
    resizes = set[asyncio.Task[None]]()

    def resize() -> None:
        size = shutil.get_terminal_size()
        task = loop.create_task(running.resize(size.columns, size.lines))
        resizes.add(task)
        task.add_done_callback(resizes.discard)

    tty.setraw(source)
    loop.add_signal_handler(signal.SIGWINCH, resize)
    try:
        resize()
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(source, termios.TCSADRAIN, before)
