# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Validates an object against the schema of its CRD. It needs no server, but gives the API server's messages.

The server works in this order: it finds unknown fields (strict decoding), sets defaults, checks the metadata
(:mod:`trainerctl.offline.objectmeta`), and checks the schema. If it has found no grave problem, it then evaluates the
CEL rules. Transition rules do not apply to a new object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from controller_runtime.machinery import JSON
from controller_runtime.machinery.gojson import go_json

from trainerctl.offline import objectmeta
from trainerctl.offline.problem import Path, Problem, kind_of, render

Schema = Mapping[str, JSON]
Evaluate = Callable[[str, JSON], bool | str]
"""Takes a rule and the value of ``self``. Returns True if the rule holds, False if it does not, or the reason why it
cannot be evaluated.
"""

# Decoding.


def unknown(schema: Schema, data: Mapping[str, JSON]) -> list[Path]:
    """Return the unknown fields of an object, in the server's order."""
    found = list(_unknown({**schema, "properties": {**schema["properties"], **_TYPE_META}}, data, ()))
    return sorted([*found, *objectmeta.unknown(data)], key=render)


_TYPE_META: Final[dict[str, JSON]] = {
    "apiVersion": {},
    "kind": {},
    "metadata": {"x-kubernetes-preserve-unknown-fields": True},
}


def _unknown(schema: Schema, value: JSON, path: Path) -> Iterator[Path]:
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _unknown(items, item, (*path, index))
    if not isinstance(value, dict):
        return
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    for key, each in value.items():
        if properties is not None and key in properties:
            yield from _unknown(properties[key], each, (*path, key))
        elif isinstance(additional, dict):
            yield from _unknown(additional, each, (*path, key))
        elif properties is not None and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield (*path, key)


# The schema.


def problems(schema: Schema, value: JSON, path: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each value that the schema does not allow."""
    kind, where = kind_of(value), render(path)
    either = bool(schema.get("x-kubernetes-int-or-string"))
    wanted = ["integer", "string"] if either else [schema["type"]] if schema.get("type") else []
    if wanted and kind not in wanted and not (kind == "integer" and wanted == ["number"]):
        shown = f'Invalid value: "{kind}": {where} in body must be of type {{}}: "{kind}"'
        yield Problem(path, shown.format(",".join(wanted)), grave=True)
        if either:
            yield Problem(None, f'Invalid value: "": "{where}" must validate at least one schema (anyOf)')
            yield Problem(path, shown.format("integer"), grave=True)
        return
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


def _text(schema: Schema, value: str, path: Path) -> Iterator[Problem]:
    shown = f"Invalid value: {go_json(value)}: {render(path)} in body should"
    if len(value) < (least := schema.get("minLength", 0)):
        yield Problem(path, f"{shown} be at least {least} chars long")
    if len(value) > (most := schema.get("maxLength", len(value))):
        yield Problem(path, f"Too long: may not be more than {most} bytes", grave=True)
    if (pattern := schema.get("pattern")) and not re.search(pattern, value):
        yield Problem(path, f"{shown} match '{pattern}'")


def _number(schema: Schema, value: float, path: Path) -> Iterator[Problem]:
    shown = f"Invalid value: {go_json(value)}: {render(path)} in body should be"
    if value < (least := schema.get("minimum", value)):
        yield Problem(path, f"{shown} greater than or equal to {least}")
    if value > (most := schema.get("maximum", value)):
        yield Problem(path, f"{shown} less than or equal to {most}")


def _sized(schema: Schema, items: str, count: int, path: Path) -> Iterator[Problem]:
    """Yield a problem if a count is too small or too large. ``items`` is ``Items`` or ``Properties``."""
    if count < (least := schema.get(f"min{items}", 0)):
        text = f"Invalid value: {count}: {render(path)} in body should have at least {least} {items.lower()}"
        yield Problem(path, text)
    if count > (most := schema.get(f"max{items}", count)):
        yield Problem(path, f"Too many: {count}: must have at most {most} items", grave=True)


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
            if not strays:
                identities = [
                    None if item is None else {key: item[key] for key in sorted(keys) if key in item}
                    for item in value
                ]
    seen: dict[str, int] = {}
    for index, identity in enumerate(identities):
        if identity is None:
            continue
        text = go_json(identity)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            yield Problem((*path, index), f"Duplicate value: {text}")


def _object(schema: Schema, value: dict[str, JSON], path: Path) -> Iterator[Problem]:
    yield from _sized(schema, "Properties", len(value), path)
    properties = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield Problem((*path, name), "Required value", grave=True)
    additional = schema.get("additionalProperties")
    for key, each in value.items():
        if key in properties:
            yield from problems(properties[key], each, (*path, key))
        elif isinstance(additional, dict):
            yield from problems(additional, each, (*path, key))


# Rules.


def rules(schema: Schema, value: JSON, evaluate: Evaluate, path: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each CEL rule that does not hold, or cannot be evaluated."""
    for rule in schema.get("x-kubernetes-validations") or ():
        if re.search(r"\boldSelf\b", rule["rule"]):
            continue
        verdict = evaluate(rule["rule"], value)
        message = rule.get("message") or f"failed rule: {rule['rule']}"
        if isinstance(verdict, str):
            yield Problem(path or None, f'Invalid value: "": {verdict} for rule: {message}')
        elif not verdict:
            shown = f" {go_json(value)}:" if not isinstance(value, dict | list) else ""
            yield Problem(path or None, f"Invalid value:{shown} {message}")
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from rules(items, item, evaluate, (*path, index))
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in value.items():
            below = properties.get(key, additional)
            if isinstance(below, dict) and each is not None:
                yield from rules(below, each, evaluate, (*path, key))
