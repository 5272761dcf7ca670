# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The page on the architecture: each file and each call of its tables exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/dev/architecture.md"
NAME = re.compile(r"`([\w.]+)`")


def defined(file: str) -> set[str]:
    """Return the functions, classes and methods of a module."""
    tree = ast.parse((ROOT / "controller_runtime" / file).read_text())
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_each_call_of_the_tables_is_in_its_file() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    missing = [
        f"{file}: {call}"
        for _, files, calls, *_ in rows
        for file in re.findall(r"`([\w/]+\.py)`", files)
        for call in NAME.findall(calls)
        if not set(call.split(".")) <= defined(file)
    ]
    assert len(rows) > 20
    assert missing == []
