# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON text, read as Go's ``sigs.k8s.io/yaml`` v1.6 reads it, and written so that all readers agree.

load        the first document of a text
load_all    all documents of a file
line_of     the line of a value, for an error about it
dump        the text of a value

The rules are those of ``go.yaml.in/yaml/v2`` (``resolve.go``, ``decode.go``): ``0o17``, ``1e3`` and ``yes`` are not
strings, but ``12:30`` and ``2026-01-01`` are strings; keys become strings; ``<<`` merges only if it is a key.

The text may come from a tenant, so the work on it is bounded. libyaml splits the text into events without recursion,
and the values are built in a loop that stops at the first event beyond a limit. There are limits on the nesting depth,
on the number of values, and on the values and characters that aliases add.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import yaml

from .base import JSON
from .errors import one_line
from .printable import LONGEST_PATH, cut

MOST_LEVELS: Final = 200
"""Maximum nesting depth. Even the CRD with the deepest schema needs less than a third of this depth."""
MOST_VALUES: Final = 100_000
"""Maximum number of values of a document by default. Reading them takes 0.3 seconds of CPU time."""
MOST_VALUES_OF_FILES: Final = 10_000_000
"""Maximum number of values of a document in files that the user names: a document may hold thousands of objects."""
_MOST_ALIASED_TEXT: Final = 4 << 20
"""Maximum number of characters that aliases may add. Aliases share their text in memory, but each alias repeats it in
JSON."""
_MOST_DIRECTIVES: Final = 20
_LONGEST_DIRECTIVE: Final = 200
_LONGEST_PATH: Final = 80
"""Maximum number of characters of the path in an error, which also names the line."""

PathSteps = tuple[str | int, ...]

_TAG: Final = "tag:yaml.org,2002:"
_EVENTS: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DIRECTIVE: Final = re.compile(rb"(?:^|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9])%([^\r\n]*)")
_WORDS: Final[dict[str, bool | float | None]] = (
    {
        spelling: value
        for words, value in (
            ("true yes on", True),
            ("false no off", False),
            ("null", None),
            (".inf +.inf", math.inf),
            ("-.inf", -math.inf),
        )
        for word in words.split()
        for spelling in (word, re.sub("[a-z]", lambda first: first[0].upper(), word, count=1), word.upper())
    }
    | {"y": True, "Y": True, "n": False, "N": False, "": None, "~": None}
    | dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan)
)
_FIRST_OF_NUMBER: Final = frozenset("+-.0123456789")
_FIRST_OF_NO_STRING: Final = _FIRST_OF_NUMBER | frozenset("yYnNtTfFoO~")
_INTEGER: Final = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))", re.ASCII
)
_BASES: Final = (16, 2, 8, 10)
_FLOAT: Final = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_UNDERSCORED: Final = re.compile(r"\.\d+(?:_\d+)*(?:[eE][+-]?\d+(?:_\d+)*)?", re.ASCII)
_TIME: Final = r"(\d\d?):(\d\d?):(\d\d?)(?:[.,]\d+)?"
_TIMESTAMPS: Final = tuple(
    re.compile(rf"(\d{{4}})-(\d\d?)-(\d\d?){time}", re.ASCII)
    for time in ("", f" {_TIME}", rf"[Tt]{_TIME}(?:Z|[+-]\d\d:\d\d)")
)
_MOST_DIGITS: Final = 64
_JSON_INTEGERS: Final = 1e21
"""Go writes integral floats below this number without an exponent, so that every reader of JSON sees integers."""
_HALF: Final = re.compile("[\ud800-\udfff]")
_HALF_ESCAPE: Final = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"\[\]{},:]+', re.DOTALL)
_TOO_DEEP: Final = f"nested more than {MOST_LEVELS} levels deep"


class YAMLError(ValueError):
    """The text is not YAML that Kubernetes accepts, or exceeds a limit; ``str()`` includes the line and path if known.

    ``line`` is counted from one.
    """

    def __init__(self, problem: str, line: int | None = None, path: PathSteps = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.path = path

    def __str__(self) -> str:
        return ": ".join(filter(None, (f"line {self.line}" if self.line else "", self.message)))

    @property
    def message(self) -> str:
        """The path and the problem; a long path is cut."""
        path = render_path(self.path, _LONGEST_PATH)
        return f"{path}: {self.problem}" if path else self.problem


def render_path(path: Iterable[str | int], longest: int = LONGEST_PATH) -> str:
    """Return a path in human-readable form: ``webhook.port``, ``rules[0].name``, ``map["a.b"]``. A long path is cut."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif "." in step or not step:
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return cut(text, longest)


def load(text: str | bytes, *, strict: bool = True, most_values: int = MOST_VALUES) -> JSON:
    """Return the value of the first document, or None for an empty text.

    With ``strict``, a key that is given twice in one map is an error, and so is a second document. Otherwise the last
    value of a key counts and later documents are ignored, as in Go's ``yaml.Unmarshal``.

    Raises:
        YAMLError: the text is not YAML, contains something that JSON cannot represent (NaN, a map as a key), or exceeds
            a limit.
    """
    with _located(text):
        documents = _documents(text, strict=strict, most_values=most_values)
        _, value = next(documents, (1, None))
        if strict and (another := next(documents, None)):
            raise YAMLError("another document begins; one is expected", another[0])
        return value


def load_map(text: str | bytes, *, most_values: int = MOST_VALUES) -> dict[str, JSON]:
    """Return the map that the text represents; for an empty text, return an empty map.

    Duplicate keys and a second document are errors. Raises like :func:`load`, and raises YAMLError if the value is not
    a map.
    """
    value = load(text, most_values=most_values)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise YAMLError("a map is expected at the top", 1)
    return value


def load_all(
    text: str | bytes, *, strict: bool = True, most_values: int = MOST_VALUES_OF_FILES, is_json: bool = False
) -> Iterator[tuple[int, JSON]]:
    """Yield each document with its number, counted from one. Empty YAML documents are counted and skipped.

    Like kubectl, try to read a text that begins with ``{`` or ``[`` as JSON values first, and as YAML if that fails.
    With ``is_json``, a text that is not JSON is an error. Raises like :func:`load`.
    """
    start = text.lstrip()[:1]
    if is_json or start in ("{", "[", b"{", b"["):
        try:
            values = _json_values(text, strict=strict)
        except json.JSONDecodeError as error:
            if is_json:
                raise YAMLError(f"not JSON: {error.msg}", error.lineno) from error
        else:
            yield from enumerate(values, 1)
            return
    with _located(text):
        documents = _documents(text, strict=strict, most_values=most_values)
        for number, (_, value) in enumerate(documents, 1):
            if value is not None:
                yield number, value


def line_of(text: str | bytes, number: int, path: Iterable[str | int]) -> int | None:
    """Return the line of a value in document ``number``, or None if the document does not exist.

    If the text does not contain the value, return the line of the value's nearest ancestor in the text. Documents and
    lines are counted from one. The last two texts are cached, so further lookups in them do not parse them again.
    """
    nodes = _nodes(text)
    if number > len(nodes):
        return None
    node = nodes[number - 1]
    for step in path:
        if (below := node.below.get(str(step))) is None:
            break
        node = below
    return node.line


class _Node:
    """The line of a value, and the nodes of the values below it."""

    __slots__ = ("below", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self.below: dict[str, _Node] = {}


@lru_cache(maxsize=2)
def _nodes(text: str | bytes) -> Sequence[_Node]:
    """Return a node for each document. Reading stops at the first syntax error."""
    nodes: list[_Node] = []
    anchors: dict[str, _Node] = {}
    above: list[tuple[_Node, list[_Key] | None]] = []
    events: Iterator[Any] = yaml.parse(_encoded(text), Loader=_EVENTS)
    with suppress(yaml.YAMLError):
        for event in events:
            if isinstance(event, yaml.CollectionEndEvent):
                above.pop()
            if not isinstance(event, yaml.NodeEvent):
                continue
            node = _Node(event.start_mark.line + 1 if event.start_mark else 1)
            if isinstance(event, yaml.AliasEvent):
                node.below = anchors.get(event.anchor or "", node).below
            elif event.anchor is not None:
                anchors[event.anchor] = node
            if not above:
                nodes.append(node)
            else:
                _add_node(*above[-1], node, event.value if isinstance(event, yaml.ScalarEvent) else "")
            if isinstance(event, yaml.CollectionStartEvent):
                above.append((node, [] if isinstance(event, yaml.MappingStartEvent) else None))
            if len(above) > MOST_LEVELS:
                break
    return nodes


_Key = tuple[str, int]


def _add_node(parent: _Node, keys: list[_Key] | None, node: _Node, text: str) -> None:
    """Add the next node to a list or a map. In a map, a key waits in ``keys`` until its value follows."""
    if keys is None:
        parent.below[str(len(parent.below))] = node
    elif not keys:
        keys.append((text, node.line))
    else:
        key, node.line = keys.pop()
        parent.below[key] = node


def _encoded(text: str | bytes) -> bytes:
    """Return the text as UTF-8; libyaml refuses halves of surrogate pairs."""
    if isinstance(text, bytes) and text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = text.decode("utf-16")
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


@contextmanager
def _located(text: str | bytes) -> Iterator[None]:
    """Turn PyYAML's errors into :class:`YAMLError`."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise YAMLError(error.problem or error.context or "not YAML", line) from error
    except yaml.reader.ReaderError as error:
        line = _encoded(text)[: error.position].count(b"\n") + 1
        raise YAMLError(str(error.reason), line) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YAMLError(one_line(error)) from error


def _documents(text: str | bytes, *, strict: bool, most_values: int) -> Iterator[tuple[int, JSON]]:
    """Yield the line and the value of each document."""
    encoded = _encoded(text)
    if b"%" in encoded:
        _check_directives(encoded)
    events: Iterator[Any] = yaml.parse(encoded, Loader=_EVENTS)
    for event in events:
        if type(event) is yaml.DocumentStartEvent:
            mark: Any = event.start_mark
            composer = _Composer(events, strict=strict, most_values=most_values)
            yield mark.line + 1, composer.document()


def _check_directives(text: bytes) -> None:
    """Refuse many or long directives.

    libyaml compares each directive with all earlier ones and copies the text of directives into tags.
    """
    directives = _DIRECTIVE.findall(text)
    if len(directives) > _MOST_DIRECTIVES and b"%TAG" in text:
        raise YAMLError(f"more than {_MOST_DIRECTIVES} directives")
    if any(len(directive) > _LONGEST_DIRECTIVE for directive in directives if directive.startswith(b"TAG")):
        raise YAMLError(f"a directive is longer than {_LONGEST_DIRECTIVE} bytes")


class _Anchored:
    """A value that aliases may refer to."""

    __slots__ = ("characters", "height", "is_complete", "value", "values")

    def __init__(self, value: Any = None, characters: int = 0, *, is_complete: bool = False) -> None:
        self.value = value
        self.is_complete = is_complete
        self.height = 0
        self.values = 1
        """The number of values in it, including itself."""
        self.characters = characters
        """The total length of the texts in it."""


class _Frame:
    """A list or a map whose end has not been read."""

    __slots__ = ("anchored", "before", "height", "is_merge", "key", "lines", "value")

    def __init__(
        self, value: list[JSON] | dict[str, JSON], before: tuple[int, int], anchored: _Anchored | None
    ) -> None:
        self.value = value
        self.before = before
        """How many values and characters were read before this list or map."""
        self.anchored = anchored
        self.height = 0
        self.key: str | None = None
        """The key whose value comes next, or None if a key comes next."""
        self.is_merge = False
        """Whether the next value is merged into this map."""
        self.lines: dict[str, int] = {}
        """The lines of the map's keys, if duplicate keys are refused."""


class _Composer:
    """Builds one document from its events."""

    def __init__(self, events: Iterator[Any], *, strict: bool, most_values: int) -> None:
        self._events = events
        self._strict = strict
        self._most_values = most_values
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        """How many values were read; the values of an alias count each time it is used."""
        self._aliased = 0
        """How many of the values in ``_values`` come from aliases."""
        self._characters = 0
        """The length of all texts; the texts of an alias count each time it is used."""
        self._aliased_characters = 0
        self._found: JSON = None

    def document(self) -> JSON:
        """Read the document to its end and return its value."""
        for event in self._events:
            kind = type(event)
            if kind is yaml.DocumentEndEvent:
                break
            try:
                if kind is yaml.ScalarEvent:
                    self._scalar(event)
                elif kind is yaml.AliasEvent:
                    self._alias(event)
                elif kind is yaml.MappingStartEvent:
                    self._begin({}, event.anchor)
                elif kind is yaml.SequenceStartEvent:
                    self._begin([], event.anchor)
                else:
                    self._end(event)
            except YAMLError as error:
                error.line, error.path = event.start_mark.line + 1, self._path()
                raise
        return self._found

    def _path(self) -> PathSteps:
        steps = (len(frame.value) if isinstance(frame.value, list) else frame.key for frame in self._frames)
        return tuple(step for step in steps if step is not None)

    def _scalar(self, event: Any) -> None:
        self._count(1)
        self._characters += len(event.value)
        if event.value == "<<" and self._is_merge(event):
            self._frames[-1].key, self._frames[-1].is_merge = "<<", True
            return
        value = _resolved(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, len(event.value), is_complete=True)
        self._put(value, 0, event)

    def _is_merge(self, event: Any) -> bool:
        top = self._frames[-1] if self._frames else None
        is_key = top is not None and isinstance(top.value, dict) and top.key is None
        return is_key and (event.implicit[0] or event.tag == f"{_TAG}merge")

    def _alias(self, event: Any) -> None:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise YAMLError(f"unknown anchor {_shown(event.anchor)} referenced")
        if not anchor.is_complete:
            raise YAMLError(f"anchor {_shown(event.anchor)} value contains itself")
        self._aliased += anchor.values
        self._count(1 + anchor.values)
        self._characters += anchor.characters
        self._aliased_characters += anchor.characters
        if self._aliased_characters > _MOST_ALIASED_TEXT:
            raise YAMLError(f"aliases add more than {_MOST_ALIASED_TEXT >> 20} MiB of text")
        self._put(_copied(anchor.value), anchor.height, event)

    def _begin(self, value: list[JSON] | dict[str, JSON], anchor: str | None) -> None:
        anchored = None
        if anchor is not None:
            anchored = self._anchors[anchor] = _Anchored()
        self._frames.append(_Frame(value, (self._values, self._characters), anchored))
        self._count(1)
        if len(self._frames) > MOST_LEVELS:
            raise YAMLError(_TOO_DEEP)

    def _end(self, event: Any) -> None:
        frame = self._frames.pop()
        if (anchored := frame.anchored) is not None:
            anchored.value, anchored.height, anchored.is_complete = frame.value, frame.height + 1, True
            values, characters = frame.before
            anchored.values, anchored.characters = self._values - values, self._characters - characters
        self._put(frame.value, frame.height + 1, event)

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > self._most_values:
            raise YAMLError(f"more than {self._most_values:,} values")
        if (
            self._aliased > _FREE_ALIASED
            and self._values > _FREE_VALUES
            and self._aliased / self._values > _allowed_ratio(self._values)
        ):
            raise YAMLError("document contains excessive aliasing")

    def _put(self, value: Any, height: int, event: Any) -> None:
        """Put a complete value into the innermost list or map; in a map, the value may be the next key."""
        if not self._frames:
            self._found = _as_json(value)
            return
        if len(self._frames) + height > MOST_LEVELS:
            raise YAMLError(_TOO_DEEP)
        frame = self._frames[-1]
        if height > frame.height:
            frame.height = height
        if isinstance(frame.value, list):
            frame.value.append(_as_json(value))
        elif frame.key is None:
            frame.key = key = _key(value)
            if self._strict:
                if key in frame.lines:
                    raise YAMLError(f"key is given twice, first at line {frame.lines[key]}")
                frame.lines[key] = event.start_mark.line + 1
        else:
            if frame.is_merge:
                self._merge(frame.value, value, is_alias=type(event) is yaml.AliasEvent)
            else:
                frame.value[frame.key] = _as_json(value)
            frame.key, frame.is_merge = None, False

    def _merge(self, into: dict[str, JSON], value: Any, *, is_alias: bool) -> None:
        """Merge ``value``, a map or a list of maps, into the entries of ``into`` that were read so far.

        Merged entries replace existing ones. In a list, earlier maps take precedence.

        The values in ``value`` were counted when they were read, so the limits on values also bound merges.
        """
        sources = value[::-1] if isinstance(value, list) and not is_alias else [value]
        for source in sources:
            if not isinstance(source, dict):
                raise YAMLError("map merge requires map or sequence of maps as the value")
            into.update(source)


# Up to these numbers, Go does not look at the share of values that aliases add (go-yaml: decode.go).
_FREE_ALIASED: Final = 100
_FREE_VALUES: Final = 1_000
_SMALL: Final = 400_000
_LARGE: Final = 4_000_000


def _allowed_ratio(values: int) -> float:
    """Return the share of values that aliases may add: 99 % in small documents, 10 % in large ones."""
    beyond = min(max(values - _SMALL, 0), _LARGE - _SMALL) / (_LARGE - _SMALL)
    return 0.99 - 0.89 * beyond


def _copied(value: Any) -> Any:
    """Return a copy, so that two uses of an alias share nothing."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _resolved(event: Any) -> Any:
    """Return the value of a scalar.

    A float such as ``1.0`` does not become an integer here, because floats and integers are written differently as
    keys.
    """
    text: str = event.value
    if event.tag is not None:
        return _tagged(event.tag, text)
    if not event.implicit[0] or (text and text[0] not in _FIRST_OF_NO_STRING):
        return text
    return _plain(text)


def _plain(text: str) -> bool | float | str | None:
    """Return the value of an unquoted text: a word, a number, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in _FIRST_OF_NUMBER:
        return text
    plain = text.replace("_", "")
    if text[0] == "." and "_" in text and not _UNDERSCORED.fullmatch(text):
        return text
    if text[0] != "." and (match := _INTEGER.fullmatch(plain)):
        sign, *texts = match.groups()
        digits, base = next((text, base) for text, base in zip(texts, _BASES, strict=True) if text)
        if len(digits.lstrip("0")) <= _MOST_DIGITS:
            integer = int(sign + digits, base)
            if -(2**63) <= integer < (2**63 if sign else 2**64):
                return integer
    if _FLOAT.fullmatch(plain) and not math.isinf(number := float(plain)):
        return number
    return text


def _tagged(tag: str, text: str) -> Any:
    """Return the value of a text with a tag. Go ignores tags that it does not know."""
    kind = tag.removeprefix(_TAG) if tag.startswith(_TAG) else ""
    if kind == "binary":
        with suppress(ValueError):
            decoded = base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
            return _HALF.sub("\ufffd", decoded.decode("utf-8", "surrogateescape"))
        raise YAMLError("!!binary value contains invalid base64 data")
    value: Any = _plain(text)
    fits = {
        "bool": isinstance(value, bool),
        "int": type(value) is int,
        "float": isinstance(value, float) or (type(value) is int and value < 2**63),
        "null": value is None,
        "timestamp": _is_timestamp(text),
    }.get(kind)
    if fits is None:
        return text
    if not fits:
        raise YAMLError(f"{_shown(text)} is not of type {kind}")
    if kind == "timestamp":
        return text
    return float(value) if kind == "float" and value is not None else value


def _is_timestamp(text: str) -> bool:
    for pattern in _TIMESTAMPS:
        if match := pattern.fullmatch(text):
            year, *rest = map(int, match.groups())
            with suppress(ValueError):  # Go has a year 0, which is a leap year as 4 is
                return bool(datetime(year or 4, *rest))  # type: ignore[arg-type] # noqa: DTZ001
    return False


def _as_json(value: Any) -> JSON:
    """Return ``value`` as it would be after Go wrote it as JSON and a client decoded it: ``1.0`` becomes 1."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise YAMLError(f"{value} is not a number in JSON")
        # As in Go: the fewest digits that identify the float.
        return int(Decimal(repr(value))) if value.is_integer() and abs(value) < _JSON_INTEGERS else value
    return value


def _key(value: Any) -> str:
    """Return the text of a key (``sigs.k8s.io/yaml``: ``convertToJSONableObject``)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float32(value)
    if isinstance(value, int) and value < 2**63:
        return str(value)
    kind = {dict: "a map", list: "a list", int: "a number of more than 63 bits"}.get(type(value), "null")
    raise YAMLError(f"{kind} cannot be a key")


def _float32(value: float) -> str:
    """Return a number as Go's ``FormatFloat(value, 'g', -1, 32)``: the fewest digits that a float32 needs."""
    (single,) = struct.unpack("f", struct.pack("f", value))  # infinite if ``value`` is too large
    if not math.isfinite(single):
        return ".nan" if math.isnan(single) else "-.inf" if single < 0 else ".inf"
    for digits in range(9):
        text = f"{single:.{digits}e}"
        if struct.pack("f", float(text)) == struct.pack("f", single):
            break
    mantissa, _, exponent = text.partition("e")
    if -5 < int(exponent) < 6:
        return format(Decimal(text), "f")
    return f"{mantissa}e{exponent}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:56]} ...")


def _json_values(text: str | bytes, *, strict: bool) -> list[JSON]:
    """Return the values of JSON text. A half of a surrogate pair becomes U+FFFD, as in Go.

    Raises:
        json.JSONDecodeError: the text is not JSON.
        YAMLError: JSON cannot represent a number, a key is given twice, or the text is nested too deeply.
    """
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise YAMLError("not UTF-8 text") from error
    decoder = json.JSONDecoder(
        object_pairs_hook=_without_twins if strict else dict, parse_constant=_json_number, parse_int=_json_number,
        parse_float=_json_number,
    )  # fmt: skip
    values: list[JSON] = []
    at = len(decoded) - len(decoded.lstrip())
    try:
        while at < len(decoded):
            value, at = decoder.raw_decode(decoded, at)
            values.append(value)
            while decoded[at : at + 1].isspace():
                at += 1
    except RecursionError as error:
        raise YAMLError(_TOO_DEEP) from error
    except _NumberError as error:
        error.line = error.line_in(decoded)
        raise
    except YAMLError:
        with _located(decoded):  # read the text again as YAML, because YAML's errors have a line
            for _ in _documents(decoded, strict=strict, most_values=MOST_VALUES_OF_FILES):
                pass
        raise
    _check_levels(values)
    return _whole(values) if _HALF_ESCAPE.search(decoded) else values


def _without_twins(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise YAMLError(f"key {key} is given twice")
            seen.add(key)
    return mapping


def _json_number(text: str) -> JSON:
    if len(text) <= _MOST_DIGITS and text.lstrip("-").isdigit():
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise _NumberError(text)
    return _as_json(number)


class _NumberError(YAMLError):
    """JSON text has a number that cannot be represented; the decoder does not report the position of the number."""

    def __init__(self, token: str) -> None:
        super().__init__(f"{_shown(token)} is not a number in JSON")
        self._token = token

    def line_in(self, text: str) -> int | None:
        """Return the line where the number first occurs outside strings."""
        matches = (match for match in _JSON_TOKEN.finditer(text) if match[0] == self._token)
        return next((text.count("\n", 0, match.start()) + 1 for match in matches), None)


def _check_levels(values: list[JSON]) -> None:
    level = values
    for _ in range(MOST_LEVELS + 1):
        level = [
            below
            for value in level
            if isinstance(value, dict | list)
            for below in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise YAMLError(_TOO_DEEP)


def _whole(value: Any) -> Any:
    """Return a value of JSON without halves of surrogate pairs."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the C dumper is not typed
    """Writes no aliases, and quotes each string that some reader would read as another type."""

    def ignore_aliases(self, data: object) -> bool:
        """Write no aliases."""
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """Represent a string: several lines as a block; a single line is quoted if Go would not read it as a string."""
        style = "|" if "\n" in data else None if isinstance(_plain(data), str) else '"'
        node: yaml.ScalarNode = self.represent_scalar(f"{_TAG}str", data, style=style)
        return node


_Dumper.add_representer(str, _Dumper.text)


def dump(data: object, *, sort_keys: bool = False, ascii_only: bool = False) -> str:
    """Return JSON as human-readable YAML that has the same meaning in YAML 1.1 and 1.2.

    Strings of several lines are written as blocks. Aliases are not used.

    Raises:
        YAMLError: ``data`` is nested too deeply to be written.
    """
    try:
        return str(
            yaml.dump(data, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=not ascii_only, width=110)
        )
    except RecursionError as error:
        raise YAMLError(_TOO_DEEP) from error
