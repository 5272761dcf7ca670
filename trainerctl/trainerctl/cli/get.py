# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl get``: prints the TrainJobs of a namespace, or one TrainJob with its JobSet, Jobs and pods."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.meta import format_time
from controller_runtime.rest import RestError
from pkg.apis.jobset.labels import JOB_SET_NAME_KEY
from pkg.why import (
    PENDING,
    QUEUE_LABEL,
    LiveObject,
    Snapshot,
    deadline_of,
    deletion_of,
    kinds,
    places,
    reading,
)
from pkg.why.liveobject import ago, number
from pkg.why.phase import Phase, cells, phase, state, tree
from pkg.why.snapshot import NOT_INSTALLED

from trainerctl.cli import live, streams, trainerstatus
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputError

HEAD: Final = ("NAMESPACE", "NAME", "STATE", "AGE", "RUNTIME", "PROGRESS")
TREE_HEAD: Final = ("NAME", "STATE", "AGE", "DETAIL")
_QUEUES: Final = 20
"""The positions in at most this many LocalQueues are read."""
_NAMES: Final = 100
"""The pods of this many TrainJobs are read by one request."""


async def get_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print TrainJobs.

    Raises:
        InputError: a name is given together with ``--all-namespaces``, or ``--watch`` together with an output format
            other than ``table``.
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
            print_tree(await cluster.snapshot(arguments.name, explains=False), out)
            return 0
        if arguments.name:
            found = await cluster.client.get(KIND, (cluster.namespace, arguments.name))
            _write(arguments.output, [LiveObject(found.to_dict())], out, single=True)
            return 0
        listed = await cluster.all(kinds.TRAIN_JOB, namespace=namespace)
        others, queued = [], {}
        if arguments.output == "table":
            others, queued = await _others(cluster, listed, namespace), await _places(cluster, listed)
    if arguments.output != "table":
        _write(arguments.output, listed, out, single=False)
    elif not listed:
        streams.say_error(f"no TrainJobs found{f' in namespace {namespace}' if namespace else ''}")
    else:
        first = 1 if namespace else 0  # the column of the namespace is shown only for all namespaces
        now = cluster.clock.corrected(datetime.now(UTC))
        out.table(HEAD[first:], [row[first:] for row in rows_of(listed, others, now, queued=queued)])
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


async def _others(cluster: live.Connection, jobs: Sequence[LiveObject], namespace: str) -> list[LiveObject]:
    """Return the objects that make the states of the TrainJobs more exact, as far as they can be read.

    JobSets are read if a TrainJob has several steps, and pods only of TrainJobs that have pods that are not ready.
    """
    unfinished = [job for job in jobs if phase(job) in (Phase.PENDING, Phase.RUNNING)]
    found: list[LiveObject] = []
    if any(len(job.maps("status", "jobsStatus")) > 1 for job in unfinished):
        with suppress(StatusError, RestError):
            found = await cluster.all(kinds.JOB_SET, namespace=namespace)
    waiting = sorted(
        (job.namespace, job.name)
        for job in unfinished
        if any(number(each, "active") > number(each, "ready") for each in job.maps("status", "jobsStatus"))
    )
    for place, keys in itertools.groupby(waiting, key=lambda each: each[0]):
        names = [name for _, name in keys]
        for first in range(0, len(names), _NAMES):
            labels = {JOB_SET_NAME_KEY: names[first : first + _NAMES]}
            selection = reading.Selection(namespace=place, labels=labels)
            with suppress(StatusError, RestError):
                found += (await reading.listed(cluster.client, kinds.VERSIONS[kinds.POD][0], selection))[0]
    return found


async def _places(cluster: live.Connection, jobs: Sequence[LiveObject]) -> dict[str, str]:
    """Return the positions of suspended TrainJobs in the queues of Kueue, by UID, as far as they can be read."""
    queues = {
        (job.namespace, queue)
        for job in jobs
        if (queue := job.label(QUEUE_LABEL)) and phase(job) is Phase.SUSPENDED
    }
    found: dict[str, str] = {}
    for place, queue in sorted(queues)[:_QUEUES]:
        waiting, unread = await reading.pending(cluster.client.transport, place, queue)
        if unread == NOT_INSTALLED:
            break
        found |= places(waiting)
    return found


def rows_of(
    jobs: Iterable[LiveObject],
    others: Iterable[LiveObject],
    now: datetime,
    *,
    ages: bool = True,
    queued: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, ...]]:
    """Yield a row with the columns of ``HEAD`` for each TrainJob, sorted by namespace and name.

    ``others`` are JobSets and pods of the TrainJobs, and ``queued`` the positions in queues by UID. Without ``ages``,
    the age of the progress is left out.
    """
    job_sets: dict[tuple[str, str], LiveObject] = {}
    pods: dict[tuple[str, str], list[LiveObject]] = {}
    for each in others:
        if each.kind == "JobSet":
            job_sets[each.namespace, each.name] = each
        else:
            pods.setdefault((each.namespace, each.label(JOB_SET_NAME_KEY)), []).append(each)
    for job in sorted(jobs, key=lambda each: (each.namespace, each.name)):
        key = job.namespace, job.name
        shown = state(job, job_sets.get(key), pods.get(key, ()))
        runtime = job.text("spec", "runtimeRef", "name")
        yield *key, shown, ago(job.created, now), runtime, _progress(job, now, queued or {}, ages=ages)


def _progress(job: LiveObject, now: datetime, queued: Mapping[str, str], *, ages: bool) -> str:
    """Return how far a TrainJob is: its position in its queue, and what its pods have reported."""
    report = trainerstatus.report_of(job)
    shown = "" if report is None else report.aged(now) if ages else report.summary
    return "; ".join(filter(None, (queued.get(job.uid), shown)))


def tree_rows(snapshot: Snapshot, *, ages: bool = True) -> Iterator[tuple[str, ...]]:
    """Yield a row with the columns of ``TREE_HEAD`` for a TrainJob and each object below it."""
    for row in tree(snapshot):
        *others, detail = cells(row, snapshot.now)
        if row.depth == 0:
            detail = _progress(row.obj, snapshot.now, places(snapshot.all(PENDING)), ages=ages)
            attempts, deletion = row.obj.number("status", "executionAttempts"), deletion_of(snapshot)
            started = f"started {attempts + 1} times" if attempts > 0 else ""
            expiry = str(deletion) if deletion is not None else ""
            if (fails := deadline_of(snapshot)) is not None:
                expiry = f"deadline {format_time(fails)}"
            detail = ", ".join(filter(None, (detail, started, expiry)))
        yield *others, detail


def print_tree(snapshot: Snapshot, out: Console) -> None:
    """Print a TrainJob with its JobSet, Jobs and pods."""
    out.table(TREE_HEAD, tree_rows(snapshot))
