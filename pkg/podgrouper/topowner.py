# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The annotation ``kai.scheduler/top-owner-metadata``, which names a pod group's top owner.

Its value is YAML, byte for byte as upstream's library writes it, because it is compared with the stored value.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Self

import yaml
from controller_runtime.machinery import Object
from controller_runtime.machinery import yaml as goyaml

_PLAIN: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z][A-Za-z0-9./-]*")
_WORDS: Final = frozenset(("true", "false", "null", "y", "n", "yes", "no", "on", "off"))
_UNPRINTABLE: Final = re.compile("[^\\t\\n\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd]")
_NUMBER_OR_WORD: Final = re.compile(r"~?|[-+]?\.?[0-9A-Za-z_][0-9A-Za-z_.+-]*")
_SIGN_AFTER_PREFIX: Final = re.compile(r"(0[ob])([-+])")
"""As in ``0b-1``. Upstream's library reads such a text as a number, and our reader does not."""
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9Tt:., Z+-]+")

_LONGEST: Final = 253
"""Maximum length of a name for which the value is cached; only a few kinds permit longer names."""


def top_owner_metadata(owner: Object) -> str:
    """Return the annotation's value for ``owner``."""
    gvk = type(owner).gvk
    render = _remembered if len(owner.name) <= _LONGEST else _render
    return render(owner.name, owner.metadata.uid or "", gvk.group, gvk.version, gvk.kind)


def _render(name: str, uid: str, group: str, version: str, kind: str) -> str:
    return (
        f"name: {_scalar(name)}\nuid: {_scalar(uid)}\ngroup: {_scalar(group)}\n"
        f"version: {_scalar(version)}\nkind: {_scalar(kind)}\n"
    )


_remembered: Final = lru_cache(maxsize=4096)(_render)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text  # the usual case: all except names that begin with a digit
    unprintable = _UNPRINTABLE.search(text) is not None
    if "\n" in text and not unprintable and text[-1] != " " and " \n" not in text:
        return _literal(text)
    is_base_60 = _BASE_60.fullmatch(text) is not None
    quoted = unprintable or "\n" in text or is_base_60 or _is_number_or_word(text) or _is_timestamp(text)
    written: str = yaml.dump(
        {"k": _Text(text, '"' if quoted else "")}, Dumper=_Dumper, allow_unicode=True, width=1 << 30
    )
    return written.removeprefix("k: ").removesuffix("\n")


def _literal(text: str) -> str:
    """Return multi-line text as a block scalar. If the text begins with a line break, this also ends the header."""
    indent = "4" if text[0] in " \n" else ""
    keep = "+" if text == "\n" or text.endswith("\n\n") else ""
    chomp = keep if text[-1] == "\n" else "-"
    body = "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
    start = "" if text[0] == "\n" else "\n"
    return f"|{indent}{chomp}{start}{body}".removesuffix("\n")


def _is_number_or_word(text: str) -> bool:
    if not _NUMBER_OR_WORD.fullmatch(text):
        return False
    try:
        return not isinstance(goyaml.load(_SIGN_AFTER_PREFIX.sub(r"\2\1", text)), str)
    except goyaml.YAMLError:  # infinity, or not a number: JSON has neither
        return True


def _is_timestamp(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        goyaml.load(f"!!timestamp {text}")
    except goyaml.YAMLError:
        return False
    return True


class _Text(str):
    """Text with its YAML style."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Self:
        made = super().__new__(cls, text)
        made.style = style
        return made


class _Dumper(yaml.SafeDumper):
    """Resolves every plain scalar as a string, because the style of each text is already right."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


_Dumper.add_representer(
    _Text,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), text.style or None),
)
