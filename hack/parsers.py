# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Advise on the page of parsers: which modules that parse text it lacks, and which tests it names that do not exist.

No other tool knows which calls parse text that other parties write. A module parses text if it calls a known parser,
makes a pattern at run time, or defines a function called ``parse``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGES: Final = ("pkg", "controller-runtime/controller_runtime", "trainerctl/trainerctl")
_CALLS: Final = (
    r"JSONDecoder json\.Decoder json\.decode json\.loads? raw_decode from_json (?:model_)?validate_json "
    r"yaml\.(?:line_of|load|load_all|load_map|parse) ast\.parse literal_eval (?:marshal|pickle)\.loads tomllib\.loads? "
    r"csv\.reader ConfigParser ElementTree\.fromstring shlex\.split cel\.compile load_(?:pem|der|ssh)_\w+ "
    r"(?:urlsafe_)?(?:a85|b32|b64|b85)decode unhexlify (?:EllipticCurve|RSA)PublicNumbers "
    r"fromisoformat parsedate_to_datetime strptime fromtimestamp parse_qsl? url(?:parse|split) "
    r"ip_(?:address|interface|network) Http(?:Request|Response)Parser parse_url "
    r"decompressobj zlib\.decompress gzip\.open tarfile\.open ZipFile from_bytes struct\.(?:iter_)?unpack unpack_from"
)
_PARSES: Final = re.compile(
    rf"(?<![\w`])(?:{'|'.join(_CALLS.split())})\("  # the last part of a name, which ends the name
    r"|^\s*(?:async )?def (?:_?parse(?:_\w+)?|atoi)\("
    r"|\bre\.(?:compile|findall|finditer|fullmatch|match|search|split|sub)\(\s*(?:\w*f\w*[\"']|(?![rb]*[\"'])\w)",
    re.MULTILINE,
)


def parses(source: str) -> bool:
    """Return True for a module that parses text."""
    return _PARSES.search(source) is not None


def problems(root: Path, page: str) -> Iterator[str]:
    """Yield the modules that parse text and are not in the table of the page, and the tests that do not exist."""
    named = set(re.findall(r"`([\w./:]+)(?:\{[\w.,]+\})?`", page))
    for package, names in re.findall(r"`([\w.]+)\{([\w.,]+)\}`", page):
        named |= {f"{package}{name}" for name in names.split(",")}
    for package in (root / each for each in PACKAGES):
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            parts = name.split(".")
            is_named = name in named or any(
                f"{'.'.join(parts[:end])}.*" in page for end in range(1, len(parts))
            )
            if not is_named and parses(path.read_text()):
                yield f"{name} parses text: add it to a row, with the bound of its text and its test"
    for test in sorted(each for each in named if "::" in each):
        file, _, function = test.partition("::")
        text = (root / file).read_text() if (root / file).is_file() else ""
        if not re.search(rf"^(?:async )?def {re.escape(function)}\(", text, re.MULTILINE):
            yield f"no test is called {test}"
