# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl convert``: the objects on standard output, a line for each lost field, the exit code."""

import json
from pathlib import Path

import pytest
import yaml

from pkg.cli import trainerctl

pytestmark = pytest.mark.real_time
JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: a}
spec:
  runtimeRef: {name: torch-distributed}
  labels: {l: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"""


def test_the_objects_are_printed_in_their_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(JOB)
    assert trainerctl.main(["convert", "-f", str(file), "--to", "2.3"]) == 0
    said = capsys.readouterr()
    job, other = yaml.safe_load_all(said.out)
    (patch,) = job["spec"]["runtimePatches"]
    assert patch["trainingRuntimeSpec"]["template"]["metadata"] == {"labels": {"l": "1"}}
    assert other["kind"] == "ConfigMap"
    assert said.err == ""


def test_a_lost_field_has_a_line_and_the_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(JOB.replace("labels:", "activeDeadlineSeconds: 5\n  labels:"))
    assert trainerctl.main(["convert", "-f", str(file), "--to", "2.1", "-o", "json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["items"][0]["spec"]["labels"] == {"l": "1"}
    problem = "spec.activeDeadlineSeconds: a TrainJob of v2.1 has no deadline"
    assert said.err == f"trainerctl: {file}:7: document 1 (TrainJob a): {problem}\n"


def test_a_value_of_a_wrong_type_is_an_error_of_the_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(JOB.replace('{l: "1"}', "[]"))
    assert trainerctl.main(["convert", "-f", str(file), "--to", "2.3"]) == 2
    assert "spec.labels: a map is expected" in capsys.readouterr().err
