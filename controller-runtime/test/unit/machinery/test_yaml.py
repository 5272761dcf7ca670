# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""YAML is read as Go's sigs.k8s.io/yaml reads it, with bounds, and written so that every reader agrees."""

import base64
import contextlib
import hashlib
import itertools
import json
import re
import resource
import string
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import example, given
from hypothesis import strategies as st

from controller_runtime.machinery import yaml

RECORDED = json.loads((Path(__file__).parent / "testdata" / "go_yaml.json").read_text(encoding="utf-8"))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=20,
)
MARKS = st.text(
    " \n\t:-#'\"|>&*!%@`{}[],?=<~.0123456789eExXoObBnNyY_+/\\é中\u2028\x85\ufeff\x7f", max_size=12
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("2024-13-45", "2024-13-45"),
        ("1:1", "1:1"),
        ("1e3", 1000),
        ("1e20", 10**20),
        ("1e21", 1e21),
        (".5_0", 0.5),
        ("._5", "._5"),
        ("-3", -3),
        ("-0", 0),
        ("18446744073709551616", 18446744073709552000),
        ("0xFFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFFF"),
        ("yes", True),
        ("n", False),
        ("[<<, EOF]", ["<<", "EOF"]),
        ("0x_", "0x_"),
        ("0_", 0),
        ("0x_f", 15),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int '3'", 3),
        ("!!float 3", 3),
        ("!!null ''", None),
        ("!!timestamp 2001-1-1", "2001-1-1"),
        ("!!timestamp 0000-02-29", "0000-02-29"),
        ("!!timestamp 2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("!!binary aGk=", "hi"),
        ("!!binary 4oI=", "\ufffd\ufffd"),
        ("!anything 1", "1"),
        ("{1: a, true: b, 1e6: c, 0.1: d, -0.0: e}", {"1": "a", "true": "b", "1e+06": "c", "0.1": "d", "-0": "e"}),
        ("{1e39: a, -1e39: b}", {".inf": "a", "-.inf": "b"}),
        ("{<<: {a: 1, b: 1}, b: 2}", {"a": 1, "b": 2}),
        ("{b: 2, <<: {a: 1, b: 1}}", {"a": 1, "b": 1}),
        ("{1e40: a, -1e40: b, 16777217.0: c}", {".inf": "a", "-.inf": "b", "1.6777216e+07": "c"}),
        ('{"<<": {a: 1}}', {"<<": {"a": 1}}),
        ("{<<: [{a: 1}, {a: 2, b: 2}]}", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_a_value_is_what_it_is_to_go(text: str, value: Any) -> None:
    assert yaml.load(f"v: {text}") == {"v": value}
    assert json.dumps(yaml.load(f"v: {text}"), sort_keys=True) == json.dumps({"v": value}, sort_keys=True)


def test_aliases_share_nothing() -> None:
    data: Any = yaml.load("a: &x {b: [1]}\nc: *x\nd: {<<: *x}\n")
    data["a"]["b"].append(2)
    assert data["c"] == {"b": [1]}
    assert data["d"] == {"b": [1]}


def test_the_first_document_counts_and_a_key_s_last_value_unless_it_is_strict() -> None:
    assert yaml.load("a: 1\na: 2\n---\n[", strict=False) == {"a": 2}
    with pytest.raises(yaml.YAMLError, match="line 2: a: key is given twice, first at line 1"):
        yaml.load("a: 1\na: 2\n")
    with pytest.raises(yaml.YAMLError, match="another document begins; one is expected"):
        yaml.load("a: 1\n---\nb: 1\n")
    with pytest.raises(yaml.YAMLError, match=r"^line 4: did not find"):
        yaml.load("a: 1\n---\n[")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_text_is_null_or_an_empty_map(text: str) -> None:
    assert yaml.load(text) is None
    assert yaml.load_map(text) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {b: 1, b: 2}", "line 1: a.b: key is given twice, first at line 1"),
        ('{"a": 1, "a": 2}', "line 1: a: key is given twice, first at line 1"),
        ("- a\n", "line 1: a map is expected at the top"),
        ("just words", "line 1: a map is expected at the top"),
        ("a:\n  b: !!bool maybe\n", "line 2: a.b: 'maybe' is not of type bool"),
        ("a:\n- !!int ''\n", "line 2: a[0]: '' is not of type int"),
        ("a: !!float ''\n", "line 1: a: '' is not of type float"),
        ("a: !!timestamp 2024-13-45\n", "line 1: a: '2024-13-45' is not of type timestamp"),
        ("a: !!int 12345678901234567890123", "line 1: a: '12345678901234567890123' is not of type int"),
        ("a: !!binary a\n", "line 1: a: !!binary value contains invalid base64 data"),
        ("a: .nan\n", "line 1: a: nan is not a number in JSON"),
        ("a: -.inf\n", "line 1: a: -inf is not a number in JSON"),
        ("{a: 1}: b", "line 1: a map cannot be a key"),
        ("? [a]\n: b", "line 1: a list cannot be a key"),
        ("~: b", "line 1: null cannot be a key"),
        ("18446744073709551615: b", "line 1: a number of more than 63 bits cannot be a key"),
        ("a: &x\n  b: *x\n", "line 2: a.b: anchor 'x' value contains itself"),
        ("a: &x {<<: *x}", "line 1: a.<<: anchor 'x' value contains itself"),
        ("a: *x\n", "line 1: a: unknown anchor 'x' referenced"),
        ("a: {<<: 1}", "line 1: a.<<: map merge requires map or sequence of maps as the value"),
        ("a: {<<: [{}, 1]}", "line 1: a.<<: map merge requires map or sequence of maps as the value"),
        ("x: &x [{}]\na: {<<: *x}", "line 2: a.<<: map merge requires map or sequence of maps as the value"),
        ("a: [1\n", "line 2: did not find expected ',' or ']'"),
        ("a: b: c", "line 1: mapping values are not allowed in this context"),
        ("a:\n\t- b", "line 2: found character that cannot start any token"),
        ("a: \x01", "line 1: control characters are not allowed"),
    ],
)
def test_what_is_no_clean_map_is_refused_with_line_and_path(text: str, message: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.load_map(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", [b"a: \xff\xfe\x00", "a: \ud800", '"\\ud800"', b"\xfe\xff\xd8\x00"])
def test_what_is_no_unicode_is_refused(text: str | bytes) -> None:
    with pytest.raises(yaml.YAMLError):
        yaml.load(text)


def bomb(width: int, levels: int) -> str:
    """Return a map of lists; each list contains ``width`` aliases of the list before it."""
    lines = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]\n" for n in range(1, levels + 1))
    return "a0: &a0 {}\n" + "".join(lines)


def merges(width: int, levels: int, keys: int = 1) -> str:
    """Return a map of maps; each merges the map before it ``width`` times, and the first has ``keys`` keys."""
    first = "a0: &a0 {" + ", ".join(f"k{number}: 1" for number in range(keys)) + "}\n"
    return first + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}], x{n}: 1}}\n" for n in range(1, levels + 1)
    )


def chain(levels: int) -> str:
    """Return a map of lists; each list contains an alias of the list before it, and so is one level deeper."""
    return "a0: &a0 []\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, levels))


BOMBS = {
    "brackets": ("[" * 1_000_000, "nested more than 200 levels"),
    "braces": ("{a: " * 40_000, "nested more than 200 levels"),
    "dashes": ("- " * 50_000 + "a", "nested more than 200 levels"),
    "question marks": ("? " * 50_000 + "a", "nested more than 200 levels"),
    "indentation": ("\n".join(" " * n + "a:" for n in range(1_100)), "nested more than 200 levels"),
    "depth by aliases": (chain(1_000), "nested more than 200 levels"),
    "billion laughs": (bomb(9, 9), "excessive aliasing"),
    "merges of merges": (merges(9, 30), "excessive aliasing"),
    "wide merges": (merges(50, 20, keys=1_000), "excessive aliasing|more than 100,000|more than 4 MiB"),
    "a wide map, merged a few times": (
        "a: &a {" + ", ".join(f"k{n}: 1" for n in range(20_000)) + "}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(6)),
        "more than 100,000 values",
    ),
    "a merge that merges a list of aliases": ("a: &a {x: 1}\nb: {<<: [" + "*a," * 60_000 + "]}", "more than 100,000|excessive"),
    "aliases of a text": ("a: &a " + "x" * 50_000 + "\nb: [" + "*a, " * 90_000 + "]", "excessive aliasing|more than 100,000|more than 4 MiB"),
    "a long text, often enough to fill memory as JSON": (
        "a: &a " + "x" * 400_000 + "\nb: [" + "*a, 1, " * 20_000 + "]",
        "aliases add more than 4 MiB of text",
    ),
    "the same in a list": (
        "a: &a [" + "x" * 4_000 + "]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(900)),
        "aliases add more than 4 MiB of text",
    ),
    "a text in aliases of aliases": (
        "a: &a " + "x" * 36_000 + "\n" + "".join(f"{name}: &{name} [{', '.join([f'*{inner}'] * 10)}]\n" for inner, name in ("ab", "bc", "cd")),
        "aliases add more than 4 MiB of text",
    ),
    "directives in UTF-16": (("%TAG !a! " + "x" * 5_000 + "\n--- a").encode("utf-16"), "longer than 200 bytes"),
    "values": ("[" + "1," * 200_000 + "]", "more than 100,000 values"),
    "keys": ("".join(f"k{n}: 1\n" for n in range(60_000)), "more than 100,000 values"),
    "documents' tags": ("".join(f"%TAG !a{n}! x\n" for n in range(50_000)) + "--- a", "more than 20 directives"),
    "a tag of half a megabyte": ("%TAG !a! " + "x" * 500_000 + "\n--- [" + "!a!b c," * 50_000 + "]", "longer than 200 bytes"),
    "the same after another line break": ("\u2028%TAG !a! " + "x" * 500_000 + "\n--- a", "longer than 200 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("strict", [True, False])
def test_a_bomb_is_refused_before_it_is_built(text: str | bytes, problem: str, strict: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(yaml.YAMLError, match=problem) as caught:
        yaml.load(text, strict=strict)
    assert len(str(caught.value)) < 500
    # At most 100 MiB (the numbers are KiB): little is built before the bound is reached.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize(
    "text",
    ["1:" * 120_000 + "1", "1" * 500_000, "0x" + "f" * 500_000, "0" * 500_000, "1_" * 250_000, "1e" + "9" * 500_000, "." + "1" * 500_000],
)  # fmt: skip
def test_a_number_of_any_length_costs_what_its_text_costs(text: str) -> None:
    data: Any = yaml.load(f"a: {text}")
    assert isinstance(data["a"], str | int | float)


def test_brackets_in_text_are_no_nesting() -> None:
    script = "[" * 2_000
    assert yaml.load(f"a: '{script}'\nb: {'-' * 1_500}x\n") == {"a": script, "b": "-" * 1_500 + "x"}


def test_a_line_is_that_of_the_key_or_of_the_nearest_ancestor() -> None:
    text = "a:\n  b: 1\nc:\n- x: 2\n- &y\n  z: 1\nd: *y\n---\ne: {f: 1,\n g: 2}\n"
    lines = [
        yaml.line_of(text, number, path)
        for number, path in (
            (1, ("a", "b")),
            (1, ("c", 0, "x")),
            (1, ("a", "missing")),
            (1, ("missing",)),
            (1, ("d", "z")),
            (1, ("d",)),
            (2, ("e", "g")),
            (3, ("e",)),
        )
    ]
    assert lines == [2, 4, 1, 1, 6, 7, 10, None]


def test_a_text_is_parsed_once_for_all_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "spec:\n" + "".join(f"  field{number}: 1\n" for number in range(500))
    parsed: list[bytes] = []
    parse = pyyaml.parse

    def counted(given: bytes, **options: Any) -> Any:
        parsed.append(given)
        return parse(given, **options)

    monkeypatch.setattr(pyyaml, "parse", counted)
    lines = [yaml.line_of(text, 1, ("spec", f"field{number}")) for number in range(500)]
    assert lines == list(range(2, 502))
    assert parsed == [text.encode()]


def test_documents_are_numbered_and_empty_ones_skipped() -> None:
    assert list(yaml.load_all("a: 1\n---\n---\nb: 1\n---\n# end\n")) == [(1, {"a": 1}), (3, {"b": 1})]
    assert str(list(yaml.load_all('{"a": 1.5, "b": 1e3}'))) == "[(1, {'a': 1.5, 'b': 1000})]"
    assert list(yaml.load_all('{"a": 1} [2]\n')) == [(1, {"a": 1}), (2, [2])]
    assert list(yaml.load_all("{a: 1}\n---\n[2]\n")) == [(1, {"a": 1}), (2, [2])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"a": }', "line 2: not JSON: Expecting value"),
        ('{"a":\n1, "a": 2}', "line 2: a: key is given twice, first at line 1"),
        ('{"a": "NaN",\n"b": NaN}', "line 2: 'NaN' is not a number in JSON"),
        ('{"a": [1,\n2,\n-1e999]}', "line 3: '-1e999' is not a number in JSON"),
        (b'{"a": "\xff"}', "not UTF-8 text"),
        ("[" * 100_000, "nested more than 200 levels deep"),
        ("[" * 300 + "]" * 300, "nested more than 200 levels deep"),
    ],
)
def test_json_that_is_none_has_a_line(text: str | bytes, message: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        list(yaml.load_all(text, is_json=True))
    assert str(caught.value) == message


def test_half_of_a_surrogate_pair_in_json_is_replaced() -> None:
    assert list(yaml.load_all('{"a": "\\ud800x", "b\\uDFFF": ["\\ud83d\\ude00"]}')) == [
        (1, {"a": "\ufffdx", "b\ufffd": ["😀"]})
    ]


@pytest.mark.parametrize("text", [
    "=", "<<", "yes", "y", "N", "on", "1e3", "0x1", "0o17", "0b1", "1_000", "12:30", "1:1", "2026-01-01", "null", "~", "", ".5", "1.", "+1", ".nan",
    " lead", "trail ", "a\n", "\na", "a\n\n", " a\nb", "a\n b\n  c\n", "\n", "- a", "#", "a #b", "@", "%", "-", "?", ":", "k: v", "!t", "|", ">",
    "...", "---", "--- a", "word " * 60, "a" * 200, "\t", "\x85", "\u2028", "\ufeff", "\x7f", "\r", "😀",
])  # fmt: skip
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_text_stays_a_text_to_every_reader(text: str, ascii_only: bool) -> None:
    written = yaml.dump({text: [text]}, ascii_only=ascii_only)
    assert yaml.load(written) == {text: [text]}
    assert pyyaml.safe_load(written) == {text: [text]}
    assert written.isascii() or not ascii_only


def test_what_is_too_deep_is_not_written() -> None:
    data: Any = []
    for _ in range(2_000):
        data = [data]
    with pytest.raises(yaml.YAMLError, match="nested more than 200 levels"):
        yaml.dump(data)


@given(JSON_VALUES, st.booleans(), st.booleans())
def test_what_is_written_is_read_again(value: Any, sort_keys: bool, ascii_only: bool) -> None:
    written = yaml.dump(value, sort_keys=sort_keys, ascii_only=ascii_only)
    assert yaml.load(written) == value
    assert pyyaml.safe_load(written) == value


@given(st.dictionaries(MARKS, MARKS | st.lists(MARKS), max_size=4))
def test_texts_full_of_marks_are_read_again(value: Any) -> None:
    assert yaml.load(yaml.dump(value)) == value


@given(JSON_VALUES)
def test_json_is_read_as_json_reads_it(value: Any) -> None:
    assert list(yaml.load_all(json.dumps(value), is_json=True)) == [(1, value)]


@given(st.text(max_size=200) | st.text(string.printable, max_size=200) | MARKS)
@example("\ud800")
@example("%TAG ! x\n")
def test_no_text_breaks_the_reader(text: str) -> None:
    for read in (
        yaml.load,
        lambda given: list(yaml.load_all(given)),
        lambda given: yaml.line_of(given, 1, ("a",)),
    ):
        with contextlib.suppress(yaml.YAMLError):
            read(text)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for read in (yaml.load, lambda given: list(yaml.load_all(given))):
        with contextlib.suppress(yaml.YAMLError):
            read(data)


def test_a_path_reads_as_people_write_it() -> None:
    assert yaml.render_path(("a", 0, "b")) == "a[0].b"
    path = ("controller", "groupKindConcurrency", "TrainJob.x")
    assert yaml.render_path(path) == 'controller.groupKindConcurrency["TrainJob.x"]'


def text_of(case: dict[str, Any]) -> str | bytes:
    if "base64" in case:
        return base64.b64decode(case["base64"])
    return str(case["text"]) if "text" in case else "".join(text * times for text, times in case["parts"])


def levels_of(text: str) -> int:
    depths = itertools.accumulate((char in "[{") - (char in "]}") for char in text)
    return max(depths)


def is_expected(case: dict[str, Any], value: Any) -> bool:
    if "any" in case:
        return value in case["any"]
    if "json_sha256" in case:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return bool(hashlib.sha256(text.encode()).hexdigest() == case["json_sha256"])
    return bool(value == case["json"])


def by_kind(cases: list[dict[str, Any]]) -> list[Any]:
    """Return the cases of each kind as one parameter: the kind is the part of the name before the first slash or space."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        kinds.setdefault(re.split("[/ ]", case["name"])[0], []).append(case)
    return [pytest.param(found, id=kind) for kind, found in kinds.items()]


def outcome(text: str | bytes, **options: Any) -> Any:
    """Return the value of a text, or the error that reading it raises."""
    try:
        return yaml.load(text, **options)
    except yaml.YAMLError as error:
        return error


@pytest.mark.parametrize("cases", by_kind(RECORDED["cases"]))
def test_recorded_texts_are_read_as_go_reads_them(cases: list[dict[str, Any]]) -> None:
    def is_right(case: dict[str, Any], found: Any) -> bool:
        if "json_parts" in case:
            text = "".join(text * times for text, times in case["json_parts"])
            fits = levels_of(text) <= yaml.MOST_LEVELS
            case = {**case, "json": json.loads(text)} if fits else {**case, "error": "deep"}
        if case.get("scanner"):
            return True  # libyaml 0.2.5 and the older libyaml that Go's reader was translated from disagree
        if isinstance(found, yaml.YAMLError) or "error" in case:
            return isinstance(found, yaml.YAMLError) and "error" in case
        return is_expected(case, found)

    read = {case["name"]: outcome(text_of(case), strict=False, most_values=10_000_000) for case in cases}
    assert len(read) == len(cases)
    assert {
        case["name"]: read[case["name"]] for case in cases if not is_right(case, read[case["name"]])
    } == {}


DUPLICATES = [
    case
    for case in RECORDED["cases"]
    if case["name"].startswith("duplicate/") and "strict_error" in case and "scanner" not in case
]


@pytest.mark.parametrize("case", DUPLICATES, ids=lambda case: case["name"])
def test_a_key_that_go_refuses_when_strict_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(yaml.YAMLError, match="key is given twice"):
        yaml.load(text_of(case))


WRITTEN = by_kind([case for case in RECORDED["written"] if "text" in case])


def is_number(found: Any, expected: Any) -> bool:
    """Return True for an integer that Go wrote as a float."""
    return isinstance(found, int) and isinstance(expected, int | float) and float(found) == float(expected)


@pytest.mark.parametrize("cases", WRITTEN)
def test_texts_that_go_wrote_are_read(cases: list[dict[str, Any]]) -> None:
    wrong = {}
    for case in cases:
        found = outcome(case["text"])
        expected = case.get("read", case["value"])
        refused = isinstance(found, yaml.YAMLError)
        if refused != ("read_error" in case) or not (
            refused or found == expected or is_number(found, expected)
        ):
            wrong[case["name"]] = found
    assert wrong == {}


@pytest.mark.parametrize("cases", WRITTEN)
def test_values_that_go_wrote_are_written_and_read(cases: list[dict[str, Any]]) -> None:
    wrong = {}
    for case in cases:
        found = outcome(yaml.dump(case["value"]))
        if not (found == case["value"] or is_number(found, case["value"])):
            wrong[case["name"]] = found
    assert wrong == {}
