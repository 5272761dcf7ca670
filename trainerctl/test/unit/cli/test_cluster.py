# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that use a local cluster, and its logs."""

import shutil
from pathlib import Path

import anyio
import pytest
from controller_runtime.envtest import Component, Supervisor, file_lock

import trainerctl
from trainerctl.cli import cluster, parser
from trainerctl.cli.terminal import Console
from trainerctl.localcluster.names import state_directory
from trainerctl.localcluster.state import State


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = state_directory("default")
    found.mkdir(parents=True)
    State("https://127.0.0.1:1", "", 0, []).write(found)
    return found


@pytest.mark.parametrize("command", ["stop", "start"])
async def test_a_command_that_waited_for_the_removal_of_its_cluster_reports_that(
    directory: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    codes: list[int] = []

    async def run() -> None:
        function = {"stop": cluster.stop_command, "start": cluster.start_command}[command]
        codes.append(await function(parser.parse(["cluster", command]), Console(), Console(stderr=True)))

    async with anyio.create_task_group() as tasks, file_lock(directory.parent / "default.lock"):
        tasks.start_soon(run)
        await anyio.sleep(1)
        shutil.rmtree(directory)
    assert codes == [1]
    assert "Cluster default does not exist" in capsys.readouterr().err
    assert not await anyio.Path(directory).exists()


@pytest.mark.parametrize(
    "components", [[], [Component("trainer-controller-manager", ["/manager"])]], ids=["absent", "running"]
)
async def test_flags_that_do_not_change_an_existing_cluster_and_its_manager_are_named(
    components: list[Component],
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def is_up(_cluster: object) -> bool:
        return True

    monkeypatch.setattr("trainerctl.localcluster.cluster.Cluster.is_up", is_up)
    State("https://127.0.0.1:1", "", 0, components).write(directory)
    line = "cluster up --nodes 3 --gpus 1 --coscheduling --without-manager"
    assert await cluster.up_command(parser.parse(line.split()), Console(), Console(stderr=True)) == 0
    said = capsys.readouterr().err
    last = ", --without-manager" if components else ""
    assert f"--nodes, --gpus, --coscheduling{last} had no effect" in said
    assert ("The manager was not started" in said) == (not components)


async def test_start_says_how_to_start_the_manager_and_down_says_that_a_stopped_cluster_is_removed(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def restart(_cluster: object) -> list[str]:
        return ["etcd"]

    async def is_up(_cluster: object) -> bool:
        return False

    monkeypatch.setattr("trainerctl.localcluster.cluster.Cluster.restart", restart)
    monkeypatch.setattr("trainerctl.localcluster.cluster.Cluster.is_up", is_up)
    out, err = Console(), Console(stderr=True)
    assert await cluster.start_command(parser.parse(["cluster", "start"]), out, err) == 0
    assert "To start it, run:\ntrainerctl run\n" in capsys.readouterr().err
    down = parser.parse(["cluster", "down"])
    for said in ("Removed cluster default, which was stopped.", "No cluster default is running."):
        assert await cluster.down_command(down, Console(), Console(stderr=True)) == 0
        assert capsys.readouterr().out == f"{said}\n"
    assert not await anyio.Path(directory).exists()


@pytest.mark.real_time
async def test_the_state_of_each_component_is_shown_and_the_cluster_is_healthy_if_all_are(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    components = [Component(name, ["/bin/sleep", "6804"]) for name in ("etcd", "kwok")]
    supervisor = Supervisor(directory, tied=True)

    async def shown(*words: str) -> tuple[int, list[list[str]]]:
        function = cluster.status_command if words[0] == "status" else cluster.list_command
        code = await function(parser.parse(["cluster", *words]), Console(width=200), Console(stderr=True))
        return code, [line.split() for line in capsys.readouterr().out.splitlines()]

    try:
        pids = [str(supervisor.start(each).identity.pid) for each in components]
        State("https://127.0.0.1:1", "", 3, components).write(directory)
        code, (_head, *rows) = await shown("status")
        assert (code, rows[:2]) == (0, [["etcd", "healthy", pids[0]], ["kwok", "healthy", pids[1]]])
        kubeconfig = str(directory / "admin.kubeconfig")
        assert rows[2:] == [["logs:", str(directory / "logs")], ["export", f"KUBECONFIG={kubeconfig}"]]
        assert (await shown("list"))[1][1:] == [["default", "healthy", "3", kubeconfig]]
        assert await cluster.running() == f"the local cluster default runs: export KUBECONFIG={kubeconfig}"

        await supervisor.stop("kwok")
        code, (_head, *rows) = await shown("status")
        assert (code, rows[:2]) == (1, [["etcd", "healthy", pids[0]], ["kwok", "not", "running", "-"]])
        assert (await shown("list"))[1][1:] == [["default", "unhealthy:", "kwok", "3", kubeconfig]]
        assert not await cluster.running()
    finally:
        supervisor.kill()
    assert (await shown("list"))[1][1:] == [["default", "stopped", "3", kubeconfig]]
    assert await shown("status", "--name", "other") == (1, [])


@pytest.fixture
def logs(directory: Path) -> Path:
    folder = directory / "logs"
    folder.mkdir()
    (folder / "etcd.log").write_text("one\ntwo\nthree\nhalf a l")
    (folder / "kwok.log").write_text("\x1b[31mred\n")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = trainerctl.main(["cluster", "logs", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_one_component_is_printed_as_it_is_and_several_with_their_names(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "etcd", "--tail", "2") == (0, "three\nhalf a l\n", "")
    code, out, _ = run(capsys)
    assert (code, out.splitlines()) == (
        0,
        ["etcd: one", "etcd: two", "etcd: three", "etcd: half a l", r"kwok: \x1b[31mred"],
    )


def test_an_unknown_component_or_cluster_is_named(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "nope") == (1, "", "trainerctl: no log of nope; there are logs of etcd, kwok\n")
    assert run(capsys, "--name", "other") == (1, "", "trainerctl: cluster other has no logs\n")


async def test_new_lines_follow_and_half_a_line_waits_for_its_end(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parsed = parser.parse(["cluster", "logs", "etcd", "--follow", "--tail", "0"])
    with anyio.move_on_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.logs_command, parsed, Console(), Console(stderr=True))
            await anyio.sleep(1)
            with (logs / "etcd.log").open("a") as file:
                file.write("ine\nfour\n")
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()

    assert capsys.readouterr().out == "half a line\nfour\n"
