# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl get``: the TrainJobs of a namespace, or one TrainJob with its JobSet, Jobs and pods."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from controller_runtime.machinery import unstructured
from pkg.why import LiveObject, Snapshot, kinds
from pkg.why.liveobject import ago
from pkg.why.phase import cells, phase, tree

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputError

HEAD: Final = ("NAMESPACE", "NAME", "STATE", "AGE", "RUNTIME")
KIND: Final = unstructured(kinds.VERSIONS[kinds.TRAIN_JOB][0])


async def get_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print TrainJobs.

    Raises:
        InputError: both a name and ``--all-namespaces`` are given, or ``--watch`` with an output format other than
            ``table``.
        StatusError: the TrainJobs cannot be read.
    """
    if arguments.name and arguments.all_namespaces:
        raise InputError("NAME and --all-namespaces exclude each other: use --namespace")
    if arguments.watch and arguments.output != "table":
        raise InputError("--watch supports only the output format table")
    async with live.connect(arguments) as cluster:
        namespace = "" if arguments.all_namespaces else cluster.namespace
        if arguments.watch:
            return await _watch(cluster, arguments, namespace, out)
        if arguments.name and arguments.output == "table":
            print_tree(await cluster.snapshot(arguments.name), out)
            return 0
        if arguments.name:
            found = await cluster.client.get(KIND, (cluster.namespace, arguments.name))
            _write(arguments.output, [LiveObject(found.to_dict())], out, single=True)
            return 0
        listed = await cluster.all(kinds.TRAIN_JOB, namespace=namespace)
    if arguments.output != "table":
        _write(arguments.output, listed, out, single=False)
    elif not listed:
        streams.say_error(f"no TrainJobs found{f' in namespace {namespace}' if namespace else ''}")
    else:
        first = 1 if namespace else 0  # the column of the namespace is shown only for all namespaces
        out.table(HEAD[first:], [row[first:] for row in rows_of(listed)])
    return 0


async def _watch(
    cluster: live.Connection, arguments: argparse.Namespace, namespace: str, out: Console
) -> int:
    from trainerctl.cli import watchtree  # rich's live display is slow to load

    if arguments.name:
        return await watchtree.watch_one(cluster, arguments.name, out)
    return await watchtree.watch_all(cluster, namespace, out)


def _write(output: str, jobs: Sequence[LiveObject], out: Console, *, single: bool) -> None:
    if output == "name":
        for each in jobs:
            out.say(f"trainjob.{KIND.gvk.group}/{each.name}")
        return
    items = [dict(each.data) for each in jobs]
    out.write(output, items[0] if single else {"apiVersion": "v1", "kind": "List", "items": items})


def rows_of(jobs: Iterable[LiveObject]) -> Iterator[tuple[str, ...]]:
    """Yield a row with the columns of ``HEAD`` for each TrainJob, sorted by namespace and name."""
    now = datetime.now(UTC)
    for job in sorted(jobs, key=lambda each: (each.namespace, each.name)):
        runtime = job.text("spec", "runtimeRef", "name")
        yield job.namespace, job.name, phase(job), ago(job.created, now), runtime


def print_tree(snapshot: Snapshot, out: Console) -> None:
    """Print a TrainJob with its JobSet, Jobs and pods."""
    out.table(("NAME", "STATE", "AGE", "DETAIL"), [cells(row, snapshot.now) for row in tree(snapshot)])
