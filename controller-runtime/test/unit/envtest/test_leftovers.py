# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Files that killed environments left on disk."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controller_runtime.envtest.environment import make_directories, sweep
from controller_runtime.envtest.process import Identity, PidFiles

ANCIENT = 0


def run_directory(root: Path, name: str, *, locked: bool | None = False, old: bool = True) -> Path:
    """Make the directory of an environment; ``locked`` is None for one that was not locked yet."""
    directory = root / f"run-{name}"
    (directory / "pids").mkdir(parents=True)
    if locked is not None:
        (directory / "owner.lock").touch()
    if old:
        os.utime(directory, (ANCIENT, ANCIENT))
    return directory


def locker(directory: Path) -> subprocess.Popen[str]:
    """Start a process that has locked a directory."""
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.flock(file, fcntl.LOCK_EX); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(directory / "owner.lock")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_only_old_directories_of_owners_that_are_gone_are_removed(tmp_path: Path) -> None:
    running = run_directory(tmp_path, "running")
    killed = run_directory(tmp_path, "killed")
    fresh = run_directory(tmp_path, "fresh", old=False)
    unlocked = run_directory(tmp_path, "unlocked", locked=None, old=False)
    run_directory(tmp_path, "never-locked", locked=None)
    run_directory(tmp_path, "dead")
    (tmp_path / "unrelated").mkdir()
    with locker(running) as owner, locker(killed) as other:
        sweep(tmp_path, keep=60)
        left = sorted(tmp_path.iterdir())
        assert left == sorted([fresh, killed, running, unlocked, tmp_path / "unrelated"])
        other.kill()
        other.wait()
        sweep(tmp_path, keep=60)
        owner.kill()
    assert sorted(tmp_path.iterdir()) == sorted([fresh, running, unlocked, tmp_path / "unrelated"])


def test_the_components_of_an_owner_that_is_gone_are_ended_and_others_are_not(tmp_path: Path) -> None:
    running, dead = run_directory(tmp_path, "running"), run_directory(tmp_path, "dead", old=False)
    argv = ["/bin/sleep", "300"]
    with (
        locker(running) as owner,
        subprocess.Popen(argv) as ours,
        subprocess.Popen(argv) as theirs,
    ):
        for directory, process in ((dead, ours), (running, theirs)):
            PidFiles(directory / "pids").write(Identity.of("etcd", process.pid, argv))
        sweep(tmp_path, keep=60)
        assert ours.wait(timeout=60) == -signal.SIGKILL
        assert theirs.poll() is None
        theirs.kill()
        owner.kill()
    assert dead.exists(), "its logs may be read"


def test_an_environment_holds_the_locks_of_its_directories_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directories, locks = make_directories()
    try:
        os.utime(directories[0], (ANCIENT, ANCIENT))
        sweep(directories[0].parent, keep=0)
        assert directories[0].is_dir()
    finally:
        for lock in locks:
            os.close(lock)
        for directory in directories[1:]:
            shutil.rmtree(directory)
    os.utime(directories[0], (ANCIENT, ANCIENT))
    sweep(directories[0].parent, keep=0)
    assert not directories[0].exists()


def test_a_directory_that_another_process_removes_meanwhile_is_skipped(tmp_path: Path) -> None:
    gone = tmp_path / "run-gone"
    gone.symlink_to(tmp_path / "removed")  # a dangling link: it is listed, but leads nowhere
    for name in ("a", "z"):
        run_directory(tmp_path, name)
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
