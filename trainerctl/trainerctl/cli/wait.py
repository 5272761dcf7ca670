# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl wait``: waits until a TrainJob is complete, has failed, runs, is suspended or is deleted."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Final

import anyio
from controller_runtime.machinery.errors import ExpiredError
from pkg.why import LiveObject
from pkg.why.phase import Phase, phase

from trainerctl.cli import live, streams
from trainerctl.cli.get import KIND
from trainerctl.cli.terminal import Console

TIMED_OUT: Final = 3
_REACHED: Final = {
    "complete": (Phase.COMPLETE,),
    "failed": (Phase.FAILED,),
    "finished": (Phase.COMPLETE, Phase.FAILED),
    "running": (Phase.RUNNING, Phase.COMPLETE),
    "suspended": (Phase.SUSPENDED,),
    "deleted": (),
}


async def wait_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Return 0 when the state is reached, 1 if it cannot be reached any more, and 3 after the time limit.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        with anyio.move_on_after(arguments.timeout):
            return await wait_for(cluster, arguments, out)
    streams.say_error(
        f"TrainJob {cluster.namespace}/{arguments.name} is not {arguments.state} after {arguments.timeout:g} s; "
        f"see trainerctl why {arguments.name} -n {cluster.namespace}"
    )
    return TIMED_OUT


async def wait_for(cluster: live.Connection, arguments: argparse.Namespace, out: Console) -> int:
    """Wait and return the exit code. If the watch expires, for example because the server restarts, start it again.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    while True:
        with suppress(ExpiredError):
            return await _wait(cluster, arguments, out)


async def _wait(cluster: live.Connection, arguments: argparse.Namespace, out: Console) -> int:
    wanted = arguments.state
    shown = f"TrainJob {cluster.namespace}/{arguments.name}"
    listed = await cluster.client.list(
        KIND, namespace=cluster.namespace, fields={"metadata.name": arguments.name}
    )
    if not listed and wanted != "deleted":
        streams.say_error(f"{shown} does not exist")
        return 1
    if not listed:
        out.say(f"{shown} is deleted")
        return 0
    found = listed[0]
    async with cluster.client.watch(
        KIND,
        namespace=cluster.namespace,
        fields={"metadata.name": arguments.name},
        resource_version=listed.resource_version,
    ) as events:
        while True:
            now = phase(LiveObject(found.to_dict()))
            if now in _REACHED[wanted]:
                out.say(f"{shown} is {now.lower()}")
                return 0
            if now.ended and wanted != "deleted":
                streams.say_error(f"{shown} is {now.lower()}, not {wanted}")
                return 1
            event = await anext(events)
            found = event.object
            if event.type == "DELETED":
                return _deleted(shown, wanted, out)


def _deleted(shown: str, wanted: str, out: Console) -> int:
    if wanted == "deleted":
        out.say(f"{shown} is deleted")
        return 0
    streams.say_error(f"{shown} was deleted")
    return 1
