# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""trainerctl's cluster as a person meets it: up, status, down; and nothing left after any kind of end."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import anyio
import psutil
import pytest

import pkg
from pkg.cli.cluster import Cluster
from pkg.cli.cluster.state import State, state_directory
from pkg.ctrl.envtest import eventually

pytestmark = pytest.mark.e2e

Trainerctl = Callable[..., subprocess.Popen[str]]
PROGRAM = "import sys; from pkg.cli.trainerctl import main; sys.exit(main())"


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    home = str(Path(pkg.__file__).parent.parent)
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": home, "COLUMNS": "200"}


@pytest.fixture
def directory(environ: Mapping[str, str]) -> Path:
    return state_directory("default", environ)


@pytest.fixture
def trainerctl(environ: Mapping[str, str], directory: Path) -> Iterator[Trainerctl]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-P", "-c", PROGRAM, *arguments]
        process = subprocess.Popen(
            argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    Cluster(directory).kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def running_in(directory: Path) -> list[str]:
    """Return the command lines of processes that were given files of ``directory``."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if f"={directory}" in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


def test_up_leaves_it_running_status_tells_and_down_removes_all(
    trainerctl: Trainerctl, directory: Path
) -> None:
    code, out, err = finish(trainerctl("cluster", "up", "--nodes", "2"))
    assert code == 0, err
    assert out == f"export KUBECONFIG={directory / 'admin.kubeconfig'}\n"
    assert len(running_in(directory)) == 7

    code, out, err = finish(trainerctl("cluster", "status"))
    assert code == 0, out + err
    assert len(re.findall(r"^\S+ +healthy +\d+ *$", out, re.MULTILINE)) == 7
    assert "nodes: 2 of 2 take pods" in out

    code, out, err = finish(trainerctl("cluster", "up"))
    assert (code, "is up already" in err) == (0, True)

    code, out, err = finish(trainerctl("cluster", "down"))
    assert code == 0, err
    assert out.startswith("Stopped etcd, kube-apiserver, ")
    assert running_in(directory) == []
    assert not directory.exists()
    code, out, err = finish(trainerctl("cluster", "status"))
    assert (code, out) == (1, "")
    assert "There is no cluster default" in err


def test_a_dead_component_is_told_by_status_and_mended_by_the_next_up(
    trainerctl: Trainerctl, directory: Path
) -> None:
    assert finish(trainerctl("cluster", "up", "--nodes", "1"))[0] == 0
    before = Cluster(directory).supervisor.processes
    os.kill(before["kube-scheduler"].identity.pid, signal.SIGKILL)
    code, out, _ = finish(trainerctl("cluster", "status"))
    assert code == 1
    assert re.search(r"^kube-scheduler +not running +- *$", out, re.MULTILINE)
    assert finish(trainerctl("cluster", "up", "--nodes", "1"))[0] == 0
    assert not [name for name, process in before.items() if process.identity.alive()]
    assert finish(trainerctl("cluster", "status"))[0] == 0


async def starting(directory: Path) -> None:
    """Return when an `up` is under way: the API server has been started, the cluster is not up."""

    def begun() -> bool:
        return (directory / "pids" / "kube-apiserver.pid").exists()

    await eventually(begun, timeout=60, reason="kube-apiserver has been started")
    assert State.read(directory) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_up_leaves_nothing(
    trainerctl: Trainerctl, directory: Path, number: signal.Signals
) -> None:
    process = trainerctl("cluster", "up")
    await starting(directory)
    process.send_signal(number)
    code, out, _ = await anyio.to_thread.run_sync(finish, process)
    assert (code, out) == (128 + number, "")
    assert running_in(directory) == []


async def test_what_a_killed_up_left_is_ended_by_the_next(trainerctl: Trainerctl, directory: Path) -> None:
    process = trainerctl("cluster", "up")
    await starting(directory)
    process.kill()
    await anyio.to_thread.run_sync(finish, process)
    left = Cluster(directory).supervisor.processes
    assert left["kube-apiserver"].identity.alive()
    code, _, err = await anyio.to_thread.run_sync(finish, trainerctl("cluster", "up", "--nodes", "1"))
    assert code == 0, err
    assert not any(process.identity.alive() for process in left.values())
    assert len(running_in(directory)) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
async def test_a_killed_demo_leaves_no_process(
    trainerctl: Trainerctl, directory: Path, environ: Mapping[str, str]
) -> None:
    demo = state_directory("demo", environ)
    process = trainerctl("demo")
    await starting(demo)
    process.kill()
    await anyio.to_thread.run_sync(finish, process)
    await eventually(lambda: running_in(demo) == [], reason="the demo's processes have ended")


def test_the_demo_ends_by_itself_with_a_complete_train_job(trainerctl: Trainerctl) -> None:
    code, out, err = finish(trainerctl("demo"))
    assert code == 0, out + err
    took = re.search(r"TrainJob hello-torch is Complete, (\S+) s after it was created", out)
    assert took is not None, out
    assert float(took[1]) < 15
    assert len(re.findall(r"^Pod +hello-torch-node-0-\d-\w+ +Succeeded +node-\d", out, re.MULTILINE)) == 3


def test_a_component_that_cannot_start_is_named_with_its_log(
    trainerctl: Trainerctl, environ: dict[str, str], tmp_path: Path, directory: Path
) -> None:
    broken = tmp_path / "assets" / "kube-scheduler"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho out of luck >&2\nexit 9\n")
    broken.chmod(0o755)
    environ["KUBEBUILDER_ASSETS"] = str(broken.parent)
    code, out, err = finish(trainerctl("cluster", "up"))
    assert (code, out) == (1, "")
    log = directory / "logs" / "kube-scheduler.log"
    assert f"trainerctl: kube-scheduler exited with code 9; log: {log}\n  | out of luck\n" in err
    assert "Traceback" not in err
    assert running_in(directory) == []
    assert log.read_text() == "out of luck\n"
