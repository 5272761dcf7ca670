# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JSON patches: create and apply merge patches (RFC 7386), and apply JSON patches (RFC 6902).

The functions do not change their arguments; their results may share parts with them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from .base import JSON

Document = dict[str, JSON]


class PatchError(ValueError):
    """A patch is malformed, or does not fit the document."""


def merge_patch_diff(old: Document, new: Document) -> Document:
    """Return the smallest merge patch from ``old`` to ``new``; it is empty if they are equal.

    A removed key becomes null; a list that differs is included as a whole.
    """
    patch: Document = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        if key not in old:
            patch[key] = value
            continue
        before = old[key]
        if isinstance(before, dict) and isinstance(value, dict):
            if below := merge_patch_diff(before, value):
                patch[key] = below
        elif not same(before, value):
            patch[key] = value
    return patch


def apply_merge_patch(target: JSON, patch: JSON) -> JSON:
    """Return ``target`` with a merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def same(a: JSON, b: JSON) -> bool:
    """Return True if two JSON values are equal; unlike in Python, ``true`` does not equal ``1``."""
    return a is b or (a == b and _same_types(a, b))


def _same_types(a: JSON, b: JSON) -> bool:
    """Return True if equal values have booleans in the same places."""
    if isinstance(a, dict):
        return all(value is b[key] or _same_types(value, b[key]) for key, value in a.items())
    if isinstance(a, list):
        return all(map(_same_types, a, b))
    return isinstance(a, bool) == isinstance(b, bool)


def pointer(*keys: str) -> str:
    """Return the JSON pointer (RFC 6901) that leads through these keys, outermost first."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def apply_json_patch(target: JSON, patch: Sequence[Document]) -> JSON:
    """Return ``target`` with all operations of a JSON patch applied.

    Raises:
        PatchError: an operation is malformed, its path does not exist, or its test fails.
    """
    document = copy.deepcopy(target)
    for number, operation in enumerate(patch):
        try:
            document = _operate(document, operation)
        except PatchError as error:
            raise PatchError(f"operation {number}: {error}") from error
    return document


def _operate(document: JSON, operation: Document) -> JSON:
    path = _pointer(operation, "path")
    match operation.get("op"):
        case "add":
            return _add(document, path, _value(operation))
        case "replace":
            _get(document, path)
            return _add(_remove(document, path)[0], path, _value(operation))
        case "remove":
            return _remove(document, path)[0]
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and path != source:
                raise PatchError("a value cannot be moved into itself")
            document, moved = _remove(document, source)
            return _add(document, path, moved)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation, "from"))))
        case "test":
            if not same(_tested(document, path), _value(operation)):
                raise PatchError(f"test failed at {operation['path']!r}")
            return document
        case other:
            raise PatchError(f"unknown op {other!r}")


def _tested(document: JSON, path: list[str]) -> JSON:
    """Return the value at ``path``; a missing key is treated as null, as in the API server."""
    parent = _get(document, path[:-1])
    return parent.get(path[-1]) if path and isinstance(parent, dict) else _get(document, path)


def _value(operation: Document) -> JSON:
    if "value" not in operation:
        raise PatchError("value is missing")
    return copy.deepcopy(operation["value"])


def _pointer(operation: Document, key: str) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{key} is not a JSON pointer: {text!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _index(items: list[JSON], step: str, *, end: int) -> int:
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0") or int(step) >= end:
        raise PatchError(f"no such index: {step!r}")
    return int(step)


def _get(document: JSON, path: list[str]) -> JSON:
    for step in path:
        if isinstance(document, dict):
            if step not in document:
                raise PatchError(f"no such key: {step!r}")
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step, end=len(document))]
        else:
            raise PatchError(f"nothing below a scalar: {step!r}")
    return document


def _add(document: JSON, path: list[str], value: JSON) -> JSON:
    if not path:
        return value
    parent = _get(document, path[:-1])
    step = path[-1]
    if isinstance(parent, dict):
        parent[step] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if step == "-" else _index(parent, step, end=len(parent) + 1), value)
    else:
        raise PatchError(f"nothing below a scalar: {step!r}")
    return document


def _remove(document: JSON, path: list[str]) -> tuple[JSON, JSON]:
    if not path:
        return None, document
    removed = _get(document, path)
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1], end=len(parent))]
    else:
        del parent[path[-1]]
    return document, removed
