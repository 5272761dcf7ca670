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
from pkg.why.causes import references
from pkg.why.causes.statuses import Status, of_pod, statuses
from pkg.why.finding import Finding, found
from pkg.why.liveobject import MOST_MATCHED, LiveObject, ago, at, moment, number, text
from pkg.why.rules import Severity, keep
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
    (
        re.compile(r"nvidia-container|libnvidia", re.IGNORECASE),
        "Check the GPU driver and the NVIDIA Container Toolkit of the node {node}, or use another node.",
    ),
    (
        re.compile(r"error mounting|failed to mount", re.IGNORECASE),
        "Correct the volume or the volumeMount that the message names, or check the storage of the node {node}.",
    ),
    (
        re.compile(r"chdir to cwd", re.IGNORECASE),
        "Correct workingDir in the runtime, or use an image that contains this directory for the container's user.",
    ),
    (
        re.compile("local processes have no images"),
        (
            "Set spec.trainer.command to the program of the image, and install what it needs on this machine, or use a "
            "local cluster without --run-processes, which simulates the pods."
        ),
    ),
    (
        re.compile("local processes"),
        "Use a cluster that runs containers, or a local cluster without --run-processes, which simulates the pods.",
    ),
    (re.compile(""), "Correct the setting that the message names, in the TrainJob or its runtime."),
)
"""The advice if a container cannot be created, by the message."""
_UNRESOLVED: Final = re.compile(
    r"name or service not known|temporary failure in name resolution|could not resolve host|no such host"
    r"|nodename nor servname|gaierror|hostname .{0,80}cannot be resolved",
    re.IGNORECASE,
)
_WARNING: Final = re.compile(r"\[W[^\]]*socket\.cpp")
_NO_RENDEZVOUS: Final = re.compile(r"DistNetworkError|client socket has timed out")
"""PyTorch warns while the name of the first node does not resolve yet, and ends with this error if it never does."""
_RANK: Final = r"(?:\[(?:rank|default)\d{1,6}\]: ?)?"
"""PyTorch begins the lines of an error with its rank, and torchrun begins all lines of a process with it."""
_TRACEBACK: Final = re.compile(
    rf'{_RANK}(?:Traceback \(most recent call last\)|  File "[^"\n]{{1,500}}", line \d)'
)
_ERROR: Final = r"(?:[A-Za-z_][\w.]{0,200})?(?:Error|Exception|Interrupt|Exit|Timeout|Failure)(?:: |:?$)"
_RAISED: Final = re.compile(f"{_RANK}{_ERROR}")
"""The line of an error after its traceback."""
_JOINED: Final = re.compile(rf'", line \d.*\s({_ERROR}.*)')
"""An error after its traceback in the text of an event, which has one line."""
_LAUNCHER: Final = "errors.ChildFailedError"
"""torchrun raises this error after a worker has failed. Its traceback and its table follow the log of the worker."""
_SAID: Final = {
    r"CUDA out of memory|CUDA error: out of memory|HIP out of memory|RESOURCE_EXHAUSTED: Out of memory": (
        "The memory of the GPU ran out: use a smaller batch or shorter sequences, checkpoint activations, or shard the "
        "model over more GPUs. "
    ),
    r"[Ww]atchdog caught collective operation timeout|ncclRemoteError|NCCL communicator was aborted": (
        "The ranks waited for each other: a rank that failed, hangs or is slow is the cause. Compare all logs: "
        "{everything}. "
    ),
    r"\d{1,6}/\d{1,6} clients joined|RendezvousTimeoutError|RendezvousConnectionError|DistStoreError": (
        "Not all ranks met: check that all pods started, and that the container sets none of MASTER_ADDR, RANK, "
        "WORLD_SIZE and PET_*, which the runtime sets. "
    ),
    r"ncclSystemError|NCCL error in: [^\n]{0,200}unhandled system error": (
        "NCCL could not use the network or the shared memory: set NCCL_DEBUG=INFO in spec.trainer.env to see which, "
        "and check /dev/shm and the network between the nodes. "
    ),
    r"gloo/transport/\S{0,80}\] .{0,40}Connection (?:closed|reset) by peer|ncclInternalError: .{0,80}peer": (
        "Another rank ended first. Compare all logs: {everything}. "
    ),
    r"No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver|not compiled with CUDA enabled": (
        "The program found no GPU: request one in spec.trainer.resourcesPerNode, such as nvidia.com/gpu: 1, and use an "
        "image that is built for it. "
    ),
    r"NVIDIA driver on your system is too old|driver version is insufficient|no kernel image is available": (
        "The image does not fit the GPU or the driver of the node: use an image that is built for them, or other "
        "nodes. "
    ),
    r"uncorrectable (?:ECC|NVLink) error|GPU has fallen off the bus|GPU is lost": (
        "The GPU is faulty: let the node {node} be repaired, and use other nodes until then. "
    ),
    r"failed \(exitcode: -9\)|killed by signal: Killed": (
        "A process was killed, usually because the memory ran out: raise the memory in spec.trainer.resourcesPerNode, "
        "or use less: a smaller batch, fewer data workers. "
    ),
    r"insufficient shared memory|unable to (?:open|write to) (?:shared memory|file </torch_)"
    r"|failed \(exitcode: -7\)|killed by signal: Bus error": (
        "The shared memory is full: mount an emptyDir with medium: Memory at /dev/shm, or use fewer data workers. "
    ),
    r"No space left on device|Disk quota exceeded": (
        "A disk is full: write to a volume with more room, or raise ephemeral-storage in "
        "spec.trainer.resourcesPerNode. "
    ),
    r"\b40[13] Client Error|GatedRepoError|ExpiredToken|InvalidAccessKeyId|invalid_grant|api_key not configured": (
        "A server refused the credentials, or there are none: check the token in its Secret, and what it permits. "
    ),
    r"is not a valid model identifier|RepositoryNotFoundError|\b404 Client Error|DatasetNotFoundError": (
        "A server does not have this model, dataset or file: correct its name, or, if it is private, check the token "
        "in its Secret. "
    ),
    r"CERTIFICATE_VERIFY_FAILED|certificate verify failed": (
        "The certificate of a server is not trusted: add its authority to the image, or mount it and set SSL_CERT_FILE "
        "and REQUESTS_CA_BUNDLE in spec.trainer.env. "
    ),
    r"Max retries exceeded with url|Network is unreachable|ConnectTimeout": (
        "A server was not reached: check the proxy (HTTPS_PROXY in spec.trainer.env) and the network policies. "
    ),
    r"PermissionError: \[Errno 13\]|Errno 30\] Read-only file system": (
        "The program may not use this path: use a path in a volume, and let the runtime's securityContext (runAsUser, "
        "fsGroup) match the owner of its files. "
    ),
    r"EADDRINUSE|[Aa]ddress already in use": (
        "A port is in use: the command starts the program twice, or pods with hostNetwork share a node. "
    ),
    r"\w: error: (?:unrecognized arguments|the following arguments are required|argument )": (
        "The program refuses its arguments: correct spec.trainer.args or spec.trainer.command. "
    ),
    r"not enough slots available": (
        "mpirun should start more processes than there is room for: lower their number in the command, or raise "
        "numNodes or numProcPerNode of spec.trainer. "
    ),
    r"ssh: connect to host|(?:ORTE|PRTE) was unable to reliably start": (
        "The launcher did not reach a worker by SSH. Look at the workers: {everything}. "
    ),
    r"ModuleNotFoundError: No module named|cannot open shared object file": (
        "The image lacks a package: use an image that contains it, or let the command install it. "
    ),
    r"FileNotFoundError: |can't open file ": (
        "A file is missing: correct its path, or check the volume or the image that should contain it. "
    ),
    r"^(?:MemoryError|numpy\.\S{0,80}MemoryError)|std::bad_alloc|DefaultCPUAllocator: can't allocate memory": (
        "The memory ran out: raise the memory in spec.trainer.resourcesPerNode, or use less: a smaller batch, fewer "
        "data workers. "
    ),
}
"""What to do about an error that a training prints in its log. A word of the text must be specific to the error."""
_OTHER_MACHINE: Final = re.compile(r"\bexec(?: user process caused:?|[ /]\S*:) exec format error")
"""The first process prints this if the image is built for another architecture."""
_NOT_EXECUTED: Final = (126, 127)
"""A shell ends with these codes if it cannot execute a command or does not find it."""
_SIGNALS: Final = {134: "SIGABRT", 135: "SIGBUS", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}
_BY_SIGNAL: Final = {
    135: (
        "Usually the shared memory is full: mount an emptyDir with medium: Memory at /dev/shm, or use fewer data "
        "workers. "
    ),
    139: "To see where a Python program crashes, set PYTHONFAULTHANDLER=1 in spec.trainer.env. ",
}
"""The advice for a container that a signal ended and whose output does not say more."""
_PROBED: Final = re.compile(r"Container (?P<name>\S{1,63}) failed (?P<probe>liveness|startup) probe")
_GRACE: Final = 30
"""Kubernetes' default of terminationGracePeriodSeconds."""
_SKEW: Final = timedelta(seconds=5)
_KILLED: Final = 137
_STABLE: Final = timedelta(minutes=10)
"""After a container has run for this time, the kubelet no longer delays its next restart."""
_UNREADY: Final = timedelta(minutes=5)
_LOG_LINES: Final = 5
_SEARCHED: Final = 20
"""An error without a traceback counts only in this many last lines of a log."""
_WORK: Final = (NODE, LAUNCHER, DATASET_INITIALIZER, MODEL_INITIALIZER)
"""The containers that do the work of a pod. Others may run beside them."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on containers that cannot start, have failed or are not ready."""
    for status in by_end(snapshot):
        ended = status.ended
        failed = ended is not None and number(ended, "exitCode") != 0
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
            evidence = (status.line, *lines_of(snapshot, status))
            yield found("out-of-memory", status.pod, *evidence, status=status, limit=limit)
        elif status.pod.text("status", "reason") == "DeadlineExceeded":
            continue  # the deadline of the pod ended the container
        elif (probed := _probed(snapshot, status)) is not None:
            yield probed
        elif status.waiting == "CrashLoopBackOff" or (failed and not _replaced(status)):
            yield _failed(snapshot, status)
        elif (unstable := _unstable(snapshot, status)) is not None:
            yield unstable
    for pod in snapshot.running:
        yield from _unready(snapshot, pod)


def lines_of(snapshot: Snapshot, status: Status) -> list[str]:
    """Return the last lines of a container's log, as evidence. They end with the error that ended the training."""
    lines = [each for each in log_of(snapshot, status) if each.strip()]
    raised = next((index for index, each in _after_traceback(lines) if _RAISED.match(each)), len(lines) - 1)
    return [f"log of {status.name}: {each}" for each in lines[: raised + 1][-_LOG_LINES:]]


def log_of(snapshot: Snapshot, status: Status) -> list[str]:
    """Return the read lines of a container's log, without the report of torchrun about a worker that failed."""
    lines = list(snapshot.logs.get((status.pod.name, status.name), ()))
    starts = [
        index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")
    ]
    if starts and any(_LAUNCHER in line[:MOST_MATCHED] for line in lines[starts[-1] :]):
        return lines[: starts[-1]] or lines
    return lines


def _after_traceback(lines: list[str]) -> list[tuple[int, str]]:
    """Return the lines after the last traceback with their numbers, the last one first. Without one, return none.

    The errors before it did not end the training.
    """
    starts = [index for index, line in enumerate(lines) if _TRACEBACK.match(line)]
    return list(enumerate(lines))[: starts[-1] : -1] if starts else []


def messages_of(status: Status) -> list[str]:
    """Return the lines of a container's termination message, as evidence."""
    lines = text(status.ended, "message").strip().splitlines()
    return [f"message of {status.name}: {each}" for each in lines]


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

    Of the containers that ended in the same second, those that a signal ended come last, because other programs send
    signals, and lower ranks come first. The containers of a pod that has succeeded are left out: the kubelet may have
    killed its sidecars.
    """
    found = [each for each in statuses(snapshot) if each.pod.text("status", "phase") != "Succeeded"]

    def order(status: Status) -> tuple[datetime, bool, int]:
        end = last_end(status)
        return moment(end, "finishedAt") or snapshot.now, number(end, "exitCode") > 128, rank_of(status.pod)

    return sorted(found, key=order)


def last_end(status: Status) -> JSON:
    """Return the last termination of a container, even if the container runs again."""
    return status.ended or at(status.data, "lastState", "terminated")


def _replaced(status: Status) -> bool:
    return at(status.data, "state", "running") is not None or status.pod.deleted is not None


def _unstartable(status: Status) -> Finding:
    messages = dict.fromkeys((status.message[:MOST_MATCHED], text(status.ended, "message")[:MOST_MATCHED]))
    words, pod = " ".join(messages), status.pod
    evidence = (status.line, *messages_of(status)[-1:])
    if (missing := references.not_found(words, pod, *evidence)) is not None:
        return missing
    if match := _KEY.search(words):
        key, kind, name = match["key"], match["kind"], match["name"].rpartition("/")[2]
        return found("key-missing", pod, *evidence, status=status, key=key, kind=kind, name=name)
    if _NO_COMMAND.search(words):
        return found("command-not-found", pod, *evidence, status=status, words=_last(words))
    remedy = next(advice for pattern, advice in _TO_CREATE if pattern.search(words))
    remedy = remedy.format(node=pod.text("spec", "nodeName"))
    words = words.strip() or status.waiting
    return found("container-create", pod, *evidence, status=status, words=words, remedy=remedy)


def _failed(snapshot: Snapshot, status: Status) -> Finding:
    code, pod = number(status.ended, "exitCode"), status.pod
    words = messages_of(status)
    evidence = (status.line, *words[-2:], *lines_of(snapshot, status))
    shown = (*words, *(f"log of {status.name}: {line}" for line in log_of(snapshot, status)[-_SEARCHED:]))
    if other := [line for line in shown if _OTHER_MACHINE.search(line)]:
        return found("command-not-found", pod, *evidence, status=status, words=_last(other[-1]))
    is_lasting = any(map(_NO_RENDEZVOUS.search, shown))
    unresolved = [line for line in shown if _UNRESOLVED.search(line)]
    if unresolved := [line for line in unresolved if is_lasting or not _WARNING.search(line)]:
        return found("dns-failure", pod, unresolved[-1], *evidence, status=status, code=code)
    if code in _NOT_EXECUTED:
        said = f": {_last(text(status.ended, 'message'))}" if words else ""
        return found("command-not-found/shell", pod, *evidence, status=status, code=code, said=said)
    named: dict[str, Any] = {"status": status, "code": code}
    named["signal"] = f", {_SIGNALS[code]}" if code in _SIGNALS else ""
    again = " --previous" if status.waiting == "CrashLoopBackOff" else ""
    named["remedy"] = f"Read its log: {logs_command(snapshot, status)}{again}"
    if snapshot.logs.get((pod.name, status.name)) == [] and not words:
        named["remedy"] = (
            "It wrote nothing. Let the command of the next attempt say what it does, such as sh -x for a shell, or "
            "PYTHONFAULTHANDLER=1 in spec.trainer.env for a crash of Python."
        )
    if status.is_gone and not status.is_kept:
        named["remedy"] = (
            f"The pod is removed, and its log with it. {keep(snapshot.train_job.namespace, pod.name)}"
        )
    if status.waiting == "CrashLoopBackOff":
        times = "once" if status.restarts == 1 else f"{status.restarts} times"
        restarted = f", restarted {times}" if status.restarts else ""
        return found("crash-loop", pod, *evidence, restarted=restarted, **_told(snapshot, status, named))
    if code == _KILLED:
        node = pod.text("spec", "nodeName") or "of the pod"
        return found("container-failed/killed", pod, *evidence, node=node, **named)
    return found("container-failed", pod, *evidence, **_told(snapshot, status, named))


def _probed(snapshot: Snapshot, status: Status) -> Finding | None:
    """Return a finding if the kubelet killed the container because of a probe, unless it has run well since.

    For the first two restarts, the finding is a note.
    """
    pod, end = status.pod, moment(last_end(status), "finishedAt")
    since = moment(status.data, "state", "running", "startedAt")
    if end is None or (since is not None and snapshot.now - since > _STABLE):
        return None
    grace = timedelta(seconds=pod.number("spec", "terminationGracePeriodSeconds") or _GRACE)
    for event in snapshot.events(pod, "Killing"):
        match, seen = _PROBED.search(event.text("message")[:MOST_MATCHED]), event_time(event)
        if match and match["name"] == status.name and seen and -_SKEW <= end - seen <= grace + _SKEW:
            severity = Severity.NOTE if since is not None and status.restarts < 3 else Severity.ERROR
            failures = (snapshot.quote(each) for each in (event, *snapshot.events(pod, "Unhealthy")[:1]))
            evidence = (status.line, *failures, *lines_of(snapshot, status))
            named: dict[str, Any] = {"status": status, "probe": match["probe"]}
            return found("probe-failing/killed", pod, *evidence, severity=severity, **named)
    return None


def _told(snapshot: Snapshot, status: Status, named: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a rule with the last line of the output that tells the cause, and what to do about it.

    If no line is known, this is the error after the last traceback.
    """
    job, message = snapshot.train_job, text(status.ended, "message").splitlines()
    lines = [*message, *log_of(snapshot, status)]
    if status.is_gone and len(lines) == 1 and (joined := _JOINED.search(lines[0][:MOST_MATCHED])):
        lines = ["Traceback (most recent call last):", joined[1]]
    after = [line for _, line in _after_traceback(lines)]
    last = after or lines[: -_SEARCHED - 1 : -1]
    known = [
        (line, advice)
        for line in last
        for pattern, advice in _SAID.items()
        if re.search(pattern, line[:MOST_MATCHED])
    ]
    raised = [(line, "") for line in after if _RAISED.match(line)]
    for line, advice in (*known, *raised):
        step = NODE if step_of(status.pod) == LAUNCHER else step_of(status.pod)
        everything = f"trainerctl logs {job.name} -n {job.namespace} --step {step} --all"
        shown = " ".join(line[:MOST_MATCHED].split())
        shown = (
            shown if len(shown) <= 160 else f"{shown[:80]}…{shown[-80:]}"
        )  # the class of the error, and its cause
        advice = advice.format(
            everything=everything, node=status.pod.text("spec", "nodeName") or "of the pod"
        )
        return {**named, "said": f": {shown}", "remedy": advice + named["remedy"]}
    return {**named, "said": "", "remedy": _BY_SIGNAL.get(named["code"], "") + named["remedy"]}


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
    remedy = f"Read its log: {logs_command(snapshot, status)} --previous"
    named: dict[str, Any] = {"status": status, "code": number(last, "exitCode"), "remedy": remedy}
    return found(rule, status.pod, line, *lines_of(snapshot, status), severity=severity, **named)


def _unready(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    """Yield a finding on a running pod whose probe fails, or whose sidecars run although its work is done."""
    late = snapshot.now - _UNREADY
    since = moment(pod.condition("Ready"), "lastTransitionTime") or pod.created
    if not pod.is_true("Ready") and since is not None and since <= late:
        for event in snapshot.events(pod, "Unhealthy")[:1]:
            words = _last(event.text("message"))
            yield found("probe-failing", pod, snapshot.quote(event), pod=pod, words=words)
    states = [each for each in of_pod(pod) if not each.is_init]
    done = [each for each in states if each.name in _WORK and _has_succeeded(each, late)]
    others = [each for each in states if at(each.data, "state", "running") is not None]
    if not done or not others or any(each.name in _WORK for each in others):
        return
    age = ago(moment(at(done[0].data, "state", "terminated"), "finishedAt"), snapshot.now)
    evidence = [f"container {done[0].name} of {pod} succeeded {age} ago"]
    evidence += [f"container {each.name} of {pod} still runs" for each in others]
    names = ", ".join(each.name for each in others)
    yield found("sidecar-running", pod, *evidence, status=done[0], names=names)


def _has_succeeded(status: Status, before: datetime) -> bool:
    ended = at(status.data, "state", "terminated")
    end = moment(ended, "finishedAt")
    return end is not None and end < before and number(ended, "exitCode") == 0


def _last(words: str) -> str:
    """Return the end of a long error text in one line. The end is usually the most specific part."""
    shown = " ".join(words.split())
    return shown if len(shown) <= 160 else f"…{shown[-160:]}"
