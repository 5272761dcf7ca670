# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Advise on the page of parsers: which modules that parse text it lacks, and which tests it names that do not exist.

No other tool knows which calls parse text that other parties write. A module parses text if it calls a known parser,
makes a pattern at run time, or defines a function called ``parse``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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


def problems(root: Path, page: str) -> Iterator[str]:
    """Yield the modules that parse text and are not in the table of the page, and the tests that do not exist."""
    named = set(re.findall(r"`([\w./:]+)(?:\{[\w.,]+\})?`", page))
    for package, names in re.findall(r"`([\w.]+)\{([\w.,]+)\}`", page):
        named |= {f"{package}{name}" for name in names.split(",")}
    for package in (root / each for each in PACKAGES):
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            is_named = name in named or any(f"{above}.*" in page for above in _parents(name))
            if not is_named and any(map(parses, ast.walk(ast.parse(path.read_text())))):
                yield f"{name} parses text: add it to a row, with the bound of its text and its test"
    for test in sorted(each for each in named if "::" in each):
        file, _, function = test.partition("::")
        text = (root / file).read_text() if (root / file).is_file() else ""
        if not re.search(rf"^(?:async )?def {re.escape(function)}\(", text, re.MULTILINE):
            yield f"no test is called {test}"


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


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
