# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Custom resources as an API server stores them: without unknown fields, and with the defaults of their schema.

It does not validate.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.client.tables import Document

Schema = Mapping[str, Any]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_OF_EVERY_OBJECT: Final = ("apiVersion", "kind", "metadata")


def completer(schema: Schema) -> Callable[[Document], Document]:
    """Return the function that completes objects of a schema; objects without a schema stay as they are."""

    def complete(document: Document) -> Document:
        own = {name: value for name, value in document.items() if name in _OF_EVERY_OBJECT}
        properties = {k: v for k, v in (schema.get("properties") or {}).items() if k not in _OF_EVERY_OBJECT}
        rest = {name: value for name, value in document.items() if name not in _OF_EVERY_OBJECT}
        completed: Document = _object(rest, {**schema, "properties": properties})
        return own | completed

    return complete


def _value(value: JSON, schema: Schema) -> JSON:
    if isinstance(value, dict):
        return _object(value, schema)
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [_value(each, items) for each in value]
    return value


def _object(value: dict[str, JSON], schema: Schema) -> dict[str, JSON]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keeps = bool(schema.get(_PRESERVE)) or others is True
    completed: dict[str, JSON] = {}
    for name, held in value.items():
        below = properties.get(name)
        if below is not None:
            if held is not None or below.get("nullable"):
                completed[name] = _value(held, below)
        elif isinstance(others, Mapping):
            completed[name] = _value(held, others)
        elif keeps or (schema.get(_EMBEDDED) and name in _OF_EVERY_OBJECT):
            completed[name] = held
    for name, below in properties.items():
        if name not in completed and "default" in below:
            completed[name] = _value(copy.deepcopy(below["default"]), below)
    return completed
