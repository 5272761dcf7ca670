# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The process of one container, the commands that run beside it and the end of both: real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path

import anyio
import psutil
import pytest
from controller_runtime.envtest import eventually
from testkit.local_pods import commands

from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.shim import tree

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]
_OF_THREADS = 1 << 31 | 1 << 32
"""The signals 32 and 33: the C library keeps them for threads, and no program can set them."""


@pytest.fixture
def plan(tmp_path: Path) -> process.Plan:
    """Return the plan of a container that runs until it is ended."""
    return process.Plan(
        argv=["sleep", "7913"],
        env={**os.environ, process.IDENTITY: f"{tmp_path}-0"},
        cwd=str(tmp_path),
        log=str(tmp_path / "log"),
        scratch=str(tmp_path / "scratch"),
        hostname="web",
        mounts=[],
        isolated=False,
    )


def _left(plan: process.Plan) -> list[str]:
    """Return the commands of the container's processes; they are found by their working folder."""
    return commands(lambda each: each.cwd() == plan.cwd)


@asynccontextmanager
async def _running(plan: process.Plan) -> AsyncIterator[process.Process]:
    """Start a process, and release it at the end of the block."""
    running = await process.start(plan)
    try:
        yield running
    finally:
        await running.close()


async def _until(path: str) -> None:
    await eventually(anyio.Path(path).exists, timeout=60, reason=f"{path} exists")


async def test_no_process_is_left_of_a_container_whose_shim_is_killed(plan: process.Plan) -> None:
    # Processes start and load programs while they are searched for.
    loads = 'echo "exec sh ./again" > again; setsid sh ./again & setsid sleep 7913 &'
    plan = replace(plan, argv=["sh", "-c", f"{loads} sleep 0.05; kill -9 $PPID; sleep 7913"])
    for _ in range(20):
        async with _running(plan) as running:
            with anyio.fail_after(60):
                assert await running.wait() == 137
            assert not _left(plan)


async def test_no_process_is_left_if_the_wait_is_cancelled_when_the_shim_is_killed(
    plan: process.Plan,
) -> None:
    plan = replace(plan, argv=["sh", "-c", "setsid sleep 7913 & touch up; sleep 7913"])
    async with _running(plan) as running:
        await _until(f"{plan.cwd}/up")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)
            await anyio.wait_all_tasks_blocked()
            (shim,) = (each for each in psutil.Process().children() if _is_parent(each, running.id.number))
            shim.kill()
            tasks.cancel_scope.cancel()
    assert not _left(plan)


def _is_parent(parent: psutil.Process, pid: int) -> bool:
    return pid in {child.pid for child in parent.children()}


async def test_a_daemon_that_a_command_beside_a_container_starts_ends_with_it(plan: process.Plan) -> None:
    daemon = replace(plan, argv=["sh", "-c", "setsid sleep 7914 > /dev/null 2>&1 & true"])
    async with _running(plan) as running:
        assert await process.run_beside(running.id, daemon, 60) == (0, "")
        await eventually(lambda: len(_left(plan)) == 2, timeout=60, reason="both run")
        await running.signal("SIGTERM")
        with anyio.fail_after(60):
            await running.wait()
        assert not _left(plan)


@pytest.fixture
def background() -> Iterator[None]:
    """Ignore and block signals, as for a cluster that a shell has started in the background."""
    before = {
        each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("background")
async def test_no_signal_is_ignored_or_blocked_in_a_container(plan: process.Plan) -> None:
    def noting(name: str) -> process.Plan:
        note = f"grep -E 'Sig(Blk|Ign)' /proc/self/status > {name}.part; mv {name}.part {name}"
        return replace(plan, argv=["sh", "-c", f"{note}; exec sleep {0 if name != 'first' else 7913}"])

    async with _running(noting("first")) as running:
        await process.run_beside(running.id, noting("beside"), 60)
        null = subprocess.DEVNULL
        command = await process.open_beside(
            running.id, noting("opened"), stdin=null, stdout=null, stderr=null
        )
        await command.wait()
        await command.aclose()
        for name in ("first", "beside", "opened"):
            await _until(f"{plan.cwd}/{name}")
            noted = await anyio.Path(plan.cwd, name).read_text()
            masks = [int(mask, 16) & ~_OF_THREADS for mask in noted.split()[1::2]]
            assert masks == [0, 0], f"{name}: {noted}"


def test_a_daemon_ends_with_a_kubelet_that_is_killed(plan: process.Plan) -> None:
    command = [sys.executable, "-S", "-P", "-m", "trainerctl.localcluster.processes.shim"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as shim:
        assert shim.stdin is not None
        assert shim.stdout is not None
        assert shim.stderr is not None
        shim.stdin.write(json.dumps(asdict(plan)).encode() + b"\n")
        shim.stdin.flush()
        assert b"started" in shim.stdout.readline()
        with subprocess.Popen(["sleep", "7914"], env=plan.env, cwd=plan.cwd) as daemon:
            shim.stdin.close()  # as if the kubelet had ended
            shim.stdout.close()
            assert daemon.wait(timeout=60) == -signal.SIGKILL
        assert shim.wait(timeout=60) == 0
        assert shim.stderr.read() == b""
    assert not _left(plan)


async def test_a_command_runs_beside_a_program_that_has_overwritten_its_environment(
    plan: process.Plan,
) -> None:
    # Programs that show a title in the list of processes write it over their environment.
    plan = replace(plan, argv=["sh", "-c", "touch up; exec env -i sleep 7913"])
    async with _running(plan) as running:
        await eventually(lambda: _left(plan) == ["sleep 7913"], timeout=60, reason="the program runs")
        said = await process.run_beside(running.id, replace(plan, argv=["echo", "beside"]), 60)
        assert said == (0, "beside")
        await running.signal("SIGKILL")


async def test_no_command_runs_beside_a_later_process_with_the_same_number(plan: process.Plan) -> None:
    async with _running(plan) as running:
        earlier = running.id._replace(began=running.id.began - 1)
        code, _ = await process.run_beside(earlier, replace(plan, argv=["touch", "ran"]), 60)
        assert code != 0
    assert not await anyio.Path(f"{plan.cwd}/ran").exists()


async def test_a_command_beside_a_container_that_ends_as_it_is_cancelled_is_released(
    plan: process.Plan,
) -> None:
    command = replace(plan, argv=["sh", "-c", "touch up; sleep 0.2"])
    async with _running(plan) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(process.run_beside, running.id, command, 60.0)
        await _until(f"{plan.cwd}/up")
        tasks.cancel_scope.cancel()
        time.sleep(1)  # noqa: ASYNC251 the command ends before the event loop notices it


def test_a_process_whose_parent_has_ended_before_it_can_follow_is_killed() -> None:
    code = "import os, sys; from trainerctl.localcluster.processes.shim import tree; tree.end_with_parent(int(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for parent, end in ((os.getpid(), 0), (os.getpid() + 1, -signal.SIGKILL)):
        done = subprocess.run([sys.executable, "-c", code, str(parent)], env=environment, check=False)
        assert done.returncode == end


def test_a_process_of_another_user_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(f"not allowed: signal {number} to {pid}")

    with subprocess.Popen(["sleep", "7913"]) as child:
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", refuse)
            patch.setattr(tree, "descendants", lambda: [child.pid])
            patch.setattr(tree, "reap", lambda main: None)  # this program has children of its own
            tree.kill_descendants(timeout=0.05)
        assert child.poll() is None
        child.kill()
