# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl convert``: the objects on standard output, a line for each lost field, the exit code."""

import json
from collections.abc import Callable

import yaml

Tool = Callable[..., tuple[int, str, str]]
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


def test_the_objects_are_printed_in_their_order(tool: Tool) -> None:
    code, out, err = tool("convert --to 2.3", JOB)
    assert (code, err) == (0, "")
    job, other = yaml.safe_load_all(out)
    (patch,) = job["spec"]["runtimePatches"]
    assert patch["trainingRuntimeSpec"]["template"]["metadata"] == {"labels": {"l": "1"}}
    assert other["kind"] == "ConfigMap"


def test_a_lost_field_has_a_line_and_the_exit_code_1(tool: Tool) -> None:
    code, out, err = tool(
        "convert --to 2.1 -o json", JOB.replace("labels:", "activeDeadlineSeconds: 5\n  labels:")
    )
    assert code == 1
    assert json.loads(out)["items"][0]["spec"]["labels"] == {"l": "1"}
    problem = "spec.activeDeadlineSeconds: a TrainJob of v2.1 has no deadline"
    assert err == f"trainerctl: in.yaml:7: document 1 (TrainJob a): {problem}\n"


def test_a_word_for_the_processes_becomes_an_annotation_without_metadata_too(tool: Tool) -> None:
    head = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n"
    code, out, _ = tool("convert --to 2.3", head + "spec: {trainer: {numProcPerNode: cpu}}\n")
    assert code == 1
    (annotation,) = yaml.safe_load(out)["metadata"]["annotations"].items()
    assert annotation == ("trainer.kubeflow.org/num-proc-per-node", "cpu")


def test_a_value_of_a_wrong_type_is_an_error_of_the_input(tool: Tool) -> None:
    code, _, err = tool("convert --to 2.3", JOB.replace('{l: "1"}', "[]"))
    assert (code, "spec.labels: a map is expected" in err) == (2, True)
