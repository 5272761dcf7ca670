# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Group, version, kind."""

import pytest

from controller_runtime.machinery import GVK, GroupKind, NamespacedName, Resource


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


def test_texts_are_go_s() -> None:
    assert str(GroupKind("g", "K")) == "K.g"
    assert str(GroupKind("", "Pod")) == "Pod"
    assert str(GVK("g", "v1", "K")) == "g/v1, Kind=K"
    assert Resource("", "v1", "pods", True).group_resource == "pods"
    assert str(NamespacedName("n", "a")) == "n/a"
    assert str(NamespacedName("", "a")) == "a"
