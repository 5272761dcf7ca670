# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: accepted flags, and one line for each error."""

import shutil
import sys
from pathlib import Path

import pytest
from controller_runtime.envtest import Binaries

import trainerctl
from trainerctl.cli import cluster, execution
from trainerctl.localcluster.names import state_directory


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
        ("cluster up --image a=/nonexistent", "/nonexistent has no executable python"),
        ("cluster up --\x1b[31m", "unrecognized arguments: --\\x1b[31m"),
    ],
)
def test_a_command_line_without_sense_is_one_complaint_and_code_2(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "run", lambda *_: pytest.fail("the command line is accepted"))
    with pytest.raises(SystemExit) as caught:
        trainerctl.main(line.split())
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_run_without_a_cluster_says_how_to_make_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert trainerctl.main(["run"]) == 1
    assert "trainerctl cluster up --without-manager" in capsys.readouterr().err


def test_crds_are_printed_as_they_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["crds"]) == 0
    assert "name: trainjobs.trainer.kubeflow.org" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("up --kubernetes 1.99", "Kubernetes 1.99 is not among the pinned releases"),
        ("build --jobset 1", "JobSet 1 is not among the pinned releases"),
        ("up --feature-gates Nope=true", "unrecognized feature gate: Nope"),
        ("up --feature-gates TrainJobStatus", 'missing bool value for "TrainJobStatus"'),
        ("up --kai-scheduler x", "--kai-scheduler and --kai-binder are required together"),
        ("up --kai-binder x", "--kai-scheduler and --kai-binder are required together"),
        ("up --kai-crds x", "--kai-scheduler and --kai-binder are required together"),
        ("up --workloads --kubernetes 1.34", "has no gangs"),
        (f"up --image a={Path(sys.executable).parent}", "--image needs --run-processes"),
        ("up --name demo", "the name demo is reserved"),
    ],
)
def test_flags_that_no_cluster_can_have_are_an_invalid_command_line(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in ("_lock", "announce"):  # the first steps for valid flags
        monkeypatch.setattr(cluster, step, lambda *_: pytest.fail("the command line is accepted"))
    assert trainerctl.main(["cluster", *line.split()]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


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
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    for line in ("cluster list", "cluster status", "demo", "run"):
        assert trainerctl.main(line.split()) == 1
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
    monkeypatch.setattr(Binaries, "locate", lambda *_: pytest.fail("the cluster is begun"))
    assert trainerctl.main(["cluster", "up"]) == 1
    assert "has 3 MiB of free space; a cluster needs 256 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--all-namespaces"], "use --namespace"), (["--watch", "-o", "json"], "only the output format table")],
)
def test_get_explains_which_flags_exclude_each_other(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert trainerctl.main(["get", "llama", *flags, "--kubeconfig", str(tmp_path / "none")]) == 2
    assert words in capsys.readouterr().err
