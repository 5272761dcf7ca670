# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Names of kinds and objects, and the checks of names, labels and ports."""

from typing import Any

import pytest

from controller_runtime.machinery import GVK, GroupKind, NamespacedName, Resource, names

CHECKS = (
    names.is_dns1123_label,
    names.is_dns1123_subdomain,
    names.is_dns1035_label,
    names.is_qualified_name,
    names.is_label_value,
)


def test_texts_are_those_of_go(go: dict[str, list[list[Any]]]) -> None:
    for value, want in go["names"]:
        assert [check(value) or None for check in CHECKS] == want, value


@pytest.mark.parametrize(
    ("check", "limit"), [(names.is_dns1123_label, 63), (names.is_dns1123_subdomain, 253)]
)
def test_length_is_limited(check: Any, limit: int) -> None:
    assert check("a" * limit) == []
    assert check("a" * (limit + 1)) == [f"must be no more than {limit} characters"]


def test_texts_of_names_are_those_of_go() -> None:
    assert str(GroupKind("g", "K")) == "K.g"
    assert str(GroupKind("", "Pod")) == "Pod"
    assert str(GVK("g", "v1", "K")) == "g/v1, Kind=K"
    assert Resource("", "v1", "pods", True).group_resource == "pods"
    assert Resource("apps", "v1", "deployments", True).group_resource == "deployments.apps"
    assert str(NamespacedName("n", "a")) == "n/a"
    assert str(NamespacedName("", "a")) == "a"


def test_a_trailing_newline_is_no_part_of_a_name() -> None:
    assert names.is_dns1123_label("a\n") != []


def test_ports_are_between_1_and_65535() -> None:
    assert names.is_port_number(65535) == []
    assert names.is_port_number(0) == ["must be between 1 and 65535, inclusive"]


@pytest.mark.parametrize(
    ("api_version", "gvk"), [("v1", GVK("", "v1", "Pod")), ("batch/v1", GVK("batch", "v1", "Pod"))]
)
def test_reading_and_writing_an_api_version(api_version: str, gvk: GVK) -> None:
    assert GVK.parse(api_version, "Pod") == gvk
    assert gvk.api_version == api_version


@pytest.mark.parametrize("api_version", ["a/b/c", "a/"])
def test_malformed_api_versions_are_refused(api_version: str) -> None:
    with pytest.raises(ValueError, match="unexpected apiVersion"):
        GVK.parse(api_version, "Pod")
