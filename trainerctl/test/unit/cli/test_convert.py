# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl convert``: the objects on standard output, a line for each lost field, the exit code."""

import json
from pathlib import Path

import pytest
import yaml

import trainerctl

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


def test_fields_of_a_runtime_patch_that_no_override_has_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(
        JOB.partition("---")[0].replace('labels: {l: "1"}', "runtimePatches:\n  - manager: example.com/a")
        + "    trainingRuntimeSpec:\n      mlPolicy: {numNodes: 5}\n      template:\n"
        "        metadata: {labels: {a: b}, name: x}\n        spec:\n          suspend: true\n"
        "          replicatedJobs:\n          - {name: node, replicas: 3, template: {spec: {parallelism: 4,"
        " template: {spec: {nodeSelector: {c: d}}}}}}\n"
    )
    assert trainerctl.main(["convert", "-f", str(file), "--to", "2.1"]) == 1
    said = capsys.readouterr()
    spec = yaml.safe_load(said.out)["spec"]
    assert spec["labels"] == {"a": "b"}
    assert spec["podTemplateOverrides"] == [
        {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"c": "d"}}}
    ]
    fields = ["mlPolicy", "replicas", "parallelism", "suspend", "metadata.name"]
    assert [f".{field}: " in line for field, line in zip(fields, said.err.splitlines(), strict=True)] == [
        True
    ] * 5


def test_a_word_for_the_processes_becomes_an_annotation_without_metadata_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\nspec: {trainer: {numProcPerNode: cpu}}\n"
    )
    assert trainerctl.main(["convert", "-f", str(file), "--to", "2.3"]) == 1
    (annotation,) = yaml.safe_load(capsys.readouterr().out)["metadata"]["annotations"].items()
    assert annotation == ("trainer.kubeflow.org/num-proc-per-node", "cpu")


def test_a_value_of_a_wrong_type_is_an_error_of_the_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(JOB.replace('{l: "1"}', "[]"))
    assert trainerctl.main(["convert", "-f", str(file), "--to", "2.3"]) == 2
    assert "spec.labels: a map is expected" in capsys.readouterr().err
