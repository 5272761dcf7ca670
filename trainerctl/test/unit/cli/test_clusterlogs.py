# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl cluster logs``."""

from pathlib import Path

import anyio
import pytest

import trainerctl
from trainerctl.cli import cluster, parser
from trainerctl.cli.terminal import Console


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    from trainerctl.localcluster.names import state_directory

    folder = state_directory("default") / "logs"
    folder.mkdir(parents=True)
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
