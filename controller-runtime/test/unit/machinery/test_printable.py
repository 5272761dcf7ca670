# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Untrusted text is printed with every character visible, and no line of it looks like a line of the text around it."""

import json
import sys
import unicodedata

import pytest

from controller_runtime.machinery.printable import printable, printable_json, printable_line

IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180f\u200b\u200d\u202e\u2060\u2065\u3164\ufe00\ufe0f\ufeff"
    "\uffa0\ufff0\U0001bca0\U0001d173\U000e0000\U000e0041\U000e007f\U000e0100\U000e01ef\U000e0fff"
)
"""At least one character of each range that Unicode declares to be invisible (default-ignorable)."""
BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def hidden() -> set[str]:
    """Return all control and format characters, the line and paragraph separators, and some of the surrogate and
    private-use characters.
    """
    every = [*range(0x30000), *range(0xE0000, 0xF0000), *range(0xF0000, sys.maxunicode + 1, 251)]
    return {
        each for each in map(chr, every) if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    }


def test_each_character_without_a_shape_of_its_own_is_escaped() -> None:
    for character in hidden() | set(IGNORABLE):
        shown = printable_line(character)
        assert shown.startswith("\\"), hex(ord(character))
        assert shown.isascii()
        assert shown.isprintable()
        if character not in "\n\t":
            assert printable(character) == shown


def test_other_characters_stay() -> None:
    kept = [
        chr(number)
        for number in range(0x20, 0x30000)
        if unicodedata.category(chr(number))[0] != "C" and chr(number) not in BREAKS
    ]
    escaped = {each for each in kept if printable_line(each) != each}
    assert {hex(ord(each)) for each in escaped} == {
        *map(hex, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0)),
        *map(hex, range(0xFE00, 0xFE10)),
    } - {hex(each) for each in (0x180F,) if unicodedata.category(chr(each)) == "Cn"}
    for text in ("naïve 名前 имя שם اسم \N{SNOWMAN} \N{GRINNING FACE} → ✓", "a\u0301", "\u3000\xa0"):
        assert printable_line(text) == text


def test_escapes_are_those_of_python() -> None:
    text = "a\x1b[1m\n\t\r\x85\u200b\U000e0041\ud800"
    assert printable_line(text) == r"a\x1b[1m\n\t\r\x85\u200b\U000e0041\ud800"


@pytest.mark.parametrize("mark", BREAKS)
def test_a_forged_line_is_a_part_of_the_text(mark: str) -> None:
    forged = f"failed{mark}  \rTo do:{mark}delete it"
    assert len(printable_line(forged).splitlines()) == 1
    first, *others = printable(forged, indent="  | ").splitlines()
    assert first.startswith("failed")
    assert all(line.startswith("  | ") for line in others)


@pytest.mark.parametrize("indent", [None, 2])
def test_json_keeps_its_value_and_its_lines(indent: int | None) -> None:
    value = {BREAKS: ["\x1b\t\x7f\x9b", IGNORABLE, "名\ud800", {"a": "\U0010ffff\ue000"}]}
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    shown = printable_json(text)
    assert json.loads(shown) == value
    assert shown.count("\n") == text.count("\n")
    assert printable(shown) == shown
