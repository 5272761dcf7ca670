# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Odd values of the fields about the end, the restarts and the size of TrainJobs: one clear message for each."""

from collections.abc import Callable

import pytest

Tool = Callable[..., tuple[int, str, str]]
_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: a}}
spec:
  runtimeRef: {{name: torch-distributed}}
  {}
"""
_RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: a}}
spec:
  {}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
            spec: {{template: {{spec: {{containers: [{{name: node, image: a}}]}}}}}}
"""
_TTL, _POLICY, _NODES = "spec.ttlSecondsAfterFinished", "spec.runPolicy", "spec.trainer.numNodes"
_ELASTIC = "spec.mlPolicy.torch.elasticPolicy"


@pytest.mark.parametrize(
    ("template", "text", "version", "message"),
    [
        *(
            (_JOB, f"ttlSecondsAfterFinished: {value}", "", f"{_TTL}: Invalid value: {problem}")
            for value, problem in (
                ("-1", f"-1: {_TTL} in body should be greater than or equal to 0"),
                ("2147483648", f"2147483648: {_TTL} in body should be less than or equal to 2147483647"),
                ("1.5", f'"number": {_TTL} in body must be of type integer: "number"'),
                ('"60"', f'"string": {_TTL} in body must be of type integer: "string"'),
                ("true", f'"boolean": {_TTL} in body must be of type integer: "boolean"'),
                ("[]", f'"array": {_TTL} in body must be of type integer: "array"'),
                ("{}", f'"object": {_TTL} in body must be of type integer: "object"'),
            )
        ),
        (_JOB, "ttlSecondsAfterFinished: .inf", "", f"{_TTL}: inf is not a number in JSON"),
        (_JOB, "ttlSecondAfterFinished: 1", "", "unknown field; did you mean ttlSecondsAfterFinished?"),
        (
            _JOB,
            "ttlSecondsAfterFinished: 0",
            "",
            f"Warning: {_TTL}: has no effect: the manager's feature gate",
        ),
        *(
            (_RUNTIME, f"runPolicy: {value}", "", message)
            for value, message in (
                ("{ttlSecondsAfterFinished: -1}", f"{_POLICY}.ttlSecondsAfterFinished: Invalid value: -1:"),
                (
                    "{ttlSeconds: 5}",
                    f"{_POLICY}.ttlSeconds: unknown field; did you mean ttlSecondsAfterFinished?",
                ),
                (
                    "{ttlSecondsAfterFinished: 5}",
                    f"Warning: {_POLICY}.ttlSecondsAfterFinished: has no effect:",
                ),
                ("[]", f'{_POLICY} in body must be of type object: "array"'),
            )
        ),
        *(
            (_JOB, f"suspend: true\n  trainer: {{numNodes: {value}}}", flags, f"{_NODES}: {problem}")
            for value, flags, problem in (
                ("0", "", "0 must be at least 1: no pod trains"),
                ("-1", "", "-1 must be at least 1: a Job cannot have a negative number of pods"),
                ("-1", "2.4", f"Invalid value: -1: {_NODES} in body should be greater than or equal to 0"),
            )
        ),
        *(
            (_RUNTIME, f"mlPolicy: {{{value}}}", "", message)
            for value, message in (
                (
                    "torch: {elasticPolicy: {minNodes: 1}}",
                    f"Warning: {_ELASTIC}: has no effect: a TrainJob has a fixed number",
                ),
                (
                    "numNodes: 2, torch: {elasticPolicy: {minNodes: 1}}",
                    "spec.mlPolicy: Invalid value: numNodes should not be set if torch.elasticPolicy is configured",
                ),
            )
        ),
    ],
)
def test_an_odd_value_has_one_clear_message(
    template: str, text: str, version: str, message: str, tool: Tool
) -> None:
    code, out, err = tool(f"validate --compatibility-version {version or '2.1'}", template.format(text))

    found = [line for line in (out + err).splitlines() if message in line]
    assert len(found) == 1, out + err
    assert (code == 0) is ("Warning" in message)
