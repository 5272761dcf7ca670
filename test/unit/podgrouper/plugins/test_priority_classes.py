# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("api_version", "kind", "priority_class"),
    [
        ("apps/v1", "Deployment", "inference"),
        ("egx.nvidia.io/v1", "SPOTRequest", "inference"),
        ("kubeflow.org/v1beta1", "Notebook", "build"),
        ("apps/v1", "StatefulSet", "train"),
    ],
)
async def test_priority_class_of_the_kind_unless_one_is_named(
    api_version: str, kind: str, priority_class: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    owner = make_object(api_version, kind, "o")
    named = make_object(api_version, kind, "n", labels={"priorityClassName": "gold"})
    gold = make_object("scheduling.k8s.io/v1", "PriorityClass", "gold", namespace="")

    assert (await group(make_pod("p", owner), owner, gold)).priority_class_name == priority_class
    assert (await group(make_pod("p", named), named, gold)).priority_class_name == "gold"
