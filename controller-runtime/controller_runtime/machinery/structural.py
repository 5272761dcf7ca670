# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Validates a value against a structural schema, as the API server does for custom resources, with its messages.

CEL rules and formats are not checked.
"""

from __future__ import annotations

import decimal
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from .base import JSON
from .gojson import go_json

Schema = Mapping[str, JSON]
Path = tuple[str | int, ...]

_MAX_INT64: Final = (1 << 63) - 1
_MIN_INT64: Final = -_MAX_INT64 - 1
_MAX_EXACT: Final = (1 << 53) - 1
"""The server accepts floating-point numbers up to this one as integers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid value and its path. If a problem is ``grave``, the server does not evaluate the CEL rules.

    The server names no path for a value that matches a wrong number of alternatives; ``at`` is its path.
    """

    path: Path | None
    text: str
    grave: bool = False
    at: Path = ()

    def __str__(self) -> str:
        return f"{render(self.path) if self.path else '<nil>'}: {self.text}"


def render(path: Path) -> str:
    """Return a path in the form that the server uses."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def kind_of(value: object) -> str:
    """Return the JSON type of a value. As on the server, an integer that does not fit into 64 bits is a number."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer" if _MIN_INT64 <= value <= _MAX_INT64 else "number"
        case float():
            return "integer" if value.is_integer() and abs(value) <= _MAX_EXACT else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def problems(schema: Schema, value: JSON, path: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each value that the schema does not allow."""
    if value is None and schema.get("nullable"):
        return
    kind, where = kind_of(value), render(path)
    either = bool(schema.get("x-kubernetes-int-or-string"))
    wanted = ["integer", "string"] if either else [schema["type"]] if schema.get("type") else []
    if wanted and kind not in wanted and not (kind == "integer" and wanted == ["number"]):
        shown = f'Invalid value: "{kind}": {where} in body must be of type {{}}: "{kind}"'
        yield Problem(path, shown.format(",".join(wanted)), grave=True)
        if either and schema.get("anyOf"):
            yield _unmatched(path, "must validate at least one schema (anyOf)")
            yield Problem(path, shown.format("integer"), grave=True)
        return
    yield from _combined(schema, value, path)
    if (options := schema.get("enum")) is not None and value not in options:
        listed = ", ".join(go_json(option) for option in options)
        yield Problem(path, f"Unsupported value: {go_json(value)}: supported values: {listed}", grave=True)
    match value:
        case str():
            yield from _text(schema, value, path)
        case bool():
            pass
        case int() | float():
            yield from _number(schema, value, path)
        case list():
            yield from _array(schema, value, path)
        case dict():
            yield from _object(schema, value, path)


def _combined(schema: Schema, value: JSON, path: Path) -> Iterator[Problem]:
    """Yield the problems with the alternatives and combinations of a schema.

    If no alternative matches, the problems of the first one follow.
    """
    if alternatives := schema.get("anyOf"):
        results = [[*problems(alternative, value, path)] for alternative in alternatives]
        if all(results):
            yield _unmatched(path, "must validate at least one schema (anyOf)")
            yield from results[0]
    if alternatives := schema.get("oneOf"):
        results = [[*problems(alternative, value, path)] for alternative in alternatives]
        text = "must validate one and only one schema (oneOf). Found"
        if all(results):
            yield _unmatched(path, f"{text} none valid")
            yield from results[0]
        elif (number := results.count([])) > 1:
            yield _unmatched(path, f"{text} {number} valid alternatives")
    if alternatives := schema.get("allOf"):
        results = [[*problems(alternative, value, path)] for alternative in alternatives]
        yield from itertools.chain(*results)
        if any(results):
            none = ". None validated" if all(results) else ""
            yield _unmatched(path, f"must validate all the schemas (allOf){none}")
    if (refused := schema.get("not")) and not any(True for _ in problems(refused, value, path)):
        yield _unmatched(path, "must not validate the schema (not)")


def _unmatched(path: Path, text: str) -> Problem:
    return Problem(None, f'Invalid value: "": "{render(path)}" {text}', at=path)


def _text(schema: Schema, value: str, path: Path) -> Iterator[Problem]:
    shown = f"Invalid value: {go_json(value)}: {render(path)} in body should"
    if len(value) > (most := schema.get("maxLength", len(value))):
        yield Problem(path, f"Too long: may not be more than {most} bytes", grave=True)
    elif len(value) < (least := schema.get("minLength", 0)):
        yield Problem(path, f"{shown} be at least {least} chars long")
    elif (pattern := schema.get("pattern")) and not re.search(pattern, value):
        yield Problem(path, f"{shown} match '{pattern}'")


def _number(schema: Schema, value: float, path: Path) -> Iterator[Problem]:
    shown = f"Invalid value: {go_json(value)}: {render(path)} in body should be"
    if (least := schema.get("minimum")) is not None:
        if schema.get("exclusiveMinimum"):
            if value <= least:
                yield Problem(path, f"{shown} greater than {least}")
        elif value < least:
            yield Problem(path, f"{shown} greater than or equal to {least}")
    if (most := schema.get("maximum")) is not None:
        if schema.get("exclusiveMaximum"):
            if value >= most:
                yield Problem(path, f"{shown} less than {most}")
        elif value > most:
            yield Problem(path, f"{shown} less than or equal to {most}")
    if (unit := schema.get("multipleOf")) and not float(
        decimal.Decimal(str(value)) / decimal.Decimal(str(unit))
    ).is_integer():
        yield Problem(path, f"{shown} a multiple of {unit}")


def _sized(schema: Schema, items: str, count: int, path: Path) -> Iterator[Problem]:
    """Yield a problem if a count is too small or too large. ``items`` is ``Items`` or ``Properties``."""
    if count < (least := schema.get(f"min{items}", 0)):
        text = f"Invalid value: {count}: {render(path)} in body should have at least {least} {items.lower()}"
        yield Problem(path, text)
    if count > (most := schema.get(f"max{items}", count)):
        yield Problem(
            path, f"Too many: {count}: must have at most {most} item{'s' * (most != 1)}", grave=True
        )


def _array(schema: Schema, value: list[JSON], path: Path) -> Iterator[Problem]:
    yield from _sized(schema, "Items", len(value), path)
    items = schema.get("items") or {}
    for index, item in enumerate(value):
        yield from problems(items, item, (*path, index))
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    identities: list[JSON] = []
    match schema.get("x-kubernetes-list-type"):
        case "set":
            identities = value
        case "map":
            strays = [index for index, item in enumerate(value) if not isinstance(item, dict | None)]
            for index in strays:
                text = (
                    f"Invalid value: {go_json(value[index])}: must be an object for an array of list-type map"
                )
                yield Problem((*path, index), text)
            if not strays:  # an item that is null has none of the keys
                objects = [item or {} for item in value]
                identities = [{key: item[key] for key in sorted(keys) if key in item} for item in objects]
    seen: dict[str, int] = {}
    for index, identity in enumerate(identities):
        text = go_json(identity)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            yield Problem((*path, index), f"Duplicate value: {text}")


def _object(schema: Schema, value: dict[str, JSON], path: Path) -> Iterator[Problem]:
    yield from _sized(schema, "Properties", len(value), path)
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from problems(properties[key], item, (*path, key))
        elif isinstance(additional, dict):
            yield from problems(additional, item, (*path, key))
    for name in schema.get("required") or ():
        if name not in value:
            yield Problem((*path, name), "Required value", grave=True)
