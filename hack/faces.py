# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Count the imports of inner modules by tests of other packages: ``python -m hack.faces``.

import-linter checks the packages; it cannot read the folders of tests, which are no packages. A face is a package, a
module directly below ``controller_runtime``, the module of an API version (``v1``), or a module that its package
exports, or that connects with another package (``interop``). Every other module is an inner one and may move; only
the tests in the folder that mirrors its package may import it. The command fails if the count is above ``inner-
imports`` in pyproject.toml.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = {
    "test": "pkg",
    "testkit": "pkg",
    "controller-runtime/test": "controller_runtime",
    "controller-runtime/ctrl_testkit": "controller_runtime",
    "trainerctl/test": "trainerctl",
}
"""The root folders of tests, and the package whose folders are mirrored in each."""
_PACKAGES: Final = {"pkg": ".", "controller_runtime": "controller-runtime", "trainerctl": "trainerctl"}


def inner_imports(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the test modules with the inner modules of other packages that they import."""
    for folder, package in TESTS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = list(
                path.relative_to(root / folder).parts[1:-1]
            )  # without the kind of test, such as unit
            while parts and not root.joinpath(_PACKAGES[package], package, *parts).is_dir():
                parts.pop()
            own = ".".join((package, *parts, "")) if parts else "none"
            for module in sorted(set(_imported(root, ast.parse(path.read_text())))):
                if _is_inner(root, module) and not f"{module}.".startswith(own):
                    yield path.relative_to(root), module


def _imported(root: Path, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                is_exported = each.name in _exported(_file(root, node.module))
                below = _file(root, f"{node.module}.{each.name}")
                is_module = below is not None and (below.is_dir() or below.with_suffix(".py").is_file())
                yield f"{node.module}.{each.name}" if is_module and not is_exported else node.module


def _file(root: Path, module: str) -> Path | None:
    top, *rest = module.split(".")
    return root.joinpath(_PACKAGES[top], top, *rest) if top in _PACKAGES else None


@functools.cache
def _exported(package: Path | None, *, modules_only: bool = False) -> frozenset[str]:
    """Return the names that a package exports; with ``modules_only``, only the modules that it exports."""
    if package is None or not (package / "__init__.py").is_file():
        return frozenset()
    nodes = ast.walk(ast.parse((package / "__init__.py").read_text()))
    imports = [
        each for each in nodes if isinstance(each, ast.ImportFrom) and not (modules_only and each.module)
    ]
    return frozenset(each.asname for node in imports for each in node.names if each.asname)


def _is_inner(root: Path, module: str) -> bool:
    file = _file(root, module)
    if file is None or file.is_dir() or re.fullmatch(r"controller_runtime\.(interop\.)?\w+", module):
        return False
    is_version = re.fullmatch(r"v\d+((alpha|beta)\d+)?", file.name)
    return not is_version and file.name not in _exported(file.parent, modules_only=True)


def main() -> int:
    """Compare the count with the recorded count; list the imports and return 1 if there are more now."""
    found = list(inner_imports(ROOT))
    recorded: int = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["faces"]["inner-imports"]
    if len(found) > recorded:
        sys.stdout.writelines(f"{path}: {module}\n" for path, module in found)
        more = f"tests import inner modules {len(found)} times, more than the {recorded} in pyproject.toml"
        sys.stderr.write(f"{more}: import what the packages export\n")
    elif len(found) < recorded:
        sys.stdout.write(
            f"Tests import inner modules {len(found)} times: lower inner-imports in pyproject.toml\n"
        )
    return int(len(found) > recorded)


if __name__ == "__main__":
    sys.exit(main())
