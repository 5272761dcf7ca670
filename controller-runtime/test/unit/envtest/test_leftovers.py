# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Files that killed environments left on disk."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from controller_runtime.envtest.environment import sweep
from controller_runtime.envtest.process import Identity, PidFiles, command_line

ANCIENT = 0


def run_directory(root: Path, name: str, owner: Identity | None, *, old: bool) -> Path:
    directory = root / f"run-{name}"
    (directory / "pids").mkdir(parents=True)
    if owner is not None:
        PidFiles(directory).write(owner)
    if old:
        os.utime(directory, (ANCIENT, ANCIENT))
    return directory


def test_only_old_directories_of_owners_that_are_gone_are_removed(tmp_path: Path) -> None:
    ourselves = Identity.of("owner", os.getpid(), command_line(os.getpid()).split(" "))
    assert ourselves.alive()
    reborn = Identity("owner", os.getpid(), ourselves.argv, "0")
    running = run_directory(tmp_path, "running", ourselves, old=True)
    fresh = run_directory(tmp_path, "fresh", reborn, old=False)
    unsigned = run_directory(tmp_path, "unsigned", None, old=False)
    run_directory(tmp_path, "dead", reborn, old=True)
    (tmp_path / "unrelated").mkdir()
    sweep(tmp_path, keep=60)
    assert sorted(tmp_path.iterdir()) == [fresh, running, unsigned, tmp_path / "unrelated"]


def test_a_directory_that_another_process_removes_meanwhile_is_skipped(tmp_path: Path) -> None:
    gone = tmp_path / "run-gone"
    gone.symlink_to(tmp_path / "removed")  # a dangling link: it is listed, but leads nowhere
    dead = Identity("owner", os.getpid(), [], "0")
    for name in ("a", "z"):
        run_directory(tmp_path, name, dead, old=True)
    sweep(tmp_path, keep=60)
    assert list(tmp_path.iterdir()) == [gone]


@pytest.mark.parametrize("body", ["exec /bin/sleep 300", "/bin/sleep 300; exit 1"])
def test_a_script_is_recognized_whether_or_not_it_replaces_itself(body: str, tmp_path: Path) -> None:
    script = tmp_path / "component"
    script.write_text(f"#!/bin/sh\n{body.replace('300', '$1')}\n")
    script.chmod(0o755)
    argv = [str(script), "300"]
    with subprocess.Popen(argv, start_new_session=True) as process:
        try:
            identity = Identity.of("component", process.pid, argv)
            assert identity.alive()
            assert not Identity("component", process.pid, [str(script), "301"], identity.started).alive()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_processes_that_were_recorded_in_the_same_instant_are_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    """Files written within a few milliseconds may have the same time, because a file system's clock is coarse."""
    names = ["etcd", "kube-apiserver", "kwok", "a", "z", "m"]
    for number, name in enumerate(names):
        PidFiles(tmp_path).write(Identity(name, 1000 + number, [name], "1"))
        os.utime(tmp_path / f"{name}.pid", (ANCIENT, ANCIENT))
    assert [each.component for each in PidFiles(tmp_path).read()] == names


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, "9" * 5000])
def test_a_file_that_is_not_readable_is_skipped(text: str, tmp_path: Path) -> None:
    (tmp_path / "etcd.pid").write_text(text)
    assert PidFiles(tmp_path).read() == []
