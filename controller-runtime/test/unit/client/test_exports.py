# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The package's public names."""

from types import ModuleType

import pytest

from controller_runtime import client


def test_the_exported_names_are_these() -> None:
    names = {name for name in dir(client) if not isinstance(getattr(client, name), ModuleType)}
    assert {name for name in names if not name.startswith("_")} == {
        "APPLY",
        "JSON",
        "MERGE",
        "STRATEGIC",
        "ApplyOptions",
        "CacheReader",
        "CachedClient",
        "Client",
        "CreateOptions",
        "DeleteAllOfOptions",
        "DeleteOptions",
        "FieldIndexer",
        "FieldValidation",
        "IndexerFunc",
        "LabelSelectorLike",
        "ListOptions",
        "LiveClient",
        "ObjectList",
        "Patch",
        "PatchOptions",
        "Propagation",
        "ReadThrough",
        "UpdateOptions",
        "apply_lazily",
        "check_options",
        "patch_lazily",
        "Reader",
        "ReaderWriter",
        "StatusClient",
        "SubResourceClient",
        "Watch",
        "Watcher",
        "WatchEvent",
        "WatchOptions",
        "Writer",
        "dry_run",
        "ignore_not_found",
        "merge_from",
        "namespaced",
        "peek",
        "raw_patch",
        "read_only",
        "strategic_merge_from",
        "with_field_owner",
        "with_field_validation",
    }


def test_what_tests_use_is_imported_when_asked_for() -> None:
    assert client.interceptor.__name__ == "controller_runtime.client.interceptor"
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        client.Nonsense  # type: ignore[attr-defined]  # noqa: B018 -- the access must fail
