# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""structlog processors that write lines like zap's: ``{"level":…,"ts":…,"logger":…,"msg":…,…}`` or the console form."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from controller_runtime.machinery import GVK, JSON, GroupKind, NamespacedName, Object, raised
from controller_runtime.machinery.printable import printable_json
from controller_runtime.machinery.tokenbucket import TokenBucket

from .options import DEBUG, ERROR, INFO, PANIC, TRACE, Encoder, Options, TimeEncoding

EventDict = MutableMapping[str, object]
Renderer = Callable[[object, str, EventDict], str]

LOGGER_NAME: Final = "logger_name"
"""The bound key of a logger's name. In a line, its key is ``logger``."""

CUT: Final = 256
"""If a message quotes a text that may come from anywhere, it quotes at most this many characters."""
LONGEST: Final = 16 * 1024
"""Maximum number of characters of a value in a line."""
_WIDE: Final = 1 << 1024
"""A greater number is not written: no JSON reader needs it, and Python refuses to write one of 4,301 digits."""
_DEEPEST: Final = 32
"""Maximum number of nested levels of a value in a line."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=raised.text)

VERBOSITY: Final[Mapping[str, int]] = {
    "critical": PANIC,
    "error": ERROR,
    "exception": ERROR,
    "warning": INFO,
    "warn": INFO,
    "info": INFO,
    "debug": DEBUG,
    "trace": TRACE,
}
_NAMES: Final[Mapping[str, str]] = {
    "critical": "panic",
    "exception": "error",
    "warning": "warn",
    "trace": f"Level(-{TRACE})",
}


def renderer(options: Options, now_ns: Callable[[], int], caller: Callable[[], str] = lambda: "") -> Renderer:
    """Return the last processor, which turns an event into one line. In the console form, stacks follow on separate
    lines.

    ``caller`` returns the place in the code that writes the line, or an empty text.
    """
    write = _json_line if options.effective_encoder is Encoder.JSON else _console_line
    stacks_from, times = options.effective_stacktrace_level, options.time_encoding

    def render(_: object, method: str, event: EventDict) -> str:
        error = event.pop("exc_info", None)
        if isinstance(error, BaseException):
            event["error"] = error
        else:
            error = event.get("error")
        message, name = event.pop("event", ""), event.pop(LOGGER_NAME, None)
        line = _Line(
            _NAMES.get(method, method),
            _time(now_ns(), times),
            str(name) if name else "",
            caller(),
            cut(raised.text(message), LONGEST),
            {
                key: value
                if (type(value) is str and len(value) <= LONGEST)
                or (type(value) is int and abs(value) < _WIDE)
                else _value(value)
                for key, value in event.items()
            },
            stack_of(error) if error is not None and VERBOSITY.get(method, INFO) <= stacks_from else "",
        )
        try:
            return write(line)
        except UnicodeEncodeError:  # half of a surrogate pair, as in a header that is not UTF-8
            return write(line.encodable())

    return render


class _Line(NamedTuple):
    """One line of the log; empty texts are left out."""

    level: str
    ts: float | str
    name: str
    caller: str
    message: str
    fields: dict[str, JSON]
    stack: str

    def encodable(self) -> _Line:
        fields = {key: _encodable(value) for key, value in self.fields.items()}
        message, stack = str(_encodable(self.message)), str(_encodable(self.stack))
        return self._replace(message=message, fields=fields, stack=stack)


def _json_line(line: _Line) -> str:
    shown: dict[str, JSON] = {"level": line.level, "ts": line.ts}
    if line.name:
        shown["logger"] = line.name
    if line.caller:
        shown["caller"] = line.caller
    shown["msg"] = line.message
    shown.update(line.fields)
    if line.stack:
        shown["stacktrace"] = line.stack
    return _json(shown)


def _console_line(line: _Line) -> str:
    level = line.level if line.level.startswith("Level") else line.level.upper()
    parts = [str(line.ts), level, *filter(None, (_escaped(line.name), line.caller))]
    parts.append(_escaped(line.message))
    if line.fields:
        parts.append(msgspec.json.format(_json(line.fields), indent=0))
    return "\t".join(parts) + (f"\n{_console_stack(line.stack)}" if line.stack else "")


def _json(value: object) -> str:
    return printable_json(_ENCODER.encode(value).decode())


def _escaped(text: str) -> str:
    return printable_json(text).replace("\n", "\\n")


def _console_stack(stack: str) -> str:
    """Return the stack without control characters. Lines after the first are indented: none looks like a log line."""
    lines = stack.split("\n")
    return "\n".join(
        ("\t" if number and not line.startswith(" ") else "") + _escaped(line)
        for number, line in enumerate(lines)
    )


def _encodable(value: JSON) -> JSON:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _time(ns: int, encoding: TimeEncoding) -> float | str:
    if encoding is TimeEncoding.RFC3339:  # the default
        return f"{_second(ns // 1_000_000_000)}Z"
    match encoding:
        case TimeEncoding.EPOCH:
            return ns / 1e9
        case TimeEncoding.MILLIS:
            return ns / 1e6
        case TimeEncoding.NANOS:
            return ns
    seconds, rest = divmod(ns, 1_000_000_000)
    text = _second(seconds)
    if encoding is TimeEncoding.ISO8601:
        return f"{text}.{rest // 1_000_000:03d}Z"
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{text}{fraction}Z"


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    """Return a time in whole seconds as text. It is cached, because many lines have the same second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def cut(text: str, longest: int = CUT) -> str:
    """Return ``text`` or, if it is longer than ``longest``, its beginning and its length."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def describe(error: BaseException) -> str:
    """Return an error's text or, if that is empty, the name of its type. For a group, return the texts of all members.

    Equal texts are returned only once.
    """
    return "\n".join(dict.fromkeys(raised.text(leaf) or raised.name(leaf) for leaf in raised.leaves(error)))


def stack_of(error: object) -> str:
    """Return the traceback of an error, or an empty text if the error needs none."""
    if not isinstance(error, BaseException) or raised.is_expected(error):
        return ""
    return cut(raised.stack(error), 2 * LONGEST)


def _value(value: object) -> JSON:
    """Return a value as JSON. If the value's own code fails, or the value contains itself, return a text that names its
    type.
    """
    try:
        return _plain(value)
    except (Exception, SystemExit) as error:
        return f"<{raised.name(value)}: it cannot be written, {raised.name(error)} was raised>"


def _plain(value: object, depth: int = 0) -> JSON:
    """Return a value as JSON. For a Kubernetes object, return a reference: its kind, namespace and name."""
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(value, str):
        return cut(value, LONGEST)
    if type(value) is NamespacedName:  # first, because most lines have one
        return _reference(value)
    if type(value) is dict:  # which is a Mapping, as the comparison below finds out more slowly
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, int) and abs(value) >= _WIDE:
        return f"<a number of {value.bit_length()} bits>"
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, BaseException):
        return cut(describe(value), LONGEST)
    if isinstance(value, Object):
        gvk = getattr(type(value), "gvk", None)
        kind = {"apiVersion": gvk.api_version, "kind": gvk.kind} if isinstance(gvk, GVK) else {}
        return kind | _reference(value.key)
    if isinstance(value, NamespacedName):
        return _reference(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, GVK | GroupKind | Enum | PurePath | type):
        return str(value.value if isinstance(value, Enum) else getattr(value, "__qualname__", value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    return str(value)


def _reference(key: NamespacedName) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name} if key.namespace else {"name": key.name}


class LineLimiter:
    """Limits how many log lines clients can cause. It is a token bucket that counts the dropped lines."""

    def __init__(
        self, *, burst: int = 20, per_second: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bucket = TokenBucket(per_second, burst, clock)
        self._held_back = 0

    def allow(self) -> dict[str, int] | None:
        """Return None if the line must be dropped. Otherwise return extra fields for the line: how many lines were
        dropped before.
        """
        if not self._bucket.try_take():
            self._held_back += 1
            return None
        held_back, self._held_back = self._held_back, 0
        return {"heldBack": held_back} if held_back else {}
