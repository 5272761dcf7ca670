# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects as an API server stores them: without unknown fields, and with a namespace and a name."""

from typing import Any

import pytest
from controller_runtime.machinery import JSON

from trainerctl.offline import objectmeta
from trainerctl.offline.stored import Schemas, schemas

CHECKS = Schemas(schemas(), "team-a")


def train_job(**metadata: Any) -> dict[str, JSON]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "nonsense": 1},
    }


def test_unknown_fields_are_not_stored_and_the_namespace_and_defaults_are() -> None:
    given = train_job(name="a", label={"x": "y"}, labels={"x": "y"})

    found = CHECKS.stored(given)

    assert found["metadata"] == {"name": "a", "namespace": "team-a", "labels": {"x": "y"}}
    assert found["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    assert "nonsense" not in found["spec"]
    assert given["metadata"]["label"] == {"x": "y"}  # a copy was changed


def test_a_generated_name_is_completed_and_a_given_namespace_kept() -> None:
    found = CHECKS.stored(train_job(generateName="a-", namespace="team-b"))["metadata"]

    assert (found["name"], found["namespace"]) == ("a-xxxxx", "team-b")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"labels": {"x": 1}}, "cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
        ({"labels": "x"}, "cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string"),
        ({"finalizers": {"x": "y"}}, "cannot unmarshal object into Go struct field ObjectMeta.finalizers of type []string"),
        ({"labels": {"x": None}, "finalizers": ["a"], "name": "a"}, None),
    ],
)  # fmt: skip
def test_metadata_of_a_wrong_type_is_refused_in_the_words_of_the_server(
    metadata: Any, words: str | None
) -> None:
    problem = objectmeta.undecodable(train_job(**metadata))

    assert problem == (None if words is None else f"json: {words}")
