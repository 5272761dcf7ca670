# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The structs of all API groups."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

from controller_runtime import apis
from controller_runtime.machinery import Struct


def structs() -> Iterator[type[Struct]]:
    for module in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        if ".machinery" not in module.name:
            found = importlib.import_module(module.name)
            for _, each in inspect.getmembers(found, inspect.isclass):
                if issubclass(each, Struct) and each.__module__ == module.name:
                    yield each


@pytest.mark.parametrize("kind", list(structs()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_new_object_has_the_zero_values_of_go(kind: type[Struct]) -> None:
    given = {name: info.default for name, info in kind.model_fields.items() if info.default_factory is None}
    # Each object knows its kind.
    given = {name: value for name, value in given.items() if name not in ("api_version", "kind")}
    assert {name: value for name, value in given.items() if value not in (None, "", 0, False)} == {}
    assert (kind.go_always | kind.go_pointers) <= kind.model_fields.keys()
