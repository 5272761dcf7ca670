# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that takes the name of a TrainJob, with a name that does not exist, on a real API server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from controller_runtime.envtest import Environment

from trainerctl.cli import parser
from trainerctl.cli.help import leaves

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
NAMED = [
    name
    for name, command in leaves(parser.parser()).items()
    if {"context"} < {action.dest for action in command._actions}
    and {"name", "names"} & {action.dest for action in command._actions}
]


@pytest.mark.parametrize("name", NAMED)
def test_a_name_that_does_not_exist_is_reported_in_one_line(
    name: str, trainer_control_plane: Environment, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(trainer_control_plane.kubeconfig_for("admin", ["system:masters"])))
    words = [*name.split(), "missing", "-n", "nowhere", "--kubeconfig", str(kubeconfig)]
    words += ["--", "true"] if name == "exec" else []
    done = subprocess.run(
        [sys.executable, "-m", "trainerctl", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    assert len([line for line in lines if "missing" in line]) == 1, lines
    assert "not found" in done.stdout + done.stderr or "does not exist" in done.stdout + done.stderr, lines
    assert any("nowhere" in line for line in lines), lines


@pytest.mark.parametrize("name", ["get", "why missing", "delete missing"])
def test_without_credentials_one_line_says_so(
    name: str, trainer_control_plane: Environment, tmp_path: Path
) -> None:
    content = trainer_control_plane.kubeconfig_for("admin", ["system:masters"])
    content["users"][0]["user"] = {}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [sys.executable, "-m", "trainerctl", *name.split(), "--kubeconfig", str(kubeconfig)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("trainerctl: forbidden: ")
    assert line.endswith("; the user of the kubeconfig has no credentials")


def test_every_command_with_a_name_is_tried() -> None:
    assert set(NAMED) >= {"get", "why", "describe", "events", "logs", "wait", "suspend", "resume", "delete"}
