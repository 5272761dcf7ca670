# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl suspend``, ``resume`` and ``delete``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from typing import Final

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery.errors import StatusError
from pkg.why import LiveObject
from pkg.why.phase import phase

from trainerctl.cli import live, streams
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console

_QUEUE: Final = "kueue.x-k8s.io/queue-name"


async def suspend_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Suspend TrainJobs. The pods of a suspended TrainJob are deleted."""
    return await _set(arguments, out, suspended=True)


async def resume_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Resume suspended TrainJobs."""
    return await _set(arguments, out, suspended=False)


async def delete_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Delete TrainJobs and, with them, their children. Return 1 if one of them could not be deleted."""

    async def delete(cluster: live.Connection, name: str) -> bool:
        await cluster.client.delete(KIND(metadata=ObjectMeta(name=name, namespace=cluster.namespace)))
        out.say(f"trainjob {cluster.namespace}/{name} deleted")
        return True

    return await _each(arguments, delete)


async def _set(arguments: argparse.Namespace, out: Console, *, suspended: bool) -> int:
    """Set ``spec.suspend`` of TrainJobs. Return 1 if one of them has already finished or cannot be changed."""
    done = "suspended" if suspended else "resumed"

    async def change(cluster: live.Connection, name: str) -> bool:
        shown = f"trainjob {cluster.namespace}/{name}"
        found = await cluster.client.get(KIND, (cluster.namespace, name))
        job = LiveObject(found.to_dict())
        now = phase(job)
        if now.ended:
            streams.say_error(f"{shown} {now.said} and cannot be {done}")
            return False
        if queue := job.label(_QUEUE):
            streams.say_error(
                f"warning: {shown} is in the Kueue queue {queue}, which sets spec.suspend itself"
            )
        if (job.at("spec", "suspend") is True) == suspended:
            out.say(f"{shown} is {'already suspended' if suspended else 'not suspended'}")
            return True
        patch = raw_patch(MERGE, json.dumps({"spec": {"suspend": suspended}}).encode())
        await cluster.client.patch(found, patch, field_owner=live.FIELD_OWNER)
        out.say(f"{shown} {done}")
        return True

    return await _each(arguments, change)


async def _each(
    arguments: argparse.Namespace, step: Callable[[live.Connection, str], Awaitable[bool]]
) -> int:
    """Take ``step`` for each named TrainJob, even if it fails for one of them. Return 1 if it failed for one."""
    done = []
    async with live.connect(arguments) as cluster:
        for name in arguments.names:
            try:
                done.append(await step(cluster, name))
            except StatusError as error:
                streams.say_error(str(cluster.worded(error)))
                done.append(False)
    return 0 if all(done) else 1
