# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON text, decoded to JSON values as kubectl does.

Times and ``12:30`` stay strings, ``0o17`` and ``1e3`` are numbers, and keys are strings. A duplicate key is an error,
and so is a value that JSON cannot represent (NaN, binary).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final, NoReturn

import yaml
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.errors import one_line

from pkg.config.document import PathSteps

from .yamlloader import BASE, MAX_ALIASED, MAX_DIGITS, Loader
from .yamlloader import SyntaxProblemError as SyntaxProblemError

_MAX_DEPTH: Final = 200
"""Maximum nesting depth; Kubernetes objects use less than a quarter of it."""
_SAFE_DEPTH: Final = 1_000
_TOO_DEEP: Final = f"nested more than {_MAX_DEPTH} levels deep"
_BRACKET: Final = re.compile(r"[\[\]{}]")
_INDENT: Final = re.compile(r"^[ \t?:-]+", re.MULTILINE)
# C1 control characters, marks of text direction and line separators, which both formats allow unescaped.
_INVISIBLE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"\[\]{},:]+', re.DOTALL)
_HALF: Final = re.compile("[\ud800-\udfff]")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the C dumper is not typed
    """Writes no aliases, and multi-line strings as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        """Write no aliases."""
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """Return a string, as a block if it has several lines."""
        node: yaml.ScalarNode = self.represent_scalar(
            "tag:yaml.org,2002:str", data, style="|" if "\n" in data else None
        )
        return node


_Dumper.add_representer(str, _Dumper.text)


def parse(text: str, *, is_json: bool = False) -> Iterator[tuple[int, JSON]]:
    """Yield each document with its number, counted from one. Empty documents are counted and skipped.

    An unpaired surrogate, which only an escape can produce, becomes U+FFFD as in Go.

    Raises:
        SyntaxProblemError: the text is neither YAML nor JSON.
    """
    halves = _SURROGATE_ESCAPE.search(text) is not None
    try:
        for number, data in _parse(text, is_json=is_json):
            _check_depth(data)
            yield number, _without_halves(data) if halves else data
    except RecursionError as error:
        raise SyntaxProblemError(_TOO_DEEP) from error


def _parse(text: str, *, is_json: bool) -> Iterator[tuple[int, JSON]]:
    if is_json or text.lstrip()[:1] in ("{", "["):
        try:
            found = list(_parse_json(text))
        except json.JSONDecodeError as error:
            if is_json:
                raise SyntaxProblemError(f"not JSON: {error.msg}", error.lineno) from error
        except _TokenError as error:
            raise SyntaxProblemError(str(error), _line_of_token(text, error.token)) from error
        except SyntaxProblemError as error:
            raise SyntaxProblemError(str(error), _line_in_yaml(text, str(error))) from error
        else:
            yield from enumerate(found, 1)
            return
    yield from _parse_yaml(text)


def dump(data: JSON, *, ascii_only: bool = False) -> str:
    """Return JSON as YAML for people: keys in their order, lines of text as lines, control characters as escapes."""

    def dumped(allow_unicode: bool) -> str:
        return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode, width=110))

    if ascii_only:
        return dumped(allow_unicode=False)
    text = dumped(allow_unicode=True)
    return dumped(allow_unicode=False) if _INVISIBLE.search(text) else text


def dump_json(data: JSON, *, ascii_only: bool = False) -> str:
    """Return JSON with line breaks, control characters as escapes."""
    text = json.dumps(data, indent=2, ensure_ascii=ascii_only) + "\n"
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def line_of(text: str, number: int, path: PathSteps) -> int | None:
    """Return the line of ``path`` in a document, or of its nearest ancestor in the text."""
    return _lines(text).line(number, path)


class _Lines:
    """The lines of a text's documents by path. The time of a lookup does not grow with the text."""

    def __init__(self, text: str) -> None:
        self._documents: list[yaml.Node] = []
        self._below: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = {}
        with suppress(yaml.YAMLError):  # JSON that is not valid YAML
            self._documents += yaml.compose_all(text, Loader=Loader)

    def line(self, number: int, path: PathSteps) -> int | None:
        if number > len(self._documents):
            return None
        node = self._documents[number - 1]
        line: int = node.start_mark.line + 1
        for step in path:
            below = None
            if isinstance(node, yaml.MappingNode):
                below = self._keys(node).get(str(step))
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                below = (node.value[step], node.value[step])
            if below is None:
                break
            line, node = below[0].start_mark.line + 1, below[1]
        return line

    def _keys(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if id(node) not in self._below:
            self._below[id(node)] = {str(key.value): (key, value) for key, value in node.value}
        return self._below[id(node)]


@lru_cache(maxsize=2)
def _lines(text: str) -> _Lines:
    return _Lines(text)


def shown(value: object) -> str:
    """Return a short form of a value for an error."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _parse_json(text: str) -> Iterator[JSON]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_without_twins, parse_constant=_refused, parse_int=_integer, parse_float=_number
    )
    at, end = 0, len(text)
    while True:
        while at < end and text[at].isspace():
            at += 1
        if at == end:
            return
        value, at = decoder.raw_decode(text, at)
        yield value


def _parse_yaml(text: str) -> Iterator[tuple[int, JSON]]:
    loader = Loader(text)
    try:
        _check_nesting(text)
        number = 0
        while loader.check_data():
            number += 1
            data = loader.get_data()
            if data is not None:
                yield number, _expanded(data, [len(text) + MAX_ALIASED], ()) if "&" in text else data
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise SyntaxProblemError(error.problem or error.context or "not YAML", line) from error
    except yaml.YAMLError as error:
        raise SyntaxProblemError(one_line(error)) from error
    finally:
        loader.dispose()


def _expanded(value: JSON, left: list[int], above: tuple[int, ...]) -> JSON:
    """Return ``value`` with copies of the parts that aliases share."""
    left[0] -= 1
    if left[0] < 0:
        raise SyntaxProblemError("aliases make it too large")
    if not isinstance(value, dict | list):
        return value
    if id(value) in above:
        raise SyntaxProblemError("an alias contains itself")
    above = (*above, id(value))
    if isinstance(value, dict):
        return {key: _expanded(held, left, above) for key, held in value.items()}
    return [_expanded(item, left, above) for item in value]


def _check_nesting(text: str) -> None:
    """Reject YAML that is nested too deeply before libyaml composes it by recursion in C.

    Brackets and indentation, quoted ones included, bound the depth. The text is parsed only if they are many.
    """
    opened = deepest = 0
    for bracket in _BRACKET.finditer(text):
        opened = max(opened + (1 if bracket[0] in "[{" else -1), 0)
        deepest = max(deepest, opened)
    if deepest + max((len(match[0]) for match in _INDENT.finditer(text)), default=0) <= _SAFE_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=BASE):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise SyntaxProblemError(_TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_depth(data: JSON) -> None:
    level = [data]
    for _ in range(_MAX_DEPTH + 1):
        level = [
            below
            for value in level
            if isinstance(value, dict | list)
            for below in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise SyntaxProblemError(_TOO_DEEP)


def _without_halves(value: JSON) -> JSON:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_HALF.sub("\ufffd", key): _without_halves(held) for key, held in value.items()}
    return [_without_halves(item) for item in value] if isinstance(value, list) else value


def _without_twins(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    for key, value in pairs:
        if key in found:
            raise SyntaxProblemError(f"key {key} is given twice")
        found[key] = value
    return found


class _TokenError(ValueError):
    """A number of JSON text cannot be represented; the decoder does not report its position."""

    def __init__(self, token: str, problem: str) -> None:
        super().__init__(problem)
        self.token = token


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _TokenError(text, f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _TokenError(text, f"{shown(text)} is not a number in JSON")
    return number


def _refused(constant: str) -> NoReturn:
    raise _TokenError(constant, f"{constant} is not a number in JSON")


def _line_of_token(text: str, token: str) -> int | None:
    """Return the line of the first token of JSON text that equals ``token`` and is not a string."""
    for match in _JSON_TOKEN.finditer(text):
        if match[0] == token:
            return text.count("\n", 0, match.start()) + 1
    return None


def _line_in_yaml(text: str, problem: str) -> int | None:
    """Return the line of a problem of JSON text that the YAML loader finds too; None if it does not."""
    try:
        for _ in _parse_yaml(text):
            pass
    except SyntaxProblemError as error:
        return error.line if str(error) == problem else None
    return None
