# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client learns the same structure of lists and maps from our models as from the CRDs made from them."""

from typing import Any

import pytest
from controller_runtime.fake import kinds, ownership
from controller_runtime.machinery import Object, crd

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheme import default_scheme
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob


def test_every_model_has_facts() -> None:
    models = [each for each in default_scheme() if each.resource]
    assert [each.gvk for each in models if kinds.properties_of(each).resource != each.resource] == []
    assert [each.gvk for each in models if not kinds.properties_of(each).scope_is_known] == []


@pytest.mark.parametrize("kind", [TrainJob, TrainingRuntime, JobSet])
def test_a_model_gives_the_same_shape_as_the_definition_made_from_it(kind: type[Object]) -> None:
    (of_crd,) = kinds.properties_of_crd(crd.custom_resource_definition(kind))
    template = {"spec": {"containers": [{"name": "c", "env": [{"name": "E", "value": "1"}], "args": ["x"]}]}}
    obj: dict[str, Any] = {
        "metadata": {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "name": "o"}]},
        "spec": {
            "trainer": {"env": [{"name": "E", "value": "1"}], "command": ["a"]},
            "podTemplateOverrides": [{"targetJobs": [{"name": "node"}]}],
            "replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}],
            "template": {
                "spec": {"replicatedJobs": [{"name": "n", "template": {"spec": {"template": template}}}]}
            },
        },
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    known = kinds.properties_of(kind)
    assert ownership.fields_of(obj, known.schema) == ownership.fields_of(obj, of_crd.schema)
    assert len(ownership.fields_of(obj, known.schema)) > 10
    assert known.resource == of_crd.resource
