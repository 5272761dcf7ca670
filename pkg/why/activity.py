# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What is known about a TrainJob that runs or starts: what its containers do, since when, and their last output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from pkg.why import kinds
from pkg.why.causes.containers import container_of, logs_command
from pkg.why.causes.statuses import Status, of_pod
from pkg.why.liveobject import ago, at, moment
from pkg.why.phase import training_step
from pkg.why.snapshot import Snapshot, rank_of, runs, step_of

_MOST: Final = 3
"""The output of at most this many containers is read, and at most this many pods are named."""
_WIDTH: Final = 120
_SILENT: Final = timedelta(minutes=5)
"""A training that prints nothing for this time may hang."""


def watched(snapshot: Snapshot) -> list[Status]:
    """Return the first running containers whose output shows what the TrainJob does.

    These are the containers of the step that trains, by rank, and an init container that keeps a rank from starting.
    Until one of its pods runs, they are the containers of other steps and the init containers.
    """
    step, found = training_step(snapshot), list(_running(snapshot))
    training = [each for each in found if step_of(each.pod) == step and not each.is_init]
    late = [each for each in found if each.is_init and step_of(each.pod) == step]
    return [*training[:_MOST], *late[:1]] if training else found[:_MOST]


def _running(snapshot: Snapshot) -> Iterator[Status]:
    for pod in sorted(snapshot.pods, key=lambda each: (step_of(each), rank_of(each), each.name)):
        states = [each for each in of_pod(pod) if at(each.data, "state", "running") is not None]
        if runs(pod):
            yield from (each for each in states if not each.is_init and each.name == container_of(pod))
        elif pod.deleted is None:
            yield from (each for each in states if each.is_init)


def facts(snapshot: Snapshot, seen: Iterable[Status]) -> list[str]:
    """Return in words what the watched containers of a TrainJob do that runs or starts."""
    shown = [_line(snapshot, each) for each in seen] or list(_of_waiting(snapshot))
    if (reported := _reported(snapshot)) is not None:
        shown.append(f"the pods reported their progress {ago(reported, snapshot.now)} ago")
    return shown


def lines(snapshot: Snapshot) -> list[str]:
    """Return the facts and, if there has been no sign of progress for some time, what to do if the training hangs."""
    seen, reported = watched(snapshot), _reported(snapshot)
    shown = facts(snapshot, seen)
    signs = [_last(snapshot, each)[0] or moment(each.data, "state", "running", "startedAt") for each in seen]
    last = max(filter(None, [*signs, reported]), default=None)
    if seen and last is not None and snapshot.now - last >= _SILENT:
        shown.append(f"if it hangs, {_advice(snapshot, seen[0])}")
    return shown


def _reported(snapshot: Snapshot) -> datetime | None:
    return moment(snapshot.train_job.at("status", "trainerStatus"), "lastUpdatedTime")


def _line(snapshot: Snapshot, status: Status) -> str:
    since = moment(status.data, "state", "running", "startedAt")
    line = f"{status.label} of {status.pod} has run for {ago(since, snapshot.now)}"
    if (status.pod.name, status.name) not in snapshot.outputs:
        return line
    at_time, words = _last(snapshot, status)
    if at_time is None:
        return f"{line} and has printed nothing"
    return f"{line}; its last output, {ago(at_time, snapshot.now)} ago: {words}"


def _last(snapshot: Snapshot, status: Status) -> tuple[datetime | None, str]:
    """Return when a container printed its last line, and the line."""
    for each in reversed(snapshot.outputs.get((status.pod.name, status.name), ())):
        stamp, _, words = each.partition(" ")
        words = " ".join(words.rpartition("\r")[2].split())
        if words and (at_time := moment({"at": stamp}, "at")) is not None:
            return at_time, words if len(words) <= _WIDTH else f"{words[:_WIDTH]}…"
    return None, ""


def _advice(snapshot: Snapshot, status: Status) -> str:
    if status.is_init:
        return f"read its log: {logs_command(snapshot, status)}"
    job, pod, dump = snapshot.train_job, status.pod, "py-spy dump --subprocesses --pid 1"
    node = next(
        (each for each in snapshot.all(kinds.NODE) if each.name == pod.text("spec", "nodeName")), None
    )
    if node is not None and node.annotation(kinds.LOCAL_CLUSTER):  # there, other processes have the PID 1
        dump = "sh -c 'py-spy dump --subprocesses --pid ${CONTAINER_PID:-1}'"
    place = f"--step {step_of(pod)} --rank {rank_of(pod)}"
    return f"look inside: trainerctl exec {job.name} -n {job.namespace} {place} -- {dump}"


def _of_waiting(snapshot: Snapshot) -> Iterator[str]:
    """Yield what exists of a TrainJob of which no container runs."""
    if snapshot.job_set is None:
        yield "its JobSet does not exist yet"
    elif not snapshot.all_jobs and kinds.JOB not in snapshot.unread:
        yield "its JobSet has no Jobs yet"
    for job in [each for each in snapshot.jobs if snapshot.missing_pods(each)][:_MOST]:
        count = snapshot.missing_pods(job)
        yield f"{job}, {ago(job.created, snapshot.now)} old, lacks {count} pod{'s' if count > 1 else ''}"
    for pod in snapshot.pods[:_MOST]:
        waits = [f"{each.label} waits: {each.waiting}" for each in of_pod(pod) if each.waiting]
        node = pod.text("spec", "nodeName")
        where = f"on node {node}" if node else "without a node"
        yield ", ".join([f"{pod}, {ago(pod.created, snapshot.now)} old, {where}", *waits[:1]])
