# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl get``: the TrainJobs of a namespace, or one with its JobSet, Jobs and pods."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from controller_runtime.apis.machinery.object import Unstructured, unstructured

from pkg.cli import live, streams
from pkg.cli.terminal import Console
from pkg.why import Thing, kinds
from pkg.why.phase import phase, tree
from pkg.why.snapshot import Snapshot
from pkg.why.things import ago

KIND: Final = unstructured(kinds.VERSIONS[kinds.TRAIN_JOB][0])
_PAGE: Final = 500


async def get_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print TrainJobs.

    Raises:
        StatusError: they cannot be read.
    """
    async with live.connect(arguments) as cluster:
        if arguments.name and arguments.output == "table":
            print_tree(await cluster.snapshot(arguments.name), out)
            return 0
        if arguments.name:
            found = await cluster.client.get(KIND, (cluster.namespace, arguments.name))
            out.write(arguments.output, found.to_dict())
            return 0
        namespace = "" if arguments.all_namespaces else cluster.namespace
        listed = await _list(cluster, namespace)
    if arguments.output != "table":
        items = [each.to_dict() for each in listed]
        out.write(arguments.output, {"apiVersion": "v1", "kind": "List", "items": items})
    elif not listed:
        streams.say_error(f"no TrainJobs found{f' in namespace {namespace}' if namespace else ''}")
    else:
        _print_table([Thing(each.to_dict()) for each in listed], out, with_namespace=not namespace)
    return 0


async def _list(cluster: live.Cluster, namespace: str) -> list[Unstructured]:
    found: list[Unstructured] = []
    token = ""
    while True:
        page = await cluster.client.list(KIND, namespace=namespace, limit=_PAGE, continue_token=token)
        found += page
        if not (token := page.continue_token):
            return found


def _print_table(jobs: Iterable[Thing], out: Console, *, with_namespace: bool) -> None:
    now = datetime.now(UTC)
    head = (*(("NAMESPACE",) if with_namespace else ()), "NAME", "STATE", "AGE", "RUNTIME")
    rows: list[Sequence[str]] = []
    for job in sorted(jobs, key=lambda each: (each.namespace, each.name)):
        first = (job.namespace,) if with_namespace else ()
        rows.append(
            (*first, job.name, phase(job), ago(job.created, now), job.text("spec", "runtimeRef", "name"))
        )
    out.table(head, rows)


def print_tree(snapshot: Snapshot, out: Console) -> None:
    """Print a TrainJob with its JobSet, Jobs and pods."""
    rows = [
        (
            f"{'  ' * row.depth}{row.obj.kind}/{row.obj.name}",
            row.status,
            ago(row.obj.created, snapshot.now),
            row.reason,
        )
        for row in tree(snapshot)
    ]
    out.table(("NAME", "STATE", "AGE", "DETAIL"), rows)
