# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the last output of a failed container says about the failure, and what to do about it."""

from __future__ import annotations

import itertools
import re
from typing import Final

from pkg.constants.trainer import LAUNCHER, NODE
from pkg.why.causes.statuses import Status
from pkg.why.liveobject import MOST_MATCHED, text
from pkg.why.snapshot import Snapshot, step_of

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
_WAITED: Final = (
    r"[Ww]atchdog caught collective operation timeout|ncclRemoteError|NCCL communicator was aborted"
)
_LEFT: Final = r"gloo/transport/\S{0,80}\] .{0,40}Connection (?:closed|reset) by peer"
_CONSEQUENCE: Final = re.compile(f"{_WAITED}|{_LEFT}")
"""A rank prints this after another rank has failed or hangs."""
_DAEMONS: Final = r"(?:ORTE|PRTE) was unable to reliably start"
"""mpirun ends with this message after the error that caused it."""
SAID: Final = {
    r"CUDA out of memory|CUDA error: out of memory|HIP out of memory|RESOURCE_EXHAUSTED: Out of memory"
    r"|CU(?:BLAS|DNN)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)": (
        "The memory of the GPU ran out: use a smaller batch or shorter sequences, checkpoint activations, or shard the "
        "model over more GPUs. "
    ),
    _WAITED: (
        "The ranks waited for each other: a rank that failed, hangs or is slow is the cause. {others}Compare all logs: "
        "{everything}. "
    ),
    r"\d{1,6}/\d{1,6} clients joined|RendezvousTimeoutError|RendezvousConnectionError|DistStoreError"
    r"|DEADLINE_EXCEEDED: (?:Barrier timed out|Deadline Exceeded)": (
        "Not all ranks met: check that all pods started, and that the container sets none of MASTER_ADDR, RANK, "
        "WORLD_SIZE and PET_*, which the runtime sets. "
    ),
    r"environment variable [A-Z_]{1,40} expected, but not set": (
        "No launcher started the program, so that it does not know its rank: use torchrun in spec.trainer.command, "
        "with a runtime whose mlPolicy is torch. "
    ),
    r"undefined symbol: |NCCL version mismatch|mismatched NCCL|ncclInvalidUsage|version `[^`'\n]{1,80}' not found": (
        "The libraries do not fit together: use an image whose PyTorch, CUDA and NCCL were built for each other, the "
        "same on all nodes, and let the command install none of them again. "
    ),
    r"ncclSystemError|NCCL error in: [^\n]{0,200}unhandled system error": (
        "NCCL could not use the network or the shared memory: set NCCL_DEBUG=INFO in spec.trainer.env to see which, "
        "and check /dev/shm and the network between the nodes. "
    ),
    _LEFT: ("Another rank ended first. Compare all logs: {everything}. "),
    r"No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver|not compiled with CUDA enabled"
    r"|No visible GPU devices": (
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
    r"\b40[13] Client Error|GatedRepoError|ExpiredToken|InvalidAccessKeyId|invalid_grant|api_key not configured"
    r"|NoCredentialsError|DefaultCredentialsError|\bAccessDenied\b|SignatureDoesNotMatch|\((?:401|403)\) when calling"
    r"|could not read Username for|Authentication failed for 'http": (
        "A server refused the credentials, or there are none: check the token in its Secret, and what it permits. "
    ),
    r"is not a valid model identifier|RepositoryNotFoundError|\b404 Client Error|DatasetNotFoundError"
    r"|NoSuch(?:Bucket|Key)\b|\(404\) when calling": (
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
    r"PytorchStreamReader failed|Error while deserializing header|BadZipFile": (
        "A checkpoint or a downloaded file is incomplete, for example because a former run was stopped while it wrote: "
        "delete it, and continue from an earlier one. "
    ),
    r"size mismatch for |(?:Missing|Unexpected) key\(s\) in state_dict": (
        "The checkpoint is of another model: correct its path, or start without it. "
    ),
    r"device-side assert triggered|an illegal memory access was encountered": (
        "To see which call fails, set CUDA_LAUNCH_BLOCKING=1 in spec.trainer.env. Often an index is out of range, such "
        "as a label or a token. "
    ),
    r"CUDA_HOME does not exist|nvcc: (?:command )?not found|Error building extension": (
        "The image lacks the compiler of CUDA: use an image for development, or one that contains the extension. "
    ),
    r"Too many open files": (
        "The limit of open files is reached: raise it in the command (ulimit -n), or use fewer data workers. "
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
    r"Permission denied \(publickey|Host key verification failed": (
        "A server refused the SSH key: check that the Secret with the key is mounted for the user of the container, "
        "and that only this user can read it. "
    ),
    r"ssh: connect to host": "The launcher did not reach a worker by SSH. Look at the workers: {everything}. ",
    _DAEMONS: "The launcher did not reach a worker. Look at the workers: {everything}. ",
    r"No matching distribution found for|Could not find a version that satisfies": (
        "pip does not find the package: correct its name and version, or check that the pods reach the index "
        "(PIP_INDEX_URL, HTTPS_PROXY in spec.trainer.env), or use an image that contains it. "
    ),
    r"ConfigAttributeError|ConfigKeyError|Could not override '": (
        "The configuration has no such key: correct its name in spec.trainer.args, the command or the file. "
    ),
    r"\\r'?: (?:No such file|not found)|\^M: bad interpreter": (
        "The script has line ends of Windows: save it with those of Unix (sed -i 's/\\r$//' FILE). "
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
_THROWN: Final = re.compile(r"\s{0,8}what\(\): ")
"""C++ prints this line of an exception that nothing caught."""
_MOST_RANKS: Final = 1 << 16
_MOST_NAMED: Final = 8
_LOG_LINES: Final = 5
_WIDTH: Final = 160
SEARCHED: Final = 20
"""An error without a traceback counts only in this many last lines of a log."""


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


def told(snapshot: Snapshot, status: Status) -> tuple[str, str]:
    """Return the last line of the output that tells the cause, and what to do about it. Either may be empty.

    If no line is known, this is the error after the last traceback.
    """
    last, after = _endings(snapshot, status)
    known = [(each, pattern) for each in last for pattern in SAID if re.search(pattern, each)]
    known.sort(key=lambda each: each[1] == _DAEMONS)
    raised = ((each, "") for each in last if _THROWN.match(each) or (after and _RAISED.match(each)))
    line, pattern = next(itertools.chain(known, raised), ("", ""))
    step = NODE if step_of(status.pod) == LAUNCHER else step_of(status.pod)
    job, node = snapshot.train_job, status.pod.text("spec", "nodeName") or "of the pod"
    everything = f"trainerctl logs {job.name} -n {job.namespace} --step {step} --all"
    shown = " ".join(line.split())
    if len(shown) > _WIDTH:  # the class of the error, and its cause
        shown = f"{shown[: _WIDTH // 2]}…{shown[-_WIDTH // 2 :]}"
    others = _unfailed(snapshot, status) if pattern == _WAITED else ""
    return shown, SAID.get(pattern, "").format(everything=everything, node=node, others=others)


def _unfailed(snapshot: Snapshot, status: Status) -> str:
    """Return the few ranks that have not failed, although most of their step have: they let the others wait."""
    step = step_of(status.pod)
    wanted = sum(job.number("spec", "completions") for job in snapshot.jobs if step_of(job) == step)
    others = sorted(set(range(min(wanted, _MOST_RANKS))) - snapshot.failed_ranks.get(step, set()))
    if not others or 2 * len(others) >= wanted:
        return ""
    shown = ", ".join(map(str, others[:_MOST_NAMED]))
    many = f"Ranks {shown}" if len(others) > 1 else f"Rank {shown}"
    return f"{many} did not fail: look there first. "


def is_consequence(snapshot: Snapshot, status: Status) -> bool | None:
    """Return True if the container failed because another rank failed or hangs; None if there is no output."""
    last, _ = _endings(snapshot, status)
    return any(map(_CONSEQUENCE.search, last)) if last else None


def _endings(snapshot: Snapshot, status: Status) -> tuple[list[str], list[str]]:
    """Return the lines that may tell the cause, and those of them that follow a traceback, the last line first."""
    lines = [*text(status.ended, "message").splitlines(), *log_of(snapshot, status)]
    if status.is_gone and len(lines) == 1 and (joined := _JOINED.search(lines[0][:MOST_MATCHED])):
        lines = ["Traceback (most recent call last):", joined[1]]
    after = [line[:MOST_MATCHED] for _, line in _after_traceback(lines)]
    return after or [line[:MOST_MATCHED] for line in lines[: -SEARCHED - 1 : -1]], after
