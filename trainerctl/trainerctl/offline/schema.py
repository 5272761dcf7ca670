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
from controller_runtime.machinery.structural import Path, Problem, render
from controller_runtime.machinery.structural import problems as problems

from trainerctl.offline import objectmeta

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
