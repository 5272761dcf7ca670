# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Check docs/parsers.md: the page must name every module that parses text, and only tests that exist.

A module parses text if it calls a known parser, makes a pattern at run time, or defines a function called ``parse``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = "docs/parsers.md"
PACKAGES: Final = ("pkg", "controller-runtime/controller_runtime", "trainerctl/trainerctl")
CALLS: Final = {
    "JSONDecoder", "json.Decoder", "json.decode", "json.load", "json.loads", "raw_decode",
    "from_json", "model_validate_json", "validate_json",
    "yaml.line_of", "yaml.load", "yaml.load_all", "yaml.load_map", "yaml.parse",
    "ast.parse", "literal_eval", "marshal.loads", "pickle.loads", "tomllib.load", "tomllib.loads", "csv.reader",
    "ConfigParser", "ElementTree.fromstring", "shlex.split", "cel.compile",
    "a85decode", "b32decode", "b64decode", "b85decode", "urlsafe_b64decode", "unhexlify",
    "EllipticCurvePublicNumbers", "RSAPublicNumbers",
    "fromisoformat", "parsedate_to_datetime", "strptime", "fromtimestamp",
    "parse_qs", "parse_qsl", "urlparse", "urlsplit", "ip_address", "ip_interface", "ip_network",
    "HttpRequestParser", "HttpResponseParser", "parse_url",
    "decompressobj", "zlib.decompress", "gzip.open", "tarfile.open", "ZipFile",
    "from_bytes", "struct.unpack", "unpack_from", "struct.iter_unpack",
}  # fmt: skip
"""The last parts of the names of functions that parse text or bytes."""
_LOADERS: Final = re.compile(r"load_(?:pem|der|ssh)_\w+")
_DEFINITIONS: Final = re.compile(r"_?parse(?:_\w+)?|atoi")
_PATTERNS: Final = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub"}


class _Row(NamedTuple):
    line: int
    cells: list[str]

    def names(self, cell: int) -> list[str]:
        return re.findall("`([^`]+)`", self.cells[cell])


def problems(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each problem of the page."""
    rows = []
    for row in _rows((root / PAGE).read_text()):
        if len(row.cells) == 5:
            rows.append(row)
        else:
            yield (
                row.line,
                "a row has five cells: the text, its writers, the modules, the bound, and the tests",
            )
    last = rows[-1].line if rows else 1
    modules = dict(_modules(root))
    parsing = {name for name, nodes in modules.items() if any(map(parses, nodes))}
    possible = parsing | {name for name, nodes in modules.items() if any(map(_uses_a_pattern, nodes))}
    named = [(row.line, name) for row in rows for each in row.names(2) for name in _expanded(each)]
    for module in sorted(parsing):
        if not any(_covers(name, module) for _, name in named):
            yield last, f"{module} parses text: add it to a row, with the bound of its text and its test"
    for line, name in named:
        if not any(_covers(name, module) for module in possible):
            yield line, f"{name} calls no parser that hack/parsers.py knows: remove it"
    for row in rows:
        tests = row.names(4)
        if not tests:
            yield row.line, f"no test checks the bound of: {row.cells[0]}"
        for test in tests:
            path, _, function = test.partition("::")
            file = root / path
            text = file.read_text() if file.is_file() else ""
            if not re.search(rf"^(?:async )?def {re.escape(function)}\(", text, re.MULTILINE):
                yield row.line, f"no test is called {test}"


def parses(node: ast.AST) -> bool:
    """Return True for a call that parses text, and for a function that is called ``parse``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _DEFINITIONS.fullmatch(node.name) is not None
    if not isinstance(node, ast.Call):
        return False
    parts = _dotted(node.func).split(".")
    if parts[0] == "re" and parts[-1] in _PATTERNS:
        return not _is_constant(node.args[0])
    return bool({parts[-1], ".".join(parts[-2:])} & CALLS) or _LOADERS.fullmatch(parts[-1]) is not None


def _rows(text: str) -> Iterator[_Row]:
    before, _, table = text.partition("\n## The texts")
    first = before.count("\n") + 1
    lines = [(first + n, line) for n, line in enumerate(table.splitlines()) if line.startswith("|")]
    for number, line in lines[2:]:
        yield _Row(number + 1, line.strip("| ").split(" | "))


def _modules(root: Path) -> Iterator[tuple[str, list[ast.AST]]]:
    """Yield the name and the nodes of each module."""
    for package in (root / each for each in PACKAGES):
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            yield name, list(ast.walk(ast.parse(path.read_text())))


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Attribute():
            return f"{_dotted(node.value)}.{node.attr}"
        case ast.Name():
            return node.id
    return ""


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    return isinstance(node, ast.Constant)


def _uses_a_pattern(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func).partition(".")[0] == "re"


def _expanded(name: str) -> list[str]:
    """Return the names of ``package.{one,another}``."""
    if (found := re.fullmatch(r"([\w.]+)\{([\w.,]+)\}", name)) is None:
        return [name]
    return [found[1] + each for each in found[2].split(",")]


def _covers(named: str, module: str) -> bool:
    return module == named or (named.endswith(".*") and module.startswith(named.removesuffix("*")))
