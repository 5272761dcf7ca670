# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""docs/parsers.md names every module that parses text, and the tests of its bounds exist.

Found are calls of parsers by their name, patterns that are made at run time, and functions that are called ``parse``.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "parsers.md"
PACKAGES = (ROOT / "pkg", ROOT / "controller-runtime" / "controller_runtime")
CALLS = {
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
"""The last names of calls that parse text or bytes."""
LOADERS = re.compile(r"load_(?:pem|der|ssh)_\w+")
DEFINITIONS = re.compile(r"_?parse(?:_\w+)?|atoi")
PATTERNS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub"}


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case ast.Name():
            return node.id
    return ""


def is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return is_constant(node.left) and is_constant(node.right)
    return isinstance(node, ast.Constant)


def parses(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return DEFINITIONS.fullmatch(node.name) is not None
    if not isinstance(node, ast.Call):
        return False
    parts = dotted(node.func).split(".")
    if parts[0] == "re" and parts[-1] in PATTERNS:
        return not is_constant(node.args[0])
    return bool({parts[-1], ".".join(parts[-2:])} & CALLS) or LOADERS.fullmatch(parts[-1]) is not None


def uses_a_pattern(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).partition(".")[0] == "re"


def name_of(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, list[ast.AST]]:
    """Return the nodes of each module."""
    paths = [(path, package) for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    return {name_of(*each): list(ast.walk(ast.parse(each[0].read_text()))) for each in paths}


def parsing_modules() -> list[str]:
    return [name for name, nodes in modules().items() if any(map(parses, nodes))]


@cache
def rows() -> list[list[str]]:
    """Return the cells of each row: the text, its writers, the modules, the bound, and the tests."""
    _, _, table = PAGE.read_text().partition("\n## The texts")
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def expanded(name: str) -> list[str]:
    """Return the names of ``package.{one,another}``."""
    if (found := re.fullmatch(r"([\w.]+)\{([\w.,]+)\}", name)) is None:
        return [name]
    return [found[1] + each for each in found[2].split(",")]


@cache
def named_modules() -> list[str]:
    return list(
        chain.from_iterable(expanded(each) for row in rows() for each in re.findall("`([^`]+)`", row[2]))
    )


def covers(named: str, module: str) -> bool:
    return module == named or (named.endswith(".*") and module.startswith(named.removesuffix("*")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("json.loads(text)", True),
        ("msgspec.json.Decoder(kind).decode", True),
        ("x509.load_pem_x509_certificate(pem)", True),
        ("re.compile(rf'a{b}')", True),
        ("re.compile(r'a' r'b')", False),
        ("def parse(text): ...", True),
        ("yaml.dump(value)", False),
    ],
)
def test_calls_are_found(text: str, expected: bool) -> None:
    assert any(map(parses, ast.walk(ast.parse(text)))) is expected


def test_every_row_has_five_cells() -> None:
    assert [row for row in rows() if len(row) != 5] == []
    assert len(rows()) > 20


def test_the_page_names_every_module_that_parses_text() -> None:
    missing = [
        each for each in parsing_modules() if not any(covers(named, each) for named in named_modules())
    ]
    assert missing == [], "add them to a row of docs/parsers.md, with the bound of their text and its test"


def test_the_page_names_only_modules_that_parse_text() -> None:
    """A module whose patterns are all constants may be named, and need not be."""
    possible = [
        name for name, nodes in modules().items() if any(parses(n) or uses_a_pattern(n) for n in nodes)
    ]
    idle = [each for each in named_modules() if not any(covers(each, module) for module in possible)]
    assert idle == [], "remove them from docs/parsers.md: they call none of the parsers that this test knows"


def test_every_bound_has_a_test_that_exists() -> None:
    for row in rows():
        named = re.findall(r"`([^`]+)`", row[4])
        assert named, f"no test holds the bound of: {row[0]}"
        for each in named:
            path, _, function = each.partition("::")
            assert re.search(rf"^(?:async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE), each
