# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which kind and objects a request to the in-memory server addresses."""

import pytest

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import kinds
from controller_runtime.fake.requests import discovery, parse_request
from controller_runtime.fake.tables import Table
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request

PODS = {("", "v1", "pods"): Table(kinds.properties_of(Pod))}


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
    parsed = parse_request(Request("GET", "/api/v1/pods", query=(("fieldSelector", selector),)), PODS)
    pods = [{"metadata": {"name": name}, "status": {"phase": phase}} for name, phase in phases.items()]
    assert [pod["metadata"]["name"] for pod in pods if parsed.picks(pod)] == picked


def test_discovery_names_groups_with_their_versions_and_the_kinds_of_a_version() -> None:
    tables = {("batch", "v1", "jobs"): Table(kinds.properties_of(Job))}
    version = {"groupVersion": "batch/v1", "version": "v1"}
    group = {"name": "batch", "versions": [version], "preferredVersion": version}
    assert discovery("/apis", tables) == {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
    assert discovery("/apis/batch", tables) == {"kind": "APIGroup", "apiVersion": "v1", **group}
    resources = [{"name": "jobs", "kind": "Job", "namespaced": True}]
    listed = {"kind": "APIResourceList", "apiVersion": "v1", "resources": resources}
    assert discovery("/apis/batch/v1", tables) == listed
    assert discovery("/apis/apps", tables) is None


@pytest.mark.parametrize(
    "path", ["/apis/apps", "/apis/apps/v1", "/apis/apps/v1/deployments", "/api/v1/nodes", "/api"]
)
def test_a_path_that_is_not_served_is_not_found(path: str) -> None:
    with pytest.raises(NotFoundError):
        parse_request(Request("GET", path), PODS)
