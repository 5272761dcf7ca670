# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate`` and ``render`` name the lines that make pod templates which an API server refuses."""

import json
from collections.abc import Callable

import pytest

Tool = Callable[..., tuple[int, str, str]]
JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: job}
spec:
  runtimeRef: {name: torch-distributed}
"""
RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-distributed, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              template:
                spec:
                  containers:
                    - {name: node, image: i}
                    - name: exporter
                      ports: [{containerPort: 9100, name: metrics}]
---
"""
OF_NODE = "the API server will refuse the Jobs of node: spec.template"
CASES = [
    pytest.param(
        JOB + "  trainer: {resourcesPerNode: {requests: {nvidia.com/gpu: 1}}}\n",
        f"6: document 1 (TrainJob job): spec.trainer.resourcesPerNode: {OF_NODE}.spec.containers[0].resources.limits",
        id="a device without a limit",
    ),
    pytest.param(
        JOB
        + "  trainer:\n    resourcesPerNode:\n      requests: {memory: 8Gi}\n      limits: {memory: 4Gi}\n",
        "8: document 1 (TrainJob job): spec.trainer.resourcesPerNode.requests.memory: ",
        id="a request above the limit",
    ),
    pytest.param(
        JOB
        + "  podTemplateOverrides:\n  - targetJobs: [{name: node}]\n    spec:\n      containers:\n"
        + "      - name: node\n        volumeMounts: [{name: shm, mountPath: /dev/shm}]\n",
        "11: document 1 (TrainJob job): spec.podTemplateOverrides[0].spec.containers[0].volumeMounts[0].name: ",
        id="a mount without a volume",
    ),
    pytest.param(
        JOB
        + "  runtimePatches:\n  - manager: a.b/c\n    trainingRuntimeSpec:\n      template:\n        spec:\n"
        + "          replicatedJobs:\n          - name: node\n            template:\n              spec:\n"
        + "                template:\n                  spec:\n                    nodeSelector: {pool: 'a b'}\n",
        "17: document 1 (TrainJob job): spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]."
        "template.spec.template.spec.nodeSelector.pool: ",
        id="a selector in a patch",
    ),
    pytest.param(
        RUNTIME + JOB,
        "17: document 1 (ClusterTrainingRuntime torch-distributed): spec.template.spec.replicatedJobs[0]."
        f"template.spec.template.spec.containers[1].image: {OF_NODE}.spec.containers[1].image: Required value",
        id="a container of the runtime without an image",
    ),
]

_PATCH = JOB + "  runtimePatches:\n  - manager: a.b/c\n    trainingRuntimeSpec:\n      template:\n"
CASES += [
    pytest.param(
        JOB + "  labels: {team: a b}\n",
        "6: document 1 (TrainJob job): spec.labels.team: the API server will refuse the JobSet: metadata.labels.team:",
        id="a label of the JobSet",
    ),
    pytest.param(
        _PATCH + "        metadata: {annotations: {a b: c}}\n",
        "10: document 1 (TrainJob job): spec.runtimePatches[0].trainingRuntimeSpec.template.metadata.annotations.a b: ",
        id="an annotation of the JobSet in a patch",
    ),
    pytest.param(
        JOB
        + "  podTemplateOverrides:\n  - targetJobs: [{name: node}]\n    metadata: {labels: {a: b}}\n"
        + _PATCH.removeprefix(JOB)
        + "        spec:\n          replicatedJobs:\n          - name: node\n            template:\n"
        + "              metadata: {labels: {team: a b}}\n",
        "17: document 1 (TrainJob job): spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]."
        "template.metadata.labels.team: the API server will refuse the Jobs of node: metadata.labels.team:",
        id="a label of the Job in a patch",
    ),
    pytest.param(
        RUNTIME.replace("  template:\n", "  template:\n    metadata: {labels: {team: a b}}\n", 1).replace(
            "- name: exporter", "- name: exporter\n                      image: e"
        )
        + JOB,
        "7: document 1 (ClusterTrainingRuntime torch-distributed): spec.template.metadata.labels.team: "
        "the API server will refuse the JobSet",
        id="a label of the JobSet in the runtime",
    ),
]


UNLABELLED = RUNTIME.replace(
    "            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}\n", ""
)
"""A runtime on whose job the trainer has no effect."""
CASES += [
    pytest.param(
        UNLABELLED.replace("image: i}", "image: i, resources: {requests: {a.b/c: 1}}}").replace(
            "- name: exporter", "- name: exporter\n                      image: e"
        )
        + JOB
        + "  trainer: {resourcesPerNode: {requests: {a.b/c: 2}}}\n",
        "15: document 1 (ClusterTrainingRuntime torch-distributed): spec.template.spec.replicatedJobs[0]."
        "template.spec.template.spec.containers[0].resources",
        id="a device of the runtime, which the trainer does not change",
    ),
    pytest.param(
        RUNTIME.replace("kind: Cluster", "kind: ")
        .replace("{name: torch", "{namespace: other, name: torch")
        .replace("image: i", "image: i, stdin: true")
        + RUNTIME.replace("kind: Cluster", "kind: ").replace(
            "{name: torch", "{namespace: default, name: torch"
        )
        + JOB.replace("{name: torch-distributed}", "{name: torch-distributed, kind: TrainingRuntime}"),
        "36: document 2 (TrainingRuntime default/torch-distributed): spec.template.spec.replicatedJobs[0]."
        "template.spec.template.spec.containers[1].image: ",
        id="a runtime whose name another namespace has, too",
    ),
]


@pytest.mark.parametrize(("text", "finding"), CASES)
def test_a_mistake_is_found_where_it_was_written(tool: Tool, text: str, finding: str) -> None:
    code, out, _ = tool("validate", text)
    assert code == 1
    # Runtimes of the files also have the mistakes of their own.
    line = next(each for each in out.splitlines() if each.startswith(f"in.yaml:{finding}"))
    assert "will refuse" in line
    refused = "JobSet" if "refuse the JobSet" in line else "Jobs"
    assert out.endswith(f"(TrainJob job): admitted, but its {refused} will be refused\n")

    code, out, err = tool("render", text)
    assert (code, "kind: JobSet" in out) == (0, True)
    assert f"warning: in.yaml:{finding}" in err


def test_a_mistake_of_a_shipped_runtime_is_said_of_the_reference(tool: Tool) -> None:
    text = JOB + "  initializer: {dataset: {storageUri: 'hf://a/b', env: [{name: A=B, value: c}]}}\n"
    code, out, _ = tool("validate", text.replace("torch-distributed", "torchtune-llama3.2-1b"))
    assert code == 1
    assert "in.yaml:5: document 1 (TrainJob job): spec.runtimeRef: the API server will refuse" in out


def test_findings_are_part_of_the_json(tool: Tool) -> None:
    text = JOB + "  trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: '0.5'}}}\n"
    _, out, _ = tool("validate -o json", text)
    (verdict,) = json.loads(out)
    assert (verdict["valid"], verdict["code"], verdict["warnings"]) == (False, 200, [])
    (finding,) = verdict["findings"]
    assert (finding["line"], finding["field"]) == (6, "spec.trainer.resourcesPerNode.limits.nvidia.com/gpu")
    assert finding["jobField"] == "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]"


def test_a_runtime_alone_has_its_findings(tool: Tool) -> None:
    bad = RUNTIME.replace("- name: exporter", "- image: e\n                      name: exporter").replace(
        "{name: node, image: i}", "{name: node, env: [{name: A=B, value: c}]}"
    )
    code, out, _ = tool("validate", bad)
    place = "document 1 (ClusterTrainingRuntime torch-distributed): "
    path = ".spec.template.spec.containers[0].env[0].name"
    assert code == 1
    finding, verdict = out.splitlines()
    head = f"in.yaml:16: {place}spec.template.spec.replicatedJobs[0].template{path}: "
    assert finding.startswith(
        f'{head}the API server will refuse the Jobs of node: {path[1:]}: Invalid value: "A=B"'
    )
    assert verdict == f"in.yaml:1: {place}admitted, but the Jobs of its TrainJobs will be refused"
    assert tool("validate", bad.replace("A=B", "A"))[0] == 0


def test_a_volume_that_a_claim_also_has_is_found_in_the_override(tool: Tool) -> None:
    claims = """volumeClaimPolicies:
        - templates:
            - metadata: {name: data}
              spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
      replicatedJobs:"""
    mounts = "{name: node, image: i, volumeMounts: [{name: data, mountPath: /data}]}"
    image = "- image: e\n                      name: exporter"
    runtime = (
        RUNTIME.replace("- name: exporter", image)
        .replace("replicatedJobs:", claims)
        .replace("{name: node, image: i}", mounts)
    )
    override = "  podTemplateOverrides: [{targetJobs: [{name: node}], spec: {volumes: [{name: data}]}}]\n"
    for text, line in ((runtime, ""), (runtime + JOB + override, "in.yaml:30: document 2")):
        code, out, _ = tool("validate", text)
        found = [each for each in out.splitlines() if "will refuse the JobSet" in each]
        assert (code, [each[: len(line)] for each in found]) == (int(bool(line)), [line] * bool(line))
    assert "spec.podTemplateOverrides[0].spec.volumes[0].name: " in found[0]
