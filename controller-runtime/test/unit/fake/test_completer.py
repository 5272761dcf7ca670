# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How the in-memory server completes custom resources by their schema, and which objects a request addresses."""

from typing import Any

import pytest

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import completer, kinds
from controller_runtime.fake.requests import discovery, parse_request
from controller_runtime.fake.tables import Table
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request

NUMBER = {"type": "integer", "default": 1}


@pytest.mark.parametrize(
    ("schema", "given", "stored"),
    [
        pytest.param({"a": {"type": "string"}}, {"a": "x", "b": 1}, {"a": "x"}, id="unknown fields are dropped"),
        pytest.param({"n": NUMBER}, {}, {"n": 1}, id="a default is set"),
        pytest.param({"n": NUMBER}, {"n": None}, {"n": 1}, id="null gets the default"),
        pytest.param({"n": NUMBER | {"nullable": True}}, {"n": None}, {"n": None}, id="null stays where it is allowed"),
        pytest.param(
            {"o": {"type": "object", "properties": {"n": NUMBER}}}, {}, {}, id="no default of an absent object's field"
        ),
        pytest.param(
            {"o": {"type": "object", "default": {}, "properties": {"n": NUMBER}}},
            {},
            {"o": {"n": 1}},
            id="defaults within a default",
        ),
        pytest.param(
            {"l": {"type": "array", "items": {"type": "object", "properties": {"n": NUMBER}}}},
            {"l": [{}, {"n": 2, "x": 3}]},
            {"l": [{"n": 1}, {"n": 2}]},
            id="items of lists",
        ),
        pytest.param(
            {"m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": NUMBER}}}},
            {"m": {"any": {"x": 1}}},
            {"m": {"any": {"n": 1}}},
            id="values of maps",
        ),
        pytest.param(
            {"m": {"type": "object", "additionalProperties": {"type": "string"}}},
            {"m": {"a": None, "b": "x"}},
            {"m": {"b": "x"}},
            id="nulls in maps",
        ),
        pytest.param(
            {"p": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"n": NUMBER}}},
            {"p": {"x": {"y": 1}}},
            {"p": {"x": {"y": 1}, "n": 1}},
            id="preserved fields",
        ),
        pytest.param(
            {"p": {"x-kubernetes-preserve-unknown-fields": True}},
            {"p": [{"a": 1}, [{"b": {"c": 2}}]]},
            {"p": [{"a": 1}, [{"b": {"c": 2}}]]},
            id="preserved lists",
        ),
        pytest.param(
            {"e": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}},
            {"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "x": 1}},
            {"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}},
            id="embedded objects keep their metadata",
        ),
    ],
)  # fmt: skip
def test_a_custom_resource_is_stored_as_its_schema_says(schema: Any, given: Any, stored: Any) -> None:
    complete = completer({"type": "object", "properties": schema})
    whole = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "k", "labels": {"a": "b"}}}
    once = complete(whole | given)
    assert once == whole | stored
    assert complete(once) == once


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
    for path in ("/apis/apps", "/apis/batch/v2", "/api/v1"):
        assert discovery(path, tables) is None
    pods = discovery("/api/v1", PODS)
    assert pods is not None
    assert [each["name"] for each in pods["resources"]] == ["pods"]


@pytest.mark.parametrize(
    "path", ["/apis/apps", "/apis/apps/v1", "/apis/apps/v1/deployments", "/api/v1/nodes", "/api"]
)
def test_a_path_that_is_not_served_is_not_found(path: str) -> None:
    with pytest.raises(NotFoundError):
        parse_request(Request("GET", path), PODS)
