# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Packages import on first use the names that they declare to type checkers."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import controller_runtime

ROOT = Path(controller_runtime.__file__).parent
PACKAGES = [
    path
    for path in sorted(ROOT.rglob("__init__.py"))
    if "ondemand.names(" in path.read_text(encoding="utf-8")
]


def declared(path: Path) -> Iterator[str]:
    """Yield the names that a package imports for type checkers only."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                yield from (alias.asname or alias.name for alias in each.names)


def offered(path: Path) -> Iterator[str]:
    """Yield the names that a package passes to ``ondemand.names``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ondemand.names"):
            exports = node.args[1]
            assert isinstance(exports, ast.Dict)
            yield from (name for each in exports.values for name in ast.literal_eval(each))


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_the_names_on_demand_are_the_declared_ones(path: Path) -> None:
    name = ".".join(("controller_runtime", *path.parent.relative_to(ROOT).parts))
    package = importlib.import_module(name)
    names = set(declared(path))
    assert set(offered(path)) <= names <= set(dir(package))
    assert all(package.__getattr__(each) is getattr(package, each) for each in names)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018 -- that is the test
