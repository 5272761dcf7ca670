# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which objects a request to the simulated server is about."""

import pytest

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import kinds
from controller_runtime.client.tables import Table
from controller_runtime.rest import Request
from controller_runtime.simtest import paths

PODS = {("", "v1", "pods"): Table(kinds.facts_for(Pod))}


@pytest.mark.parametrize(
    ("selector", "picked"),
    [
        ("status.phase=Running", ["b"]),
        ("status.phase==Running", ["b"]),
        ("status.phase!=Running", ["a", "c"]),
        ("status.phase!=Failed,status.phase!=Succeeded", ["b", "c"]),
    ],
)
def test_a_field_selector_requires_or_excludes_values(selector: str, picked: list[str]) -> None:
    phases = {"a": "Failed", "b": "Running", "c": "Pending"}
    place = paths.parse(Request("GET", "/api/v1/pods", query=(("fieldSelector", selector),)), PODS)
    pods = [{"metadata": {"name": name}, "status": {"phase": phase}} for name, phase in phases.items()]
    assert [pod["metadata"]["name"] for pod in pods if place.picks(pod)] == picked
