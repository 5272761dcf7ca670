# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl exec``: which container it selects, and what it says if no command can run."""

import io
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from controller_runtime.interop import kubernetes_asyncio
from controller_runtime.machinery.errors import ForbiddenError
from testkit.why.world import TrainJobObjects

from trainerctl.cli import exec as exec_
from trainerctl.cli import execution, live, parser
from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputError

STEP = "jobset.sigs.k8s.io/replicatedjob-name"


class Running:
    """A command that writes to both streams, after it has read its input."""

    def __init__(self, code: int) -> None:
        self.exit_code = code
        self.read = b""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        yield 1, b"out\x1b[0m\n"
        yield 2, b"err\n"

    async def write(self, data: bytes) -> None:
        self.read += data

    async def close_input(self) -> None:
        self.read += b"<end>"


@pytest.fixture
def world() -> TrainJobObjects:
    return TrainJobObjects()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, world: TrainJobObjects) -> list[Any]:
    """Return what the command asks the API server for; the commands end with code 5."""
    found: list[Any] = []

    class Cluster:
        async def snapshot(self, name: str, *, explains: bool) -> Any:
            return world.snapshot()

    @asynccontextmanager
    async def connect(_arguments: Any) -> AsyncIterator[Any]:
        yield Cluster()

    @asynccontextmanager
    async def execute(_config: Any, pod: Any, command: Any, **options: Any) -> AsyncIterator[Any]:
        found.append((*pod, command, options))
        yield Running(5)

    async def load(*_words: Any, **_options: Any) -> None:
        return None

    monkeypatch.setattr(live, "connect", connect)
    monkeypatch.setattr(kubernetes_asyncio, "execute", execute)
    monkeypatch.setattr(exec_, "load_config", load)
    return found


async def run(*words: str) -> int:
    out = Console(file=io.StringIO())
    return await exec_.exec_command(parser.parse(["exec", *words]), out, out)


async def test_the_command_runs_in_the_container_that_trains_and_its_output_is_passed_on_as_it_is(
    asked: list[Any], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert await run("llama", "--rank", "1", "--", "ls", "-l", "--", "a b") == 5

    assert capfdbinary.readouterr() == (b"out\x1b[0m\n", b"err\n")
    options = {"container": "node", "stdin": False, "tty": False}
    assert asked == [("team-a", "llama-node-0-1-abcde", ["ls", "-l", "--", "a b"], options)]


async def test_the_launcher_trains_although_other_pods_have_rank_0_too(
    world: TrainJobObjects, asked: list[Any]
) -> None:
    world.job_set["spec"]["replicatedJobs"] = [{"name": "node"}, {"name": "launcher"}]
    world.pods[1]["metadata"]["labels"][STEP] = "launcher"
    world.pods[1]["metadata"]["annotations"] = {}

    assert await run("llama", "--", "ls") == 5
    assert await run("llama", "--step", "node", "--", "ls") == 5

    assert [name for _, name, *_ in asked] == ["llama-node-0-1-abcde", "llama-node-0-0-abcde"]


async def test_local_processes_get_the_protocol_that_they_know(
    world: TrainJobObjects, asked: list[Any]
) -> None:
    world.nodes[0]["metadata"]["labels"] = {"type": "process"}

    await run("llama", "--", "cat")

    assert asked[0][3]["protocols"] == ("v4.channel.k8s.io",)


def _hidden(world: TrainJobObjects) -> None:
    world.without_pods()
    world.unread["Pod"] = "pods is forbidden"


def _simulated(world: TrainJobObjects) -> None:
    world.nodes[0]["metadata"]["labels"] = {"type": "kwok"}


def _crashes(world: TrainJobObjects) -> None:
    world.waits("CrashLoopBackOff", "back-off")


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        (
            TrainJobObjects.without_pods,
            [],
            "no pod that trains has rank 0; see trainerctl get llama -n team-a",
        ),
        (TrainJobObjects.without_pods, ["--step", "\x1b[2J"], "no pod of step \\x1b[2J has rank 0"),
        (_hidden, [], "the pods cannot be read: pods is forbidden"),
        (_simulated, [], "--run-processes"),
        (
            _crashes,
            [],
            "container node of llama-node-0-0-abcde does not run; see trainerctl why llama -n team-a",
        ),
        (
            lambda world: None,
            ["-c", "sidecar"],
            "llama-node-0-0-abcde has no container sidecar; its containers are node",
        ),
    ],
)
async def test_a_command_that_cannot_run_is_one_line(
    world: TrainJobObjects,
    asked: list[Any],
    capsys: pytest.CaptureFixture[str],
    change: Any,
    words: list[str],
    said: str,
) -> None:
    change(world)

    assert await run("llama", *words, "--", "ls") == 1

    assert asked == []
    assert said in capsys.readouterr().err


async def test_without_the_extra_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "controller_runtime.interop.kubernetes_asyncio"
    monkeypatch.delattr("controller_runtime.interop.kubernetes_asyncio")
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.client", None)

    with pytest.raises(InputError, match=r"exec needs the extra trainerctl\[exec\]"):
        await run("llama", "--", "ls")


async def test_a_refusal_names_the_permission(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: Any, **_options: Any) -> Any:
        raise ForbiddenError("exec in pod team-a/x was answered with 403", code=403)

    monkeypatch.setattr(kubernetes_asyncio, "execute", refuse)
    with pytest.raises(ForbiddenError, match="kubectl auth can-i create pods/exec -n team-a"):
        await run("llama", "--", "ls")


@pytest.mark.real_time
async def test_the_input_is_passed_on_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    source, to = os.pipe()
    os.write(to, b"hello")
    os.close(to)
    running = Running(0)
    with os.fdopen(source) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        await exec_._send_input(running)  # type: ignore[arg-type]  # what it uses of a command

    assert running.read == b"hello<end>"


def test_a_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse(["exec", "llama"])
    assert "COMMAND" in capsys.readouterr().err


def test_a_reader_that_stops_ends_a_command_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_words: Any) -> int:
        raise ExceptionGroup("tasks", [BrokenPipeError(32, "Broken pipe")])

    monkeypatch.setattr(exec_, "exec_command", fail)
    with pytest.raises(BrokenPipeError):  # which ends the program in silence
        execution.run(parser.parse(["exec", "llama", "--", "yes"]), None)
