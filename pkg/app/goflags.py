# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Command lines in the style of Go's flag package: one dash or two, ``--name=value`` or ``--name value``.

The value of a boolean flag must follow an equals sign: ``--name=false``. A word that is not a flag is an error; in Go,
such a word silently ends the flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FlagError(Exception):
    """An invalid command line; ``str()`` names the flag."""


class HelpRequested(Exception):  # noqa: N818 - a request, not an error
    """``-h`` or ``--help`` was given."""


class Flag(msgspec.Struct, frozen=True):
    """A flag: how its value is parsed, and its help text.

    ``parse`` raises ValueError with the reason. The last value of a repeated flag is used, unless
    ``merge`` combines the values.
    """

    name: str
    parse: Callable[[str], Any]
    usage: str
    default: Any = ""
    merge: Callable[[Any, Any], Any] | None = None

    @property
    def boolean(self) -> bool:
        """True if the value is a boolean."""
        return self.parse is boolean


def boolean(text: str) -> bool:
    """Parse a boolean as Go does."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("parse error")


def parse(flags: Sequence[Flag], arguments: Sequence[str]) -> dict[str, Any]:
    """Return a value for every flag. A flag that the command line does not set has its default.

    Raises:
        FlagError: a flag is unknown, a value is missing or invalid, or a word is not a flag.
        HelpRequested: ``-h`` or ``--help`` was given.
    """
    known: Mapping[str, Flag] = {flag.name: flag for flag in flags}
    given: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        if word == "--":
            if (extra := next(words, None)) is not None:
                raise FlagError(f"unexpected argument: {extra}")
            break
        name, has_value, text = _split(word)
        flag = known.get(name)
        if flag is None:
            if name in ("h", "help"):
                raise HelpRequested
            raise FlagError(f"flag provided but not defined: -{name}")
        if not has_value:
            if flag.boolean:
                text = "true"
            else:
                following = next(words, None)
                if following is None:
                    raise FlagError(f"flag needs an argument: -{name}")
                text = following
        try:
            value = flag.parse(text)
        except ValueError as error:
            kind = "boolean value" if flag.boolean else "value"
            raise FlagError(f'invalid {kind} "{text}" for flag -{name}: {error}') from error
        if flag.merge is not None and name in given:
            value = flag.merge(given[name], value)
        given[name] = value
    return {flag.name: given.get(flag.name, flag.default) for flag in flags}


def _split(word: str) -> tuple[str, bool, str]:
    if len(word) < 2 or word[0] != "-":
        raise FlagError(f"unexpected argument: {word}")
    name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
    if not name or name[0] == "-":
        raise FlagError(f"bad flag syntax: {word}")
    return name, bool(equals), text


def usage(program: str, flags: Sequence[Flag]) -> str:
    """Return the help text with all flags."""
    lines = [f"Usage of {program}:"]
    for flag in sorted(flags, key=lambda flag: flag.name):
        placeholder = "" if flag.boolean else " value"
        shown = "true" if flag.default is True else flag.default
        default = f" (default {shown})" if flag.default and isinstance(flag.default, str | int) else ""
        lines += [f"  --{flag.name}{placeholder}", f"        {flag.usage}{default}"]
    return "\n".join(lines) + "\n"
