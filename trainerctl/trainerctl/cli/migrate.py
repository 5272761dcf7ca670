# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl migrate``: rewrites ``numProcPerNode`` of stored TrainJobs for clients of Trainer v2.2 and later.

Those clients expect a number. If one TrainJob stores a string in this field, they cannot list the TrainJobs of its
namespace. The manager's mutating webhook stops clients from storing more strings.
"""

from __future__ import annotations

import argparse
import json
from typing import Final

from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery.errors import ConflictError, NotFoundError, StatusError
from pkg.constants.trainer import NUM_PROC_PER_NODE_ANNOTATION
from pkg.util import generations
from pkg.why import LiveObject, kinds

from trainerctl.cli import live, streams
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console

_TRIES: Final = 3
"""How often we try to rewrite a TrainJob. An attempt fails if another client changes the TrainJob at the same time."""


async def migrate_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Rewrite the TrainJobs of one or all namespaces. Return 1 if a TrainJob could not be rewritten.

    Raises:
        StatusError: the TrainJobs cannot be listed.
    """
    async with live.connect(arguments) as cluster:
        namespace = "" if arguments.all_namespaces else cluster.namespace
        return await rewrite_all(cluster, namespace, out, dry_run=arguments.dry_run)


async def rewrite_all(
    cluster: live.Connection, namespace: str, out: Console, *, dry_run: bool = False
) -> int:
    """Do the work of :func:`migrate_command`. If ``namespace`` is empty, rewrite the TrainJobs of all namespaces."""
    code = rewritten = 0
    for job in await cluster.all(kinds.TRAIN_JOB, namespace=namespace):
        shown = f"trainjob {job.namespace}/{job.name}"
        try:
            change = await _rewrite_one(cluster, job, dry_run=dry_run)
        except (StatusError, ValueError) as error:
            streams.say_error(f"{shown}: {error}")
            code = 1
            continue
        if change:
            rewritten += 1
            out.say(f"{shown}: numProcPerNode {change}{' (dry run)' if dry_run else ''}")
    if not rewritten and not code:
        out.say("no TrainJob stores numProcPerNode as a string")
    return code


async def _rewrite_one(cluster: live.Connection, job: LiveObject, *, dry_run: bool) -> str:
    """Rewrite a TrainJob and describe the change.

    Return an empty text if the TrainJob stores no string or was deleted.

    Raises:
        StatusError: the API server refused the change.
        ValueError: the number does not fit into 32 bits.
    """
    for tries in range(1, _TRIES + 1):
        stored = job.at("spec", "trainer", "numProcPerNode")
        if not isinstance(stored, str):
            return ""
        patch, change = _patch_of(stored, job.text("metadata", "resourceVersion"))
        body = raw_patch(MERGE, json.dumps(patch).encode())
        try:
            await cluster.client.patch(
                KIND.wrap(dict(job.data)), body, field_owner=live.FIELD_OWNER, dry_run=dry_run
            )
        except NotFoundError:
            return ""
        except ConflictError:
            if tries == _TRIES:
                raise
            try:
                job = LiveObject((await cluster.client.get(KIND, (job.namespace, job.name))).to_dict())
            except NotFoundError:
                return ""
        else:
            return change
    return ""


def _patch_of(stored: str, version: str) -> tuple[dict[str, object], str]:
    """Return the merge patch for a stored string, and a description of the change.

    If the string is a number, the patch stores this number in the field. Otherwise it moves the string to the
    annotation.

    Raises:
        ValueError: the number does not fit into 32 bits.
    """
    value = generations.number_or_word(stored)
    metadata: dict[str, object] = {"resourceVersion": version}
    if isinstance(value, int):
        change = f'"{stored}" is stored as the number {value}'
        return {"metadata": metadata, "spec": {"trainer": {"numProcPerNode": value}}}, change
    metadata["annotations"] = {NUM_PROC_PER_NODE_ANNOTATION: value}
    change = f'"{stored}" is stored in the annotation {NUM_PROC_PER_NODE_ANNOTATION}'
    return {"metadata": metadata, "spec": {"trainer": {"numProcPerNode": None}}}, change
