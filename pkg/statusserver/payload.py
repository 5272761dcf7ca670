# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Decodes the body of an update as Go decodes JSON into a struct. The result is the status to apply, and the answer.

Unknown fields and text after the first value are ignored. Names of fields may be in upper or lower case. If a field is
repeated, the last one counts. A number must be a whole number of 32 bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from controller_runtime.machinery import JSON
from controller_runtime.machinery.meta import format_time, parse_time

_INT32: Final = 1 << 31
_SPACE: Final = " \t\r\n"
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


class PayloadError(ValueError):
    """The body is not an update."""


@dataclass(frozen=True, slots=True)
class Update:
    """A decoded update."""

    trainer_status: dict[str, JSON] | None
    """The status to apply, or None if the update contains no status."""
    answer: dict[str, JSON]
    """The decoded update, which is sent back to the client."""


def decode(body: bytes) -> Update:
    """Return the update in ``body``.

    Raises:
        PayloadError: the body does not begin with a JSON object, or a field has the wrong type.
    """
    text = body.decode("utf-8", "replace").lstrip(_SPACE)
    try:
        value, _ = _decoder.raw_decode(text)
        status = _read(value, {"trainerStatus": _trainer_status}).get("trainerStatus")
    except (ValueError, RecursionError) as error:
        raise PayloadError(str(error)) from error
    if status is None:
        return Update(None, {})
    answer = dict(status)
    if "metrics" in status:
        answer["metrics"] = [
            {name: text for name, text in metric.items() if text} for metric in status["metrics"]
        ]
    return Update(status, {"trainerStatus": answer})


def _trainer_status(value: JSON) -> dict[str, JSON]:
    fields: dict[str, Callable[[JSON], JSON]] = {
        "progressPercentage": _int32,
        "estimatedRemainingSeconds": _int32,
        "metrics": _metrics,
        "lastUpdatedTime": _time,
    }
    status = _read(value, fields)
    status.setdefault("lastUpdatedTime", None)  # the CRD requires it: the refusal of a null names the field
    return status


def _metrics(value: JSON) -> list[dict[str, JSON]] | None:
    # A JSON object is decoded to a list, too: the list of its fields.
    if not isinstance(value, list) or isinstance(value, _Object):
        raise PayloadError("metrics must be a list")
    empty = {"name": "", "value": ""}
    return [empty | _read(each, {"name": _text, "value": _text}) for each in value] or None


def _read(value: JSON, fields: dict[str, Callable[[JSON], JSON]]) -> dict[str, Any]:
    """Return the known fields of an object.

    A field that is null is ignored. If ``value`` is null, it counts as an object without fields.
    """
    if value is None:
        return {}
    if not isinstance(value, _Object):
        raise PayloadError("an object is expected")
    names = {name.lower(): name for name in fields}
    found: dict[str, Any] = {}
    for key, field in value:
        name = names.get(key.lower())
        if name is None or field is None:
            continue
        decoded = fields[name](field)
        if decoded is None:
            found.pop(name, None)
        else:
            found[name] = decoded
    return found


def _int32(value: JSON) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT32 <= value < _INT32:
        raise PayloadError("a whole number of 32 bits is expected")
    return value


def _text(value: JSON) -> str:
    if not isinstance(value, str):
        raise PayloadError("a string is expected")
    # Half of a surrogate pair cannot be encoded again.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _time(value: JSON) -> str:
    text = _text(value)
    if not _RFC3339.fullmatch(text):
        raise PayloadError("a time as in RFC 3339 is expected")
    try:
        return format_time(parse_time(text))
    except ValueError as error:
        raise PayloadError("a time as in RFC 3339 is expected") from error


class _Object(list[tuple[str, Any]]):
    """A JSON object as the list of its fields, so that repeated fields are kept."""


def _no_constant(name: str) -> None:
    raise PayloadError(f"{name} is not a number in JSON")


_decoder: Final = json.JSONDecoder(object_pairs_hook=_Object, parse_constant=_no_constant)
