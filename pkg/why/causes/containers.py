# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Containers that cannot start, fail, or are not ready."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from controller_runtime.machinery import JSON

from pkg.constants.trainer import DATASET_INITIALIZER, LAUNCHER, MODEL_INITIALIZER, NODE
from pkg.why.causes import outputs, references
from pkg.why.causes.statuses import Status, of_pod, statuses
from pkg.why.finding import Finding, found
from pkg.why.liveobject import MOST_MATCHED, LiveObject, ago, at, moment, number, seconds, text
from pkg.why.rules import Severity, keep, remedy
from pkg.why.snapshot import Snapshot, event_time, rank_of, step_of

_CONFIG: Final = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PostStartHookError",
    "ProcessesUnsupported",
)
"""The waiting reasons of containers that cannot be created. Only the local cluster uses ``ProcessesUnsupported``."""
_KEY: Final = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)")
_NO_COMMAND: Final = re.compile(
    r"executable file `[^`]{1,200}` not found"
    r"|\[Errno 8\] Exec format error"
    r"|(?<!fork/)\bexec(?:: \\?\"| /)(?!nvidia-container)[^\n]{0,200}?"
    r"(?:executable file not found|no such file or directory|permission denied|exec format error)",
    re.IGNORECASE,
)
"""A container runtime writes this if it cannot execute the command of a container.

It also reports devices, mounts and working directories as missing files, but without a command.
"""
_TO_CREATE: Final = (
    (re.compile(r"nvidia-container|libnvidia", re.IGNORECASE), "driver"),
    (re.compile(r"error mounting|failed to mount", re.IGNORECASE), "mount"),
    (re.compile(r"chdir to cwd", re.IGNORECASE), "directory"),
    (re.compile("local processes have no images"), "no-images"),
    (re.compile("local processes"), "no-containers"),
    (re.compile("no command specified"), "no-command"),
    (re.compile("memory limit too low"), "low-memory"),
    (re.compile("no space left on device"), "full-disk"),
    (re.compile("context deadline exceeded|failed to reserve container name"), "slow-node"),
    (re.compile(""), "setting"),
)
"""The remedy if a container cannot be created, by the message."""
_UNRESOLVED: Final = re.compile(
    r"name or service not known|temporary failure in name resolution|could not resolve host|no such host"
    r"|nodename nor servname|gaierror|hostname .{0,80}cannot be resolved",
    re.IGNORECASE,
)
_WARNING: Final = re.compile(r"\[W[^\]]*socket\.cpp")
_NO_RENDEZVOUS: Final = re.compile(r"DistNetworkError|client socket has timed out")
"""PyTorch warns while the name of the first node does not resolve yet, and ends with this error if it never does."""
_OTHER_MACHINE: Final = re.compile(r"\bexec(?: user process caused:?|[ /]\S*:) exec format error")
"""The first process prints this if the image is built for another architecture."""
_NOT_EXECUTED: Final = (126, 127)
"""A shell ends with these codes if it cannot execute a command or does not find it."""
_SIGNALS: Final = {
    130: "SIGINT",
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    136: "SIGFPE",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}
_BY_SIGNAL: Final = {132: "instruction", 135: "bus-error", 139: "segmentation-fault", 143: "terminated"}
"""The remedy for a container that a signal ended and whose output does not say more."""
_PROBED: Final = re.compile(r"Container (?P<name>\S{1,63}) failed (?P<probe>liveness|startup) probe")
_GRACE: Final = timedelta(seconds=30)
"""Kubernetes' default of terminationGracePeriodSeconds."""
_SKEW: Final = timedelta(seconds=5)
_KILLED: Final = 137
_KILLED_BY_KUBELET: Final = (137, 143)
_STABLE: Final = timedelta(minutes=10)
"""After a container has run for this time, the kubelet no longer delays its next restart."""
_UNREADY: Final = timedelta(minutes=5)
_WORK: Final = (NODE, LAUNCHER, DATASET_INITIALIZER, MODEL_INITIALIZER)
"""The containers that do the work of a pod. Others may run beside them."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on containers that cannot start, have failed or are not ready."""
    for status in by_end(snapshot):
        ended = status.ended
        failed = ended is not None and number(ended, "exitCode") != 0
        runs_again = at(status.data, "state", "running") is not None
        if status.waiting in _CONFIG or text(ended, "reason") in ("StartError", "ContainerCannotRun"):
            yield _unstartable(status)
        elif text(ended, "reason") == "OOMKilled":
            parts = (*status.pod.maps("spec", "containers"), *status.pod.maps("spec", "initContainers"))
            limits = [
                text(each, "resources", "limits", "memory")
                for each in parts
                if each.get("name") == status.name
            ]
            limit = f" of {limits[0]}" if limits and limits[0] else ""
            evidence = (status.line, *outputs.lines_of(snapshot, status))
            todo = _memory(status)
            yield found("out-of-memory", status.pod, *evidence, status=status, limit=limit, remedy=todo)
        elif text(ended, "reason") == "ContainerStatusUnknown":
            node = status.pod.text("spec", "nodeName")
            yield found("node-lost/container", status.pod, status.line, status=status, node=node)
        elif status.pod.text("status", "reason") == "DeadlineExceeded":
            continue  # the deadline of the pod ended the container
        elif (probed := _probed(snapshot, status)) is not None:
            yield probed
        elif status.waiting == "CrashLoopBackOff" or (failed and not runs_again and not status.pod.deleted):
            yield _failed(snapshot, status)
        elif (unstable := _unstable(snapshot, status)) is not None:
            yield unstable
    for pod in snapshot.running:
        yield from _unready(snapshot, pod)


def _memory(status: Status) -> str:
    """Return how to give a container more memory: the TrainJob sets only that of the training."""
    prepares = status.name in (DATASET_INITIALIZER, MODEL_INITIALIZER)
    is_other = status.is_init or prepares or status.name != container_of(status.pod)
    return remedy("other-memory" if is_other else "memory", name=status.name)


def logs_command(snapshot: Snapshot, status: Status) -> str:
    """Return the command that prints the log of a container."""
    job, pod = snapshot.train_job, status.pod
    command = f"trainerctl logs {job.name} -n {job.namespace} --step {step_of(pod)} --rank {rank_of(pod)}"
    if status.name != container_of(pod):
        command += f" --container {status.name}"
    return command + (" --previous" if status.is_previous else "")


def container_of(pod: LiveObject) -> str:
    """Return the name of the container that does the work. The launcher of MPI may run in a container ``node``."""
    names = [text(each, "name") for each in pod.maps("spec", "containers")]
    return next((each for each in (step_of(pod), NODE) if each in names), names[0] if names else "")


def failed_containers(snapshot: Snapshot) -> Iterator[Status]:
    """Yield the failed containers whose pods still exist or are kept, in the order in which the containers failed."""
    for status in by_end(snapshot):
        ended = last_end(status)
        if ended is not None and number(ended, "exitCode") != 0 and (status.is_kept or not status.is_gone):
            yield status


def by_end(snapshot: Snapshot) -> list[Status]:
    """Return the containers in the order in which they ended: in distributed training, one failure causes others.

    If the output of a container shows a cause, those that only report that another rank failed come last. Of the
    containers that ended in the same second, those that a signal ended come last, because other programs send signals,
    and lower ranks come first. The containers of a pod that has succeeded are left out: the kubelet may have killed its
    sidecars.
    """
    found = [each for each in statuses(snapshot) if each.pod.text("status", "phase") != "Succeeded"]
    has_cause = any(
        number(last_end(each), "exitCode") != 0 and outputs.is_consequence(snapshot, each) is False
        for each in found
    )

    def order(status: Status) -> tuple[bool, datetime, bool, int]:
        end, is_late = last_end(status), has_cause and outputs.is_consequence(snapshot, status) is True
        since = moment(end, "finishedAt") or snapshot.now
        return is_late, since, number(end, "exitCode") > 128, rank_of(status.pod)

    return sorted(found, key=order)


def last_end(status: Status) -> JSON:
    """Return the last termination of a container, even if the container runs again."""
    return status.ended or at(status.data, "lastState", "terminated")


def _unstartable(status: Status) -> Finding:
    messages = dict.fromkeys((status.message[:MOST_MATCHED], text(status.ended, "message")[:MOST_MATCHED]))
    words, pod = " ".join(messages), status.pod
    evidence = (status.line, *outputs.messages_of(status)[-1:])
    if (missing := references.not_found(words, pod, *evidence)) is not None:
        return missing
    if match := _KEY.search(words):
        key, kind, name = match["key"], match["kind"], match["name"].rpartition("/")[2]
        return found("key-missing", pod, *evidence, status=status, key=key, kind=kind, name=name)
    if _NO_COMMAND.search(words):
        return found("command-not-found", pod, *evidence, status=status, words=_last(words))
    name = next(name for pattern, name in _TO_CREATE if pattern.search(words))
    words, todo = words.strip() or status.waiting, remedy(name, node=pod.text("spec", "nodeName"))
    return found("container-create", pod, *evidence, status=status, words=words, remedy=todo)


def _failed(snapshot: Snapshot, status: Status) -> Finding:
    code, pod = number(status.ended, "exitCode"), status.pod
    words = outputs.messages_of(status)
    evidence = (status.line, *words[-2:], *outputs.lines_of(snapshot, status))
    for event in snapshot.events(pod, "FailedPostStartHook")[:1] if code in _KILLED_BY_KUBELET else ():
        line, hook = snapshot.quote(event), _last(event.text("message"))
        todo = remedy("setting")
        return found("container-create", pod, line, *evidence, status=status, words=hook, remedy=todo)
    shown = (
        *words,
        *(f"log of {status.name}: {line}" for line in outputs.log_of(snapshot, status)[-outputs.SEARCHED :]),
    )
    if other := [line for line in shown if _OTHER_MACHINE.search(line)]:
        return found("command-not-found", pod, *evidence, status=status, words=_last(other[-1]))
    is_lasting = any(map(_NO_RENDEZVOUS.search, shown))
    unresolved = [line for line in shown if _UNRESOLVED.search(line)]
    if unresolved := [line for line in unresolved if is_lasting or not _WARNING.search(line)]:
        return found("dns-failure", pod, unresolved[-1], *evidence, status=status, code=code)
    line, advice = outputs.told(snapshot, status)
    if code in _NOT_EXECUTED:
        said = text(status.ended, "message") or line or next(iter(outputs.log_of(snapshot, status)[-1:]), "")
        said = f": {_last(said)}" if said.strip() else ""
        return found(
            "command-not-found/shell", pod, *evidence, status=status, code=code, said=said, advice=advice
        )
    named: dict[str, Any] = {"status": status, "code": code}
    named["signal"] = f", {_SIGNALS[code]}" if code in _SIGNALS else ""
    again = " --previous" if status.waiting == "CrashLoopBackOff" else ""
    named["remedy"] = remedy("read-log", command=f"{logs_command(snapshot, status)}{again}")
    if snapshot.logs.get((pod.name, status.name)) == [] and not words:
        named["remedy"] = remedy("silent")
    if status.is_gone and not status.is_kept:
        named["remedy"] = remedy("pod-removed", keep=keep(snapshot.train_job.namespace, pod.name))
    named["said"] = f": {line}" if line else ""
    if code == _KILLED and status.waiting != "CrashLoopBackOff":
        node = pod.text("spec", "nodeName") or "of the pod"
        return found("container-failed/killed", pod, *evidence, node=node, **named)
    if not line and code in _BY_SIGNAL:
        advice = remedy(_BY_SIGNAL[code], node=pod.text("spec", "nodeName") or "of the pod")
    named["remedy"] = advice + named["remedy"]
    if status.waiting == "CrashLoopBackOff":
        times = "once" if status.restarts == 1 else f"{status.restarts} times"
        restarted = f", restarted {times}" if status.restarts else ""
        return found("crash-loop", pod, *evidence, restarted=restarted, **named)
    return found("container-failed", pod, *evidence, **named)


def _probed(snapshot: Snapshot, status: Status) -> Finding | None:
    """Return a finding if the kubelet killed the container because of a probe, unless it has run well since.

    For the first two restarts, the finding is a note.
    """
    pod, end = status.pod, moment(last_end(status), "finishedAt")
    since = moment(status.data, "state", "running", "startedAt")
    if end is None or (since is not None and snapshot.now - since > _STABLE):
        return None
    grace = seconds(pod.data, "spec", "terminationGracePeriodSeconds") or _GRACE
    for event in snapshot.events(pod, "Killing"):
        match, seen = _PROBED.search(event.text("message")[:MOST_MATCHED]), event_time(event)
        if match and match["name"] == status.name and seen and -_SKEW <= end - seen <= grace + _SKEW:
            severity = Severity.NOTE if since is not None and status.restarts < 3 else Severity.ERROR
            failures = (snapshot.quote(each) for each in (event, *snapshot.events(pod, "Unhealthy")[:1]))
            evidence = (status.line, *failures, *outputs.lines_of(snapshot, status))
            named: dict[str, Any] = {"status": status, "probe": match["probe"]}
            return found("probe-failing/killed", pod, *evidence, severity=severity, **named)
    return None


def _unstable(snapshot: Snapshot, status: Status) -> Finding | None:
    """Return a finding on a container that runs again after a failure, or None if it has been running for a long time.

    The finding is a note for the first two restarts, and an error from the third restart on.
    """
    last = at(status.data, "lastState", "terminated")
    since = moment(status.data, "state", "running", "startedAt")
    if last is None or since is None or number(last, "exitCode") == 0 or snapshot.now - since > _STABLE:
        return None
    rule = "out-of-memory/restarts" if text(last, "reason") == "OOMKilled" else "crash-loop/restarts"
    severity = Severity.ERROR if status.restarts >= 3 else Severity.NOTE
    line = f"{status.line}, running for {ago(since, snapshot.now)}"
    todo = remedy("read-log", command=f"{logs_command(snapshot, status)} --previous")
    named: dict[str, Any] = {"status": status, "code": number(last, "exitCode"), "remedy": todo}
    named["memory"] = _memory(status)
    return found(rule, status.pod, line, *outputs.lines_of(snapshot, status), severity=severity, **named)


def _unready(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    """Yield a finding on a running pod whose probe fails, or whose sidecars run although its work is done."""
    late = snapshot.now - _UNREADY
    since = moment(pod.condition("Ready"), "lastTransitionTime") or pod.created
    if not pod.is_true("Ready") and since is not None and since <= late:
        for event in snapshot.events(pod, "Unhealthy")[:1]:
            words = _last(event.text("message"))
            yield found("probe-failing", pod, snapshot.quote(event), pod=pod, words=words)
    states = [each for each in of_pod(pod) if not each.is_init]
    ends = [(each, at(each.data, "state", "terminated")) for each in states if each.name in _WORK]
    done = [
        (each, end)
        for each, ended in ends
        if (end := moment(ended, "finishedAt")) and end < late and not number(ended, "exitCode")
    ]
    others = [each for each in states if at(each.data, "state", "running") is not None]
    if not done or not others or any(each.name in _WORK for each in others):
        return
    status, end = done[0]
    evidence = [f"container {status.name} of {pod} succeeded {ago(end, snapshot.now)} ago"]
    evidence += [f"container {each.name} of {pod} still runs" for each in others]
    names = ", ".join(each.name for each in others)
    yield found("sidecar-running", pod, *evidence, status=status, names=names)


def _last(words: str) -> str:
    """Return the end of a long error text in one line. The end is usually the most specific part."""
    shown = " ".join(words.split())
    return shown if len(shown) <= 160 else f"…{shown[-160:]}"
