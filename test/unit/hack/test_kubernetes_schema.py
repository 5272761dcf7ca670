# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The record of Kubernetes' own kinds, from the schemas that a server publishes, and the kinds that are generated from it."""

import ast
from pathlib import Path

import pytest

from hack import kubernetes_schema

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
