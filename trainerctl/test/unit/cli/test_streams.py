# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""trainerctl as a process: a reader that exits early, a locale without Unicode, a full disk, signals."""

import argparse
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pkg
import pytest
from controller_runtime.envtest import kubeconfig

from trainerctl.cli import execution, streams
from trainerctl.cli.signals import Signals

pytestmark = pytest.mark.real_time

HOME = Path(pkg.__file__).parent.parent
JOB = str(HOME / "config" / "samples" / "trainjob.yaml")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: team}
spec: {schedulerName: kai-scheduler, containers: [{name: a, image: b}]}
"""
PRINTING = {
    "help": ["--help"],
    "version": ["--version"],
    "crds": ["crds"],
    "render yaml": ["render", "-f", JOB],
    "render json": ["render", "-f", JOB, "-o", "json"],
    "render table": ["render", "-f", JOB, "-o", "table"],
    "explain": ["explain", "-f", JOB],
    "validate": ["validate", "-f", JOB],
    "convert": ["convert", "-f", JOB, "--to", "2.3"],
    "group": ["group", "-f", "pod.yaml"],
}
WAITING = {
    "render": ["render", "-f", "-"],
    "explain": ["explain", "-f", "-"],
    "validate": ["validate", "-f", "-"],
    "convert": ["convert", "-f", "-", "--to", "2.3"],
    "group": ["group", "-f", "-"],
    "crds": ["crds", "--apply", "--kubeconfig", "silent.yaml"],
    "cluster up": ["cluster", "up"],
    "cluster down": ["cluster", "down"],
    "demo": ["demo"],
    "run": ["run", "--kubeconfig", "silent.yaml"],
    "manager": ["--kubeconfig=silent.yaml"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


def start(folder: Path, arguments: Sequence[str], **more: object) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": f"{HOME / 'trainerctl'}:{HOME}"}
    environ["PYTHONUNBUFFERED"] = ""  # as users have it: output that is not flushed loses its errors
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    environ |= given.pop("env", {})  # type: ignore[call-overload] # a dict where it is given
    program = "pkg.app" if arguments[0].startswith("--kubeconfig") else "trainerctl"
    argv = [sys.executable, "-P", "-m", program, *arguments]
    process: subprocess.Popen[bytes] = subprocess.Popen(argv, cwd=folder, env=environ, **given)  # type: ignore[call-overload] # what callers give
    return process


@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
def test_a_reader_that_leaves_early_ends_a_command_silently(folder: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = start(folder, arguments, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=120)
    swallowed = {0} if arguments[-1] in ("--help", "--version") else set()  # by argparse, without a buffer
    assert process.returncode in {128 + signal.SIGPIPE, *swallowed}
    assert err == b""


@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
def test_a_locale_without_unicode_gets_ascii(folder: Path, arguments: list[str]) -> None:
    process = start(folder, arguments, env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
    assert out
    assert out.isascii()


def test_a_full_disk_is_one_line(folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as full:
        process = start(folder, ["crds"], stdout=full)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (1, b"trainerctl: No space left on device\n")


@pytest.mark.parametrize(
    "command",
    ["trainerctl --version", "trainerctl help", "app --help", "app --version", "app.podgrouper --help"],
)
@pytest.mark.parametrize("into", [">&-", ">/dev/full", "2>&- >&-", "| true"])
def test_help_and_versions_survive_closed_streams_and_a_full_disk(
    folder: Path, command: str, into: str
) -> None:
    module, _, argument = command.partition(" ")
    module = "trainerctl" if module == "trainerctl" else f"pkg.{module}"
    shell = f"{{ sleep 0.2; {sys.executable} -P -m {module} {argument}; }} {into}"
    process = subprocess.run(
        ["bash", "-c", shell],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{HOME / 'trainerctl'}:{HOME}"},
        capture_output=True,
        check=False,
        timeout=240,
    )
    full = into == ">/dev/full"
    assert process.returncode == int(full)
    assert process.stderr.endswith(b"No space left on device\n" if full else b"")
    assert len(process.stderr.splitlines()) == int(full)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


@pytest.fixture
def silent(folder: Path, server: socket.socket) -> None:
    """Write the kubeconfig of an API server that accepts connections and never answers."""
    config = kubeconfig(f"http://127.0.0.1:{server.getsockname()[1]}", user="a")
    (folder / "silent.yaml").write_text(json.dumps(config))


@pytest.fixture
def locked(folder: Path) -> Iterator[None]:
    """Hold the locks of the clusters, so that commands that need one wait for it."""
    home = folder / "trainer-controller-manager" / "cluster"
    home.mkdir(parents=True)
    with (home / "default.lock").open("w") as one, (home / "demo.lock").open("w") as other:
        for each in (one, other):
            fcntl.flock(each, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("silent", "locked", "interruptible")
@pytest.mark.parametrize("delay", [0, 0.25, 1])
@pytest.mark.parametrize("arguments", WAITING.values(), ids=WAITING)
def test_an_interrupt_at_any_moment_is_no_traceback(folder: Path, arguments: list[str], delay: float) -> None:
    process = start(folder, arguments)
    assert process.stdin is not None
    wait_for_import(process.pid)  # signals during the interpreter's own start are not tested
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in said
    lines = [line for line in said.decode().splitlines() if not WAITS.search(line)]
    assert len(lines) <= 1


WAITS = re.compile(r"^Another .* waiting for it to end\.$")
"""Printed before the interrupt, by a command that needs a lock."""


def wait_for_import(pid: int) -> None:
    """Return once the process handles SIGTERM, which it does before it loads anything slow."""
    for _ in range(6000):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        if int(status.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)


@pytest.mark.parametrize("cleans_up", [False, True])
def test_a_signal_wakes_the_loop_of_a_command(monkeypatch: pytest.MonkeyPatch, *, cleans_up: bool) -> None:
    woken: list[bool] = []

    async def command(*_: object) -> int:
        woken.append((descriptor := signal.set_wakeup_fd(-1)) >= 0)
        signal.set_wakeup_fd(descriptor)
        return 0

    monkeypatch.setattr(execution, "function", lambda _: command)
    parsed = argparse.Namespace(function="", passes_flags=False, cleans_up=cleans_up)
    assert execution.run(parsed, Signals()) == 0
    assert woken == [True]


def test_a_stream_without_a_reader_is_discarded_although_the_other_one_has_a_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        broken.write("text")
        streams.discard()
        broken.flush()  # into the null device


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("program", ["pkg.app", "pkg.app.podgrouper"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_manager_in_the_background_ends_at_any_moment(
    folder: Path, program: str, number: signal.Signals
) -> None:
    command = f"trap '' INT; exec {sys.executable} -P -m {program} --kubeconfig=silent.yaml"
    environ = {**os.environ, "PYTHONPATH": f"{HOME / 'trainerctl'}:{HOME}"}
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=environ, stderr=subprocess.PIPE)
    wait_for_import(process.pid)
    time.sleep(0.5)
    process.send_signal(number)
    _, said = process.communicate(timeout=5)
    assert (process.returncode, said) == (128 + number, b"")


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_for_the_log_level_does_not_end_a_manager_that_waits_for_the_api_server(
    folder: Path, server: socket.socket, number: signal.Signals
) -> None:
    process = start(folder, ["--kubeconfig=silent.yaml"])
    connection, _ = server.accept()
    with connection:
        process.send_signal(number)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=5)
    assert (process.returncode, said) == (128 + signal.SIGTERM, b"")
