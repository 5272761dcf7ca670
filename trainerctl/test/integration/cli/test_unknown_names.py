# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that takes the name of a TrainJob, with a name that does not exist, on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from controller_runtime.envtest import Environment

import trainerctl
from trainerctl.cli import parser
from trainerctl.cli.help import leaves

pytestmark = pytest.mark.integration

NAMED = [
    name
    for name, command in leaves(parser.parser()).items()
    if {"context"} < {action.dest for action in command._actions}
    and {"name", "names"} & {action.dest for action in command._actions}
]


@pytest.fixture
def kubeconfig(trainer_control_plane: Environment, tmp_path: Path) -> Path:
    """Return the kubeconfig of an administrator."""
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(trainer_control_plane.kubeconfig_for("admin", ["system:masters"])))
    return file


@pytest.mark.parametrize("name", NAMED)
def test_a_name_that_does_not_exist_is_reported_in_one_line(
    name: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*name.split(), "missing", "-n", "nowhere", "--kubeconfig", str(kubeconfig)]
    words += ["--", "true"] if name == "exec" else []
    assert trainerctl.main(words) == 1
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert len([line for line in said.splitlines() if "missing" in line]) == 1, said
    assert "not found" in said or "does not exist" in said, said
    assert "nowhere" in said, said


@pytest.mark.parametrize("name", ["get", "why missing", "delete missing"])
def test_without_credentials_one_line_says_so(
    name: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = {}
    kubeconfig.write_text(yaml.safe_dump(content))
    assert trainerctl.main([*name.split(), "--kubeconfig", str(kubeconfig)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("trainerctl: forbidden: ")
    assert line.endswith("; the user of the kubeconfig has no credentials")


def test_every_command_with_a_name_is_tried() -> None:
    assert set(NAMED) >= {"get", "why", "describe", "events", "logs", "wait", "suspend", "resume", "delete"}
