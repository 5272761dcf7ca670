# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: accepted flags, and one line for each error."""

import shutil
import sys
from pathlib import Path

import pytest

import trainerctl
from trainerctl.cli import execution, parser
from trainerctl.localcluster.names import state_directory


def test_cluster_up_takes_its_flags() -> None:
    line = "cluster up --name other --nodes 2 --gpus 0 --without-manager --timeout 30 --coscheduling"
    parsed = parser.parse(line.split())
    assert (parsed.name, parsed.nodes, parsed.gpus) == ("other", 2, 0)
    assert (parsed.without_manager, parsed.timeout, parsed.coscheduling) == (True, 30, True)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "COMMAND"),
        ("cluster", "COMMAND"),
        ("cluster sideways", "invalid choice: 'sideways'"),
        ("cluster up --nodes -1", "argument --nodes: -1 is not an integer between 0 and 5000"),
        ("cluster up --gpus some", "argument --gpus: some is not an integer between 0 and 5000"),
        ("cluster up --timeout soon", "argument --timeout: soon is not a positive number of seconds"),
        ("cluster up --timeout 0", "argument --timeout: 0 is not a positive number of seconds"),
        ("cluster up --flag", "unrecognized arguments: --flag"),
        ("cluster up --timeout inf", "argument --timeout: inf is not a positive number of seconds"),
        ("cluster status --name ../etc", '"../etc" is not a valid name for a cluster'),
        ("run --name UPPER", '"UPPER" is not a valid name for a cluster'),
        ("demo --nodes 0", "argument --nodes: 0 is not an integer between 1 and 100"),
        ("demo --timeout nan", "argument --timeout: nan is not a positive number of seconds"),
        ("render -n Bad -f x", "argument -n/--namespace: Bad is not a valid namespace"),
        ("cluster up --\x1b[31m", "unrecognized arguments: --\\x1b[31m"),
    ],
)
def test_a_command_line_without_sense_is_one_complaint_and_code_2(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A parser that accepts one of these must start no cluster.
    monkeypatch.setattr(execution, "run", lambda *_: pytest.fail("the command line is accepted"))
    with pytest.raises(SystemExit) as caught:
        trainerctl.main(line.split())
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        trainerctl.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("trainerctl ")


def test_run_without_a_cluster_says_how_to_make_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    assert trainerctl.main(["run"]) == 1
    assert "trainerctl cluster up --without-manager" in capsys.readouterr().err


def test_crds_are_printed_as_they_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["crds"]) == 0
    assert "name: trainjobs.trainer.kubeflow.org" in capsys.readouterr().out


def test_the_demo_s_cluster_cannot_be_made_to_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["cluster", "up", "--name", "demo"]) == 2
    assert "the name demo is reserved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("up --kubernetes 1.99", "Kubernetes 1.99 is not among the pinned releases"),
        ("build --jobset 1", "JobSet 1 is not among the pinned releases"),
        ("up --feature-gates Nope=true", "unrecognized feature gate: Nope"),
        ("up --kai-scheduler x", "required together"),
        ("up --workloads --kubernetes 1.34", "has no gangs"),
    ],
)
def test_flags_that_no_cluster_can_have_are_an_invalid_command_line(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert trainerctl.main(["cluster", *line.split()]) == 2
    assert words in capsys.readouterr().err


def test_a_cluster_that_cannot_be_read_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = state_directory("default") / "cluster.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"of": "another version"}')

    assert trainerctl.main(["cluster", "up"]) == 1

    assert "To replace them, run: trainerctl cluster up --recreate --name default" in capsys.readouterr().err
    assert kept.read_text() == '{"of": "another version"}'
    assert trainerctl.main(["cluster", "list"]) == 0
    assert "default  unreadable" in capsys.readouterr().out


def test_without_a_home_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    for command in (["cluster", "list"], ["cluster", "status"], ["demo"], ["run"]):
        assert trainerctl.main(command) == 1
        assert "set HOME or XDG_STATE_HOME" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["render", "explain", "validate", "group"])
def test_no_input_at_all_is_told(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainerctl.main([command, "-f", ""]) == 2
    assert capsys.readouterr().err == "trainerctl: a file name is empty\n"
    monkeypatch.setattr(sys, "stdin", None)
    assert trainerctl.main([command, "-f", "-"]) == 2
    assert capsys.readouterr().err == "trainerctl: standard input is closed\n"


def test_a_cluster_is_not_begun_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=3 << 20))
    assert trainerctl.main(["cluster", "up"]) == 1
    assert "has 3 MiB of free space; a cluster needs 256 MiB" in capsys.readouterr().err


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--all-namespaces"], "use --namespace"), (["--watch", "-o", "json"], "only the output format table")],
)
def test_get_explains_which_flags_exclude_each_other(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert trainerctl.main(["get", "llama", *flags, "--kubeconfig", str(tmp_path / "none")]) == 2
    assert words in capsys.readouterr().err
