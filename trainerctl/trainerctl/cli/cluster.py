# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl cluster up|down|stop|start|logs|status|list|build``."""

from __future__ import annotations

import argparse
import shlex
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from controller_runtime.apis.core.v1 import Node
from controller_runtime.envtest import Binaries, EnvtestError, Tool, file_lock
from pkg.apis.config.v1alpha1 import V2_1
from pkg.app.flags import feature_gates

from trainerctl.cli import streams
from trainerctl.cli.progress import progress_on
from trainerctl.cli.terminal import Console
from trainerctl.localcluster import prometheus
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.components import MANAGER
from trainerctl.localcluster.kai import Programs
from trainerctl.localcluster.names import DEFAULT_NAME, DEMO_NAME, root_directory, state_directory
from trainerctl.localcluster.nodes import NodeShape, is_usable
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.state import State
from trainerctl.localcluster.tools import DEFAULT_JOBSET, DEFAULT_KUBERNETES
from trainerctl.offline.inputfiles import InputError

_NODES: Final = 4
_OF_A_NEW_CLUSTER: Final = (
    "nodes", "gpus", "coscheduling", "workloads", "feature_gates", "compatibility_version", "run_processes", "image",
    "prometheus", "kubernetes", "jobset", "kai_scheduler",
)  # fmt: skip
"""These flags apply only to a new cluster."""
_POLL: Final = 0.2
_SUFFIX: Final = ".log"
_WORDS: Final = {"200": "healthy", "ended": "not running"}


async def up_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Create the cluster, or restart the components of an existing cluster that have ended.

    Print the shell command that exports the path of the kubeconfig.

    Raises:
        InputError: the flags contradict each other, or a value is unknown.
    """
    directory = state_directory(parsed.name)
    try:
        options = _options(parsed)
    except (ValueError, EnvtestError) as error:
        raise InputError(str(error)) from error
    async with _lock(parsed.name, err):
        with progress_on(err) as progress:
            cluster = Cluster(directory, options, progress=progress)
            if parsed.recreate or not State.exists(directory):
                announce(options.tools, err)
                await cluster.up()
            else:
                await _keep(cluster, parsed, err)
    if parsed.without_manager:
        _say_without_manager(parsed.name, err)
    kept = State.read(directory)
    if kept is not None and (address := kept.address_of(prometheus.NAME)):
        err.say(f"Prometheus shows the dashboard's queries at {address}/{prometheus.PAGE}")
    err.say(f"The cluster keeps running. To remove it, run: trainerctl cluster down{_flag(parsed.name)}")
    out.say(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0


def _options(parsed: argparse.Namespace) -> Options:
    """Return the options of a new cluster.

    Raises:
        ValueError, EnvtestError: the flags contradict each other, or a value is unknown.
    """
    if parsed.name == DEMO_NAME:
        raise ValueError(f"the name {DEMO_NAME} is reserved for the cluster of trainerctl demo")
    nodes = _NODES if parsed.nodes is None else parsed.nodes
    gpus = (0 if parsed.run_processes else NodeShape.gpus) if parsed.gpus is None else parsed.gpus
    if parsed.image and not parsed.run_processes:
        raise ValueError("--image needs --run-processes: simulated pods run no programs")
    programs = _kai(parsed)
    options = Options(
        nodes,
        NodeShape(gpus=gpus),
        not parsed.without_manager,
        parsed.timeout,
        parsed.coscheduling,
        programs,
        kubernetes=parsed.kubernetes or DEFAULT_KUBERNETES,
        jobset=parsed.jobset or DEFAULT_JOBSET,
        workloads=parsed.workloads,
        manager_gates=feature_gates(parsed.feature_gates or ""),
        compatibility_version=parsed.compatibility_version or V2_1,
        run_processes=parsed.run_processes,
        images=[f"{name}={folder}" for name, folder in parsed.image],
        prometheus=parsed.prometheus,
    )
    options.check()
    return options


def _kai(parsed: argparse.Namespace) -> Programs | None:
    """Return the programs of KAI-Scheduler, or None if none of its flags is set.

    Raises:
        ValueError: only one of the two programs is given, or the CRDs are given without the programs.
    """
    scheduler, binder, crds = parsed.kai_scheduler, parsed.kai_binder, parsed.kai_crds
    if scheduler is None and binder is None and crds is None:
        return None
    if scheduler is None or binder is None:
        raise ValueError("--kai-scheduler and --kai-binder are required together")
    return Programs(
        Path(scheduler).absolute(), Path(binder).absolute(), None if crds is None else Path(crds).absolute()
    )


async def _keep(cluster: Cluster, parsed: argparse.Namespace, err: Console) -> None:
    """Restart the components that have ended, and keep the objects. Print which flags had no effect."""
    if await cluster.is_up():
        err.say(f"Cluster {parsed.name} is already running and was not changed.")
    else:
        try:
            started = await cluster.restart()
        except EnvtestError as error:
            hint = f"trainerctl cluster up --recreate --name {parsed.name}"
            raise EnvtestError(
                f"{error}\nCluster {parsed.name} and its objects were kept. To replace them, run: {hint}"
            ) from error
        names = ", ".join(started) or "none; a component was not healthy yet"
        err.say(f"Cluster {parsed.name} was kept with its objects. Restarted components: {names}.")
    given = {name: getattr(parsed, name) for name in _OF_A_NEW_CLUSTER}
    given["without_manager"] = parsed.without_manager and _has_manager(cluster.directory)
    ignored = [
        f"--{name.replace('_', '-')}"
        for name, value in given.items()
        if value is not None and value is not False and value != []
    ]
    if ignored:
        err.say(
            f"{', '.join(ignored)} had no effect because the cluster exists. To replace it, add --recreate."
        )


def _say_without_manager(name: str, err: Console) -> None:
    """If the cluster runs no manager, print how to start it."""
    if not _has_manager(state_directory(name)):
        err.say("The manager was not started. To start it, run:")
        err.say(f"trainerctl run{_flag(name)}")


def _flag(name: str) -> str:
    """Return the flag that selects a cluster in a command, with a space before it; the default cluster needs none."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _has_manager(directory: Path) -> bool:
    state = State.read(directory)
    return state is not None and MANAGER in state.names


async def down_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Stop the cluster and remove its files. If it does not exist, print this and return 0."""
    directory = state_directory(parsed.name)
    async with _lock(parsed.name, err):
        absent = f"No cluster {parsed.name} is running."
        if State.exists(directory):
            absent = f"Removed cluster {parsed.name}, which was stopped."
        out.say(_stopped(await Cluster(directory).down(), absent))
    return 0


async def stop_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Stop the cluster and keep its objects; return 1 if the cluster does not exist."""
    directory = state_directory(parsed.name)
    async with _lock(parsed.name, err):
        if not State.exists(directory):
            return _absent(parsed.name, err)
        out.say(_stopped(await Cluster(directory).stop(), f"Cluster {parsed.name} is stopped already."))
    return 0


def _stopped(components: Sequence[str], otherwise: str) -> str:
    return f"Stopped {', '.join(components)}." if components else otherwise


async def start_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Start a stopped cluster with its objects; return 1 if the cluster does not exist."""
    directory = state_directory(parsed.name)
    cluster = Cluster(directory, Options(timeout=parsed.timeout))
    async with _lock(parsed.name, err):
        if not State.exists(directory):
            return _absent(parsed.name, err)
        if await cluster.is_up():
            err.say(f"Cluster {parsed.name} is running already.")
        else:
            err.say(f"Started {', '.join(await cluster.restart())}.")
            _say_without_manager(parsed.name, err)
    out.say(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0


def _absent(cluster: str, err: Console) -> int:
    err.say(f"Cluster {cluster} does not exist; create it with: trainerctl cluster up{_flag(cluster)}")
    return 1


async def logs_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the logs. Return 1 if the cluster has no logs, or if a requested component has no log."""
    folder = state_directory(parsed.name) / "logs"
    found = {path.name.removesuffix(_SUFFIX): path for path in sorted(folder.glob(f"*{_SUFFIX}"))}
    if not found:
        streams.say_error(f"cluster {parsed.name} has no logs")
        return 1
    if unknown := [name for name in parsed.components if name not in found]:
        streams.say_error(f"no log of {', '.join(unknown)}; there are logs of {', '.join(found)}")
        return 1
    names = parsed.components or list(found)
    logs = [_Log(found[name], f"{name}: " if len(names) > 1 else "", out) for name in names]
    for each in logs:
        each.print(parsed.tail, to_the_end=not parsed.follow)
    while parsed.follow:
        await anyio.sleep(_POLL)
        for each in logs:
            each.print()
        streams.flush()
    return 0


class _Log:
    """The log of one component."""

    def __init__(self, path: Path, prefix: str, out: Console) -> None:
        self._path = path
        self._prefix = prefix
        self._out = out
        self._read = 0
        self._part = b""

    def print(self, tail: int | None = None, *, to_the_end: bool = False) -> None:
        """Print the lines written since the last call. If ``tail`` is set, print only the last ``tail`` lines.

        If the last line has no line break yet, a later call prints it when it is complete. With ``to_the_end``, this
        call prints it.
        """
        with self._path.open("rb") as file:
            file.seek(self._read)
            added = file.read()
        self._read += len(added)
        *lines, self._part = (self._part + added).split(b"\n")
        if to_the_end and self._part:
            lines.append(self._part)
        for line in lines if tail is None else deque(lines, maxlen=tail):
            self._out.say(self._prefix + line.decode("utf-8", "replace").expandtabs())


async def status_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the state of each component, the folder of the logs and the number of usable nodes.

    Return 1 unless all components are healthy.
    """
    directory = state_directory(parsed.name)
    state = State.read(directory)
    if state is None:
        return _absent(parsed.name, err)
    cluster = Cluster(directory)
    answers = await cluster.health()
    rows = []
    for name in state.names:
        process = cluster.supervisor.processes.get(name)
        answer = answers.get(name, "ended")
        running = process is not None and answer != "ended"
        pid = str(process.identity.pid) if process is not None and running else "-"
        rows.append((name, _WORDS.get(answer, f"unhealthy: {answer}"), pid))
    out.table(("COMPONENT", "STATE", "PID"), rows)
    out.say(f"logs: {directory / 'logs'}")
    if answers.get("kube-apiserver") == "200":
        async with cluster.client() as client:
            nodes = await client.list(Node)
        usable = sum(is_usable(node.to_dict()) for node in nodes)
        out.say(f"nodes: {usable} of {len(nodes)} are schedulable")
    out.say(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0 if set(answers) == set(state.names) and set(answers.values()) == {"200"} else 1


async def list_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the clusters of this user."""
    rows = [(each.name, *await _described(each)) for each in _directories()]
    if rows:
        out.table(("NAME", "STATE", "NODES", "KUBECONFIG"), rows, right=("NODES",))
    else:
        err.say("There are no clusters.")
    return 0


def _directories() -> list[Path]:
    """Return the directories of this user's clusters."""
    root = root_directory()
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


async def running() -> str:
    """Return a hint that shows how to use the first healthy local cluster. If there is none, return an empty text."""
    for each in _directories():
        state, _, kubeconfig = await _described(each)
        if state == "healthy":
            return f"the local cluster {each.name} runs: export KUBECONFIG={shlex.quote(kubeconfig)}"
    return ""


async def _described(directory: Path) -> tuple[str, str, str]:
    """Return a cluster's state, number of nodes and kubeconfig.

    The number of nodes and the kubeconfig are empty if the cluster is not up, or if its state file is unreadable.
    """
    state = State.read(directory)
    cluster = Cluster(directory)
    if state is None:
        return "unreadable" if State.exists(directory) else "not up", "", ""
    answers = await cluster.health()
    unhealthy = [name for name in state.names if answers.get(name) != "200"]
    if all(answers.get(name, "ended") == "ended" for name in state.names):
        state_text = "stopped"
    else:
        state_text = f"unhealthy: {', '.join(unhealthy)}" if unhealthy else "healthy"
    return state_text, str(state.nodes), str(cluster.kubeconfig)


@asynccontextmanager
async def _lock(name: str, err: Console) -> AsyncIterator[None]:
    """Hold the cluster's lock. If another command holds it, print a line and wait."""

    def waiting() -> None:
        err.say(f"Another command is using cluster {name}; waiting for it to end.")

    async with file_lock(state_directory(name).parent / f"{name}.lock", waiting=waiting):
        yield


def announce(tools: Sequence[Tool], err: Console) -> bool:
    """Print which programs have to be built. Return True if there are any.

    Raises:
        ToolError: ``KUBEBUILDER_ASSETS`` names a directory that is missing or contains none of the programs.
    """
    missing = [tool.name for tool in Binaries().missing(*tools)]
    if missing:
        err.say(f"Programs to build from source, once: {', '.join(missing)}.")
        if len(missing) == len(tools):
            err.say("This takes about five minutes on two cores. Later runs build nothing.")
    return bool(missing)


async def build_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Build the missing programs, and print the path of each."""
    options = Options(
        kubernetes=parsed.kubernetes or DEFAULT_KUBERNETES, jobset=parsed.jobset or DEFAULT_JOBSET
    )
    try:
        options.check()
    except EnvtestError as error:
        raise InputError(str(error)) from error
    announce(options.tools, err)
    with progress_on(err) as progress:
        located = await Binaries(progress=progress).locate(*options.tools)
    for binary in located.values():
        out.say(str(binary.path))
    return 0
