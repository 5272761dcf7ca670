# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl logs``: prints the logs of a TrainJob's pods. Flags select the step and the rank."""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Final

import anyio
from controller_runtime import rest
from controller_runtime.client import LogOptions
from controller_runtime.machinery import JSON
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.printable import printable_line
from pkg.apis.jobset.labels import JOB_INDEX_KEY, JOB_SET_NAME_KEY
from pkg.constants.trainer import LAUNCHER
from pkg.why import LiveObject, Snapshot, by_end, container_of, keep, kinds, last_end, reading, removed
from pkg.why.liveobject import at, number, text
from pkg.why.phase import training_step
from pkg.why.snapshot import finished, rank_of, step_of

from trainerctl.cli import live, removedpods, streams
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console

_POLL: Final = 1.0
_COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "red")


async def logs_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the logs. Return 1 if a log cannot be read, or if no pod matches.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        snapshot = await cluster.snapshot(arguments.name)
        step, said = (arguments.step, "") if arguments.step else step_to_read(snapshot)
        if said:
            streams.say_note(said)
        pods = pods_of(snapshot, step)
        if not arguments.all:
            rank = arguments.rank
            if rank is None:
                rank, said = first_failed(snapshot, step)
                if said and len(pods) > 1:
                    err.say(said)
            pods = [pod for pod in pods if rank_of(pod) == rank]
        if not pods:
            streams.say_error(no_pod(snapshot, step))
            return 1
        styles = itertools.cycle(_COLOURS if len(pods) > 1 else ("",))
        latest = _Latest(cluster, arguments.name)
        logs = [
            _Log(cluster, snapshot, pod, arguments, out, style)
            for pod, style in zip(pods, styles, strict=False)
        ]
        if not arguments.follow:
            return max([await each.print() for each in logs])
        async with anyio.create_task_group() as group:
            for each in logs:
                group.start_soon(each.follow, latest, err)
    return max(each.code for each in logs)


def step_to_read(snapshot: Snapshot) -> tuple[str, str]:
    """Return the step whose log says most, and a sentence if this is not the step that trains.

    Until JobSet creates the Job of the step that trains, this is the first step that has failed, or a step that runs.
    With MPI, only a failure counts, because the other step only runs an SSH server.
    """
    step = training_step(snapshot)
    if kinds.JOB in snapshot.unread or any(step_of(job) == step for job in snapshot.all_jobs):
        return step, ""
    other, what = "", ""
    for status in by_end(snapshot):
        if (
            not what
            and (code := number(last_end(status), "exitCode"))
            and (status.is_kept or not status.is_gone)
        ):
            other, what = step_of(status.pod), f"failed with exit code {code}"
    if not what and step != LAUNCHER and snapshot.running:
        other, what = step_of(snapshot.running[0]), "runs"
    return (
        (other, f"Step {step} has not started. This is the log of step {other}, which {what}.")
        if what
        else (step, "")
    )


def pods_of(snapshot: Snapshot, step: str) -> list[LiveObject]:
    """Return the pods of a step, sorted by rank. A rank whose pod was removed has its kept pod, if there is one."""
    pods = [pod for pod in snapshot.pods if step_of(pod) == step]
    ranks = {rank_of(pod) for pod in pods}
    kept = [pod for pod in snapshot.removed if step_of(pod) == step and rank_of(pod) not in ranks]
    return sorted([*pods, *kept], key=rank_of)


def first_failed(snapshot: Snapshot, step: str) -> tuple[int, str]:
    """Return the rank that failed first, and a sentence about it. If none has failed, return 0 and an empty text.

    In distributed training, the failure of one rank makes the others fail.
    """
    for status in by_end(snapshot):
        if (code := number(last_end(status), "exitCode")) and step_of(status.pod) == step:
            rank = rank_of(status.pod)
            others = "For others, add --rank N or --all."
            return rank, f"Rank {rank} of step {step} failed first (exit code {code}). {others}"
    return 0, ""


def no_pod(snapshot: Snapshot, step: str) -> str:
    """Return a message about a step of which no pod can be read.

    It says how removed pods ended, and what a person can do. It must not name a command that leads back here.
    """
    job = snapshot.train_job
    if reason := snapshot.unread.get(kinds.POD):
        return f"the pods of step {step} cannot be read: {reason}"
    known = [each for each in removed(snapshot) if step_of(each.pod) == step]
    ends = [printable_line(f"{each.line}: {each.message}" if each.message else each.line) for each in known]
    jobs = [each for each in snapshot.jobs if step_of(each) == step]
    is_over = job.is_true("Failed") or any(each.is_true("Failed") for each in jobs)
    steps = {text(each, "name") for each in job.maps("status", "jobsStatus")} | {
        step_of(each) for each in snapshot.jobs
    }
    has_none = not pods_of(snapshot, step)
    named = f"{job.name} -n {job.namespace}"
    if step in steps and snapshot.all_jobs and not jobs and not known:
        return f"step {step} has not started; see trainerctl why {named}"
    if known or (is_over and (not steps or step in steps) and has_none):
        stored = keep(job.namespace, f"{job.name}-{step}-")
        return "\n".join([f"the pods of step {step} are removed, and their logs with them", *ends, stored])
    if has_none and (not steps or step in steps):
        return f"step {step} has no pod; see trainerctl why {named}"
    return f"no pod of step {step} matches; see trainerctl get {named}"


def container_to_read(pod: LiveObject) -> tuple[str, str]:
    """Return the container whose log says most about a pod, and a sentence if this is an init container.

    Until the container that does the work has run, this is an init container that has failed or runs.
    """
    name = container_of(pod)
    if _has_run(pod, name):
        return name, ""
    restarting = {
        text(each, "name")
        for each in pod.maps("spec", "initContainers")
        if text(each, "restartPolicy") == "Always"
    }
    running = ""
    for each in pod.maps("status", "initContainerStatuses"):
        init, ended = (
            text(each, "name"),
            at(each, "state", "terminated") or at(each, "lastState", "terminated"),
        )
        if code := number(ended, "exitCode"):
            failed = f"Container {name} has not started. This is the log of the init container {init}, which failed "
            return init, f"{failed}with exit code {code}."
        if at(each, "state", "running") is not None and init not in restarting:
            running = running or init
    if not running:
        return name, ""
    return (
        running,
        f"Container {name} has not started. This is the log of the init container {running}, which runs.",
    )


def _status_of(pod: LiveObject, container: str) -> JSON:
    states = (*pod.maps("status", "initContainerStatuses"), *pod.maps("status", "containerStatuses"))
    return next((each for each in states if text(each, "name") == container), {})


def _has_run(pod: LiveObject, container: str) -> bool:
    """Return True if a container runs, or has run, so that it has a log."""
    status = _status_of(pod, container)
    now = any(at(status, "state", each) is not None for each in ("running", "terminated"))
    return now or at(status, "lastState", "terminated") is not None


def earlier_pod(snapshot: Snapshot, pod: LiveObject) -> LiveObject | None:
    """Return the pod that had the step and the rank of ``pod`` before it, or None if no such pod is left."""
    began = pod.text("metadata", "creationTimestamp")
    place = step_of(pod), pod.label(JOB_INDEX_KEY), rank_of(pod)
    found = {
        each.uid: each
        for each in (*snapshot.removed_pods, *snapshot.all_pods)
        if (step_of(each), each.label(JOB_INDEX_KEY), rank_of(each)) == place
        and each.uid != pod.uid
        and each.text("metadata", "creationTimestamp") <= began
    }
    return max(found.values(), key=lambda each: each.text("metadata", "creationTimestamp"), default=None)


class _Latest:
    """The TrainJob and its pods, as all followed logs need them. They are read at most once every ``_POLL`` seconds."""

    def __init__(self, cluster: live.Connection, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._lock = anyio.Lock()
        self._due = -math.inf
        self._found: tuple[LiveObject, list[LiveObject]]

    async def read(self) -> tuple[LiveObject, list[LiveObject]]:
        """Return the TrainJob and the pods of all steps."""
        async with self._lock:
            if anyio.current_time() >= self._due:
                client, namespace = self._cluster.client, self._cluster.namespace
                job = LiveObject((await client.get(KIND, (namespace, self._name))).to_dict())
                selection = reading.Selection(namespace=namespace, labels={JOB_SET_NAME_KEY: self._name})
                pods, _ = await reading.listed(client, kinds.VERSIONS[kinds.POD][0], selection)
                self._found, self._due = (job, pods), anyio.current_time() + _POLL
            return self._found


class _Log:
    """The log of one pod; with a ``style``, each line starts with step and rank."""

    def __init__(
        self,
        cluster: live.Connection,
        snapshot: Snapshot,
        pod: LiveObject,
        arguments: argparse.Namespace,
        out: Console,
        style: str,
    ) -> None:
        self._cluster = cluster
        self._snapshot = snapshot
        self._pod = pod
        self._arguments = arguments
        self._out = out
        self._style = style
        self._tail = arguments.tail
        self.code = 0

    async def print(self) -> int:
        """Print the log, or follow it until the container ends. Return the exit code."""
        named = f"{self._arguments.name} -n {self._pod.namespace}"
        container, said = self._arguments.container, ""
        if not container:
            container, said = container_to_read(self._pod)
        pod, previous = self._pod, self._arguments.previous
        if previous and _has_run(pod, container) and not number(_status_of(pod, container), "restartCount"):
            earlier = earlier_pod(self._snapshot, pod)
            if earlier is None:
                streams.say_error(
                    f"container {container} of {pod.name} has not restarted, and no earlier pod of its rank is left; "
                    f"without --previous, its log is that of its only run"
                )
                self.code = 1
                return self.code
            pod, previous, said = earlier, False, f"This is the log of the earlier pod {earlier.name}."
        status = _status_of(pod, container)
        if not _has_run(pod, container) and (status or not pod.maps("status", "containerStatuses")):
            reason, message = (text(status, "state", "waiting", each) for each in ("reason", "message"))
            because = f" ({': '.join(filter(None, (reason, message)))})" if reason else ""
            streams.say_error(
                f"container {container} of {pod.name} has not started{because}; see trainerctl why {named}"
            )
            self.code = 1
            return self.code
        if said:
            streams.say_note(said)
        try:
            is_empty = await self._print_of(pod, container, previous=previous)
        except (StatusError, rest.RestError) as error:
            streams.say_error(f"{pod.name}: {error}")
            self.code = 1
            return self.code
        if is_empty:
            ended = at(status, "lastState" if previous else "state", "terminated")
            end = f" and ended with exit code {number(ended, 'exitCode')}" if ended is not None else ""
            because = ": ".join(filter(None, (text(ended, "reason"), text(ended, "message").strip())))
            streams.say_note(
                f"container {container} of {pod.name} wrote no log{end}{f' ({because})' if because else ''}"
            )
        return self.code

    async def _print_of(self, pod: LiveObject, container: str, *, previous: bool) -> bool:
        """Print the log of a container of a pod, which may be removed. Return True if the log is empty."""
        is_empty, tail = True, self._tail
        if any(each.uid == pod.uid for each in self._snapshot.removed_pods):
            # The last run may only have been stopped with its pod; the run before it then contains the error.
            ends = [each for each in removed(self._snapshot) if each.pod.uid == pod.uid]
            previous |= any(each.is_previous for each in ends if each.name == container)
            kept = self._cluster.removed and removedpods.log(
                self._cluster.removed, pod, container, tail=tail, previous=previous
            )
            for line in kept or ():
                self._say(line.expandtabs())
                is_empty = False
            return is_empty
        options = LogOptions(container=container, previous=previous)
        if tail is not None:
            options["tail_lines"] = tail
        logs, target = self._cluster.client.subresource("log"), reading.pod_named(pod.namespace, pod.name)
        async with logs.stream(target, follow=self._arguments.follow, **options) as lines:
            async for line in lines:
                self._say(line.expandtabs())
                is_empty = False
        return is_empty and tail != 0

    async def follow(self, latest: _Latest, err: Console) -> None:
        """Follow the log through restarts of the container and new pods of the rank, until the TrainJob has ended."""
        step, rank = step_of(self._pod), rank_of(self._pod)
        seen: set[tuple[str, int]] = set()
        while True:
            if (run := self._run()) is not None and run not in seen:
                if seen:
                    err.say(f"Rank {rank} of step {step} runs again: Pod {self._pod.name}, restart {run[1]}")
                    self._tail = None
                seen.add(run)
                await self.print()
            job, found = await latest.read()
            pods = [pod for pod in found if (step_of(pod), rank_of(pod)) == (step, rank)]
            self._pod = max(
                pods, key=lambda each: each.text("metadata", "creationTimestamp"), default=self._pod
            )
            ended = self._pod.text("status", "phase") == "Succeeded" or self._arguments.previous
            if ended or finished(job) or job.deleted or job.at("spec", "suspend") is True:
                if not seen and finished(job):
                    await self.print()  # the log of an init container, or the reason why there is no log
                return
            await anyio.sleep(_POLL)

    def _run(self) -> tuple[str, int] | None:
        """Return the pod and the number of the container's run, or None if the container has not run yet."""
        name = self._arguments.container or container_of(self._pod)
        for each in (
            *self._pod.maps("status", "initContainerStatuses"),
            *self._pod.maps("status", "containerStatuses"),
        ):
            has_run = at(each, "state", "waiting") is None or at(each, "lastState", "terminated") is not None
            if text(each, "name") == name and has_run:
                return self._pod.uid, number(each, "restartCount")
        return None

    def _say(self, line: str) -> None:
        prefix = ((f"[{step_of(self._pod)} {rank_of(self._pod)}] ", self._style),) if self._style else ()
        self._out.say(*prefix, line)
