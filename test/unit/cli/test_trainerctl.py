# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: what it accepts, and one line for what went wrong."""

import pytest

from pkg.cli import commandline, trainerctl


def test_cluster_up_takes_its_flags() -> None:
    line = "cluster up --name other --nodes 2 --gpus 0 --without-manager --timeout 30 --coscheduling"
    parsed = commandline.parser().parse_args(line.split())
    assert (parsed.name, parsed.nodes, parsed.gpus) == ("other", 2, 0)
    assert (parsed.without_manager, parsed.timeout, parsed.coscheduling) == (True, 30, True)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "COMMAND"),
        ("cluster", "COMMAND"),
        ("cluster sideways", "invalid choice: 'sideways'"),
        ("cluster up --nodes -1", "argument --nodes: -1 is not between 0 and 5000"),
        ("cluster up --gpus some", "argument --gpus: some is not between 0 and 5000"),
        ("cluster up --timeout soon", "argument --timeout: soon is not a time to wait"),
        ("cluster up --timeout 0", "argument --timeout: 0 is not a time to wait"),
        ("cluster up --flag", "unrecognized arguments: --flag"),
        ("demo --nodes 0", "argument --nodes: invalid choice: 0"),
    ],
)
def test_a_command_line_without_sense_is_one_complaint_and_code_2(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        trainerctl.main(line.split())
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        trainerctl.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("trainerctl ")


def test_a_bad_cluster_name_is_an_expected_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["cluster", "status", "--name", "../etc"]) == 1
    assert '"../etc" is no name for a cluster' in capsys.readouterr().err


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
