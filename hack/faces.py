# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Count the imports of inner modules by tests of other packages.

A face is a package, a module directly below ``controller_runtime``, the module of an API version (``v1``), or a module
that its package exports. Every other module is an inner one and may move. Tests may import
the inner modules of the package that their folder mirrors.

``python -m hack.faces`` fails if the count is above ``inner-imports`` in pyproject.toml; ``--list`` prints the imports.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = {
    "test": "pkg",
    "testkit": "pkg",
    "controller-runtime/test": "controller_runtime",
    "controller-runtime/ctrl_testkit": "controller_runtime",
    "trainerctl/test": "trainerctl",
}
"""The root folders of tests, and the package whose folders are mirrored in each. A folder for the kind of test may lie
between.
"""
_PACKAGES: Final = {"pkg": ".", "controller_runtime": "controller-runtime", "trainerctl": "trainerctl"}
_API_VERSION: Final = re.compile(r"v\d+((alpha|beta)\d+)?")


class Import(NamedTuple):
    """An import of an inner module."""

    path: Path
    line: int
    module: str


def inner_imports(root: Path) -> list[Import]:
    """Return the imports of inner modules, at most one of each inner module in each test module.

    Imports of inner modules of the package under test are left out.
    """
    found: dict[tuple[Path, str], Import] = {}
    for folder, package in TESTS.items():
        for path in sorted((root / folder).rglob("*.py")):
            own = _under_test(root, path.relative_to(root / folder), package)
            for line, module in _imported(root, ast.parse(path.read_text())):
                if _is_inner(root, module) and not (own and f"{module}.".startswith(f"{own}.")):
                    found.setdefault((path, module), Import(path.relative_to(root), line, module))
    return list(found.values())


def _under_test(root: Path, path: Path, package: str) -> str:
    """Return the package that a test's folder mirrors.

    If that package does not exist, return its closest parent below the root package, or ``""`` if none exists.
    """
    parts = path.parts[1:-1]  # without the folder of the kind of test, such as unit
    while parts:
        if root.joinpath(_PACKAGES[package], package, *parts).is_dir():
            return ".".join((package, *parts))
        parts = parts[:-1]
    return ""


def _imported(root: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each module of ours that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                below = f"{node.module}.{each.name}"
                is_exported = each.name in _exported(_file(root, node.module))
                yield node.lineno, below if _is_module(root, below) and not is_exported else node.module


def _file(root: Path, module: str) -> Path | None:
    top, *rest = module.split(".")
    return root.joinpath(_PACKAGES[top], top, *rest) if top in _PACKAGES else None


@functools.cache
def _exported(package: Path | None, *, modules_only: bool = False) -> frozenset[str]:
    """Return the names that a package exports; with ``modules_only``, only the modules that it exports."""
    if package is None or not (package / "__init__.py").is_file():
        return frozenset()
    nodes = ast.walk(ast.parse((package / "__init__.py").read_text()))
    return frozenset(
        each.asname
        for node in nodes
        if isinstance(node, ast.ImportFrom) and not (modules_only and node.module)
        for each in node.names
        if each.asname
    )


def _is_module(root: Path, name: str) -> bool:
    file = _file(root, name)
    return file is not None and (file.is_dir() or file.with_suffix(".py").is_file())


def _is_inner(root: Path, module: str) -> bool:
    file = _file(root, module)
    if file is None or file.is_dir() or re.fullmatch(r"controller_runtime\.\w+", module):
        return False
    return not _API_VERSION.fullmatch(file.name) and file.name not in _exported(
        file.parent, modules_only=True
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the count with the recorded count; return 1 if there are more imports now."""
    parser = argparse.ArgumentParser(description="Count the tests' imports of inner modules.")
    parser.add_argument("--list", action="store_true", help="print each import")
    given = parser.parse_args(arguments)
    found = inner_imports(ROOT)
    if given.list:
        for path, line, module in found:
            sys.stdout.write(f"{path}:{line}: {module}\n")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    recorded: int = settings["tool"]["faces"]["inner-imports"]
    if len(found) > recorded:
        sys.stderr.write(
            f"tests import inner modules {len(found)} times, more than the {recorded} in pyproject.toml: "
            "import what the packages export (python -m hack.faces --list shows the imports)\n"
        )
        return 1
    if len(found) < recorded:
        sys.stdout.write(
            f"Tests import inner modules {len(found)} times: lower inner-imports in pyproject.toml\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
