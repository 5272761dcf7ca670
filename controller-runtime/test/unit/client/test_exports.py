# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The room's public names."""

from types import ModuleType

import pytest

from controller_runtime import client


def test_the_exported_names_are_these() -> None:
    names = {name for name, value in vars(client).items() if not isinstance(value, ModuleType)}
    assert {name for name in names if not name.startswith("_")} == {
        "APPLY",
        "JSON",
        "MERGE",
        "STRATEGIC",
        "CacheReader",
        "CachedClient",
        "Client",
        "FieldIndexer",
        "FieldValidation",
        "IndexerFunc",
        "LabelSelectorLike",
        "LazyReader",
        "LiveClient",
        "ObjectList",
        "Patch",
        "Propagation",
        "ReadThrough",
        "apply_lazily",
        "get_lazily",
        "patch_lazily",
        "Reader",
        "StatusClient",
        "SubResourceClient",
        "Writer",
        "ignore_not_found",
        "merge_from",
        "namespaced",
        "peek",
        "raw_patch",
        "read_only",
    }


def test_what_tests_use_is_imported_when_asked_for() -> None:
    assert client.FakeClient.__module__ == "controller_runtime.client.fake"
    assert client.interceptor.__name__ == "controller_runtime.client.interceptor"
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        client.Nonsense  # noqa: B018  # type: ignore[attr-defined]  # that is the test
