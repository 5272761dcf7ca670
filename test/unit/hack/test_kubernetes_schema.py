# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The record of Kubernetes' own kinds, from the schemas that a server publishes, and the kinds that are generated from it."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from hack import kubernetes_schema


def reference(name: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}


PUBLISHED = {
    "io.k8s.api.apps.v1.A": {
        "description": "text",
        "type": "object",
        "required": ["z", "b"],
        "properties": {
            "z": {"type": "string", "default": "", "enum": ["x"]},
            "b": {**reference("io.k8s.api.apps.v1.B"), "x-kubernetes-patch-strategy": "replace"},
            "name": {"type": "string", "default": ""},
            "$ref": {"type": "string"},
            "list": {
                "type": "array",
                "items": reference("io.k8s.api.apps.v1.B"),
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge",
            },
            "q": reference("io.k8s.apimachinery.pkg.api.resource.Quantity"),
        },
        "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "A"}],
    },
    "io.k8s.api.apps.v1.B": {"type": "object", "description": "text"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    "io.k8s.api.apps.v1.Unused": {"type": "object"},
}
SERVED = {
    "groupVersion": "apps/v1",
    "resources": [
        {"name": "as", "kind": "A", "namespaced": True},
        {"name": "as/status", "kind": "A", "namespaced": True},
        {"name": "as/scale", "kind": "Scale", "namespaced": True},
    ],
}


def test_a_record_has_each_kind_and_the_schemas_that_it_needs() -> None:
    recorded = json.loads(
        kubernetes_schema.record([{"components": {"schemas": PUBLISHED}}], [SERVED], "1.2.3")
    )
    assert recorded["kubernetesVersion"] == "1.2.3"
    assert recorded["kinds"] == {
        "apps/v1": {"A": {"definition": "apps.v1.A", "plural": "as", "namespaced": True, "status": True}}
    }
    assert recorded["definitions"] == {
        "apps.v1.A": {
            "type": "object",
            "required": ["b", "z"],
            "properties": {
                "z": {"type": "string"},
                "b": {"$ref": "apps.v1.B", "x-kubernetes-patch-strategy": "replace"},
                "name": {"type": "string", "default": ""},
                "$ref": {"type": "string"},
                "list": {
                    "type": "array",
                    "items": {"$ref": "apps.v1.B"},
                    "x-kubernetes-patch-merge-key": "name",
                    "x-kubernetes-patch-strategy": "merge",
                },
                "q": {"$ref": "api.resource.Quantity"},
            },
        },
        "apps.v1.B": {"type": "object"},
        "api.resource.Quantity": {"type": "string"},
    }


APIS = Path(__file__).parents[3] / "controller-runtime/controller_runtime/apis"


def statements(text: str) -> list[str]:
    """Return the statements without imports, which a formatter sorts."""
    return [
        ast.dump(each) for each in ast.parse(text).body if not isinstance(each, ast.Import | ast.ImportFrom)
    ]


@pytest.mark.parametrize("name", kubernetes_schema.MODULES)
def test_a_module_is_up_to_date(name: str) -> None:
    path = APIS / f"{name.replace('.', '/')}.py"
    assert statements(path.read_text()) == statements(kubernetes_schema.text_of(name)), (
        "run hack.kubernetes_schema"
    )
