# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Merge patches (RFC 7386), JSON patches (RFC 6902) and strategic merge patches: made, compared and applied.

:func:`merge_from`, :func:`strategic_merge_from` and :func:`raw_patch` make the patches that a client sends.

The functions do not change their arguments, except :func:`strategic_merge_patch` and :func:`merge_list`. Results may
share parts with the arguments.

In a strategic merge patch, :class:`.openapi.MergeSchema` says which lists merge. Lists of scalars merge as sets. In
lists of objects, items with the same value of a key field are merged. Maps merge unless the schema says that they are
replaced. All other values and lists are replaced as a whole. After a merge, the items of the patch are in the order of
the patch; the other items keep their relative position as far as possible. A null deletes a field. Directives:
``$patch: replace|delete`` in a map or an item, ``$retainKeys``, ``$deleteFromPrimitiveList/<field>`` and
``$setElementOrder/<field>``.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec

from . import openapi
from .base import JSON
from .gojson import go_text
from .object import Object, check_object
from .openapi import MergeSchema
from .printable import LONGEST_VALUE, cut
from .raised import ExpectedError

Document = dict[str, JSON]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_DIRECTIVE: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_DELETE_PREFIX: Final = "$deleteFromPrimitiveList"
_ORDER_PREFIX: Final = "$setElementOrder"


class PatchError(ValueError):
    """A patch is malformed, or cannot be applied to the document. A long path makes the message long; it is cut."""

    def __init__(self, message: str) -> None:
        super().__init__(cut(message))


def merge_patch_diff(old: Document, new: Document) -> Document:
    """Return the smallest merge patch from ``old`` to ``new``; the patch is empty if the two are equal.

    A removed key becomes null; a list that differs is included as a whole.
    """
    patch: Document = dict.fromkeys(sorted(old.keys() - new.keys()))
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
    return a is b or (a == b and (type(a) is str or _same_types(a, b)))


def _same_types(a: Any, b: Any) -> bool:
    """Return True if two values that are equal in Python also have booleans in the same places."""
    if isinstance(a, dict):
        pairs = zip(a.values(), map(b.__getitem__, a), strict=True)
    elif isinstance(a, list):
        pairs = zip(a, b, strict=True)
    else:
        return isinstance(a, bool) == isinstance(b, bool)
    for left, right in pairs:
        if left is not right and type(left) is not str and not _same_types(left, right):
            return False
    return True


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
            # A missing key is treated as null, as in the API server.
            parent = _get(document, path[:-1])
            stored = parent.get(path[-1]) if path and isinstance(parent, dict) else _get(document, path)
            if not same(stored, _value(operation)):
                raise PatchError(f"test failed at {operation['path']!r}")
            return document
        case other:
            raise PatchError(f"unknown op {other!r}")


def _value(operation: Document) -> JSON:
    if "value" not in operation:
        raise PatchError("value is missing")
    return copy.deepcopy(operation["value"])


def _pointer(operation: Document, key: str) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{key} is not a JSON pointer: {text!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _index(step: str, *, end: int) -> int:
    valid = step.isascii() and step.isdigit() and (step == "0" or step[0] != "0")
    # Python does not convert a number of thousands of digits.
    if not valid or len(step) > len(str(end)) or int(step) >= end:
        raise PatchError(f"no such index: {step!r}")
    return int(step)


def _get(document: JSON, path: list[str]) -> JSON:
    for step in path:
        if isinstance(document, dict):
            if step not in document:
                raise PatchError(f"no such key: {step!r}")
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, end=len(document))]
        else:
            raise PatchError(f"a scalar has no key or index {step!r}")
    return document


def _add(document: JSON, path: list[str], value: JSON) -> JSON:
    if not path:
        return value
    parent = _get(document, path[:-1])
    step = path[-1]
    if isinstance(parent, dict):
        parent[step] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if step == "-" else _index(step, end=len(parent) + 1), value)
    else:
        raise PatchError(f"a scalar has no key or index {step!r}")
    return document


def _remove(document: JSON, path: list[str]) -> tuple[JSON, JSON]:
    if not path:
        return None, document
    removed = _get(document, path)
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(path[-1], end=len(parent))]
    else:
        del parent[path[-1]]
    return document, removed


class StrategicMergeError(ExpectedError, ValueError):
    """The patch cannot be applied to the object; the message is the API server's, except that long values are cut.

    ``path`` is the path to the problem as a list of field names, without the indexes of list items.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str] = []


def strategic_merge_patch(original: Document, patch: Document, schema: MergeSchema) -> Document:
    """Return ``original`` with ``patch`` merged into it.

    Both arguments are consumed: the result shares parts with them, so they must not be used afterwards.

    Raises:
        StrategicMergeError: an item of a merged list lacks its key, or a directive is not valid.
    """
    return _merge_map(original, patch, schema)


def _merge_map(original: Document, patch: Document, schema: MergeSchema) -> Document:
    if _DIRECTIVE in patch:
        return _replaced_or_deleted(patch)
    _retain_keys(original, patch)
    for name in [name for name in patch if name.startswith(_ORDER_PREFIX)]:
        _merge_ordered(original, patch, schema, name)
    for name, new in patch.items():
        if name.startswith(_DELETE_PREFIX):
            _delete_from(original, _target(name, "primitive"), new)
        elif new is None:
            original.pop(name, None)
        else:
            try:
                _merge_field(original, name, new, schema.field(name))
            except StrategicMergeError as error:
                error.path.insert(0, name)
                raise
    return original


def _merge_field(original: Document, name: str, new: JSON, schema: MergeSchema) -> None:
    old = original.get(name)
    if isinstance(old, dict) and isinstance(new, dict):
        original[name] = new if schema.is_replaced_in_patches else _merge_map(old, new, schema)
    elif isinstance(old, list) and isinstance(new, list):
        original[name] = merge_list(old, new, schema) if schema.merges_in_patches else _cleaned(new)
    elif isinstance(new, dict) and _DIRECTIVE in new:
        original.pop(name, None)
    else:
        original[name] = _cleaned(new)


def _replaced_or_deleted(patch: Document) -> Document:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        replacement: Document = _cleaned({name: child for name, child in patch.items() if name != _DIRECTIVE})
        return replacement
    if directive == "delete":
        return {}
    raise StrategicMergeError(f"unknown patch type: {cut(str(directive))} in map: {_shown(patch)}")


def _retain_keys(original: Document, patch: Document) -> None:
    if _RETAIN_KEYS not in patch:
        return
    retained = patch.pop(_RETAIN_KEYS)
    if not isinstance(retained, list) or any(
        name not in retained and value is not None and not name.startswith((_DELETE_PREFIX, _ORDER_PREFIX))
        for name, value in patch.items()
    ):
        raise StrategicMergeError("invalid patch format of retainKeys")
    for name in [name for name in original if name not in retained]:
        del original[name]


def _merge_ordered(original: Document, patch: Document, schema: MergeSchema, directive: str) -> None:
    order = patch.pop(directive)
    name = _target(directive, "setElementOrder")
    field = schema.field(name)
    live, new = original.get(name), patch.pop(name, None)
    if not isinstance(order, list) or any(
        part is not None and not isinstance(part, list) for part in (live, new)
    ):
        raise StrategicMergeError("invalid patch format of setElementOrder list")
    if live is None and new is None:
        return
    live_order = list(live or ())
    _check_order(new or [], order, field.patch_merge_key)
    if new is None:
        merged = live_order
    elif live is None:
        merged = _cleaned(new)
    else:
        merged = merge_list(live, new, field) if field.merges_in_patches else _cleaned(new)
    original[name] = _in_order(merged, order, live_order, field.patch_merge_key)


def _check_order(patch: list[JSON], order: list[JSON], key: str) -> None:
    """Raise an error if ``order`` lacks an item of the patch, or if it has the items in a different order."""
    if not order or not patch:
        return
    kept = [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    ordered = _Places(order, key)
    places = [ordered.of(item) for item in kept]
    if None in places or places != sorted(place for place in places if place is not None):
        raise StrategicMergeError(
            f"The order in patch list:\n{_shown(patch)}\n doesn't match $setElementOrder list:\n{_shown(order)}\n"
        )


def _delete_from(original: Document, name: str, gone: JSON) -> None:
    present = original.get(name)
    if isinstance(present, list) and isinstance(gone, list):
        _check_types(present, gone)
        original[name] = _without(present, gone)


def _check_types(original: list[JSON], patch: list[JSON]) -> None:
    """Raise an error, as Go does, if the items of two lists have different types: 1, 1.0 and true, for example."""
    kinds = {_type(item) for items in (original, patch) for item in items}
    if list in kinds:
        raise StrategicMergeError("lists of lists are not supported")
    if len(kinds) > 1:
        raise StrategicMergeError(f"list element types are not identical: {_shown([original, patch])}")


def _without(items: list[JSON], gone: list[JSON]) -> list[JSON]:
    marks = {_mark(item) for item in gone}
    return [item for item in items if _mark(item) not in marks]


def _target(directive: str, what: str) -> str:
    name = directive.partition("/")[2]
    if not name:
        raise StrategicMergeError(f"invalid patch format of {what} list")
    return name


def merge_list(original: list[JSON], patch: list[JSON], schema: MergeSchema) -> list[JSON]:
    """Return ``original`` with the items of ``patch`` merged into it, as :func:`strategic_merge_patch` does.

    The lists and their items must not be used afterwards.
    """
    if not original and not patch:
        return original
    _check_types(original, patch)
    if not isinstance((original or patch)[0], dict):
        merged = list({_mark(item): item for item in reversed([*original, *patch])}.values())
        return _in_order(merged[::-1], patch, original, "")
    key = schema.patch_merge_key
    original, patch = _list_directives(original, patch, key)
    merged = list(original)
    places = _Places(merged, key)
    for item in patch:
        _key_of(item, key)
        place = places.of(item)
        if place is None:
            places.append(item)
            merged.append(_cleaned(item))
        else:
            merged[place] = _merge_map(merged[place], item, schema.item)
    return _in_order(merged, patch, original, key)


def _list_directives(original: list[JSON], patch: list[JSON], key: str) -> tuple[list[JSON], list[JSON]]:
    """Apply the items that are directives; return the two lists without them."""
    plain: list[JSON] = []
    replace = False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if directive is None:
            plain.append(item)
        elif directive == "delete":
            gone = _mark(_key_of(item, key))
            original = [present for present in original if key not in present or _mark(present[key]) != gone]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise StrategicMergeError("merging lists cannot yet be specified in the patch")
        else:
            raise StrategicMergeError(f"unknown patch type: {cut(str(directive))} in map: {_shown(item)}")
    return (_cleaned(plain), []) if replace else (original, plain)


def _in_order(merged: list[JSON], order: list[JSON], live: list[JSON], key: str) -> list[JSON]:
    """Return the merged items in the order that the API server gives them.

    The items in ``order`` are sorted as they are there; all other items are sorted as in ``live``. The two sequences
    are then merged so that, where possible, items keep their order in ``live``.
    """
    if key:
        for item in (*merged, *order, *live):
            _key_of(item, key)
    ordered, living = _Places(order, key), _Places(live, key)
    named: list[tuple[int, JSON]] = []
    others: list[tuple[int, JSON]] = []
    for item in merged:
        place = ordered.of(item)
        if place is not None:
            named.append((place, item))
        else:
            others.append((living.of(item) or 0, item))
    left = deque(item for _, item in sorted(others, key=lambda pair: pair[0]))
    right = deque(item for _, item in sorted(named, key=lambda pair: pair[0]))
    woven: list[JSON] = []
    while left and right:
        mine, theirs = living.of(left[0]), living.of(right[0])
        before = mine is not None and theirs is not None and mine < theirs
        woven.append(left.popleft() if before else right.popleft())
    return [*woven, *left, *right]


class _Places:
    """The first position of each item in a list; maps are identified by the value of their merge key."""

    def __init__(self, items: list[JSON], key: str) -> None:
        self._key = key
        self._places: dict[Hashable, int] = {}
        self._length = 0
        for item in items:
            self.append(item)

    def append(self, item: JSON) -> None:
        """Record an item that is appended to the list."""
        if not self._key or (isinstance(item, dict) and self._key in item):
            self._places.setdefault(self._mark_of(item), self._length)
        self._length += 1

    def of(self, item: JSON) -> int | None:
        """Return the first position of an equal item."""
        return self._places.get(self._mark_of(item))

    def _mark_of(self, item: JSON) -> Hashable:
        value = item
        if self._key:
            value = item.get(self._key) if isinstance(item, dict) else None
        return _mark(value)


def _mark(value: JSON) -> Hashable:
    """Return what equals the mark of an equal value. As in Go, 1, 1.0 and true are three values."""
    return go_text(value) if isinstance(value, dict | list) else (_type(value), value)


def _type(value: JSON) -> type:
    return str if isinstance(value, str) else type(value)  # members of a StrEnum are texts


def _key_of(item: JSON, key: str) -> JSON:
    if not isinstance(item, dict) or key not in item:
        raise StrategicMergeError(f"map: {_shown(item)} does not contain declared merge key: {key}")
    return item[key]


def _shown(value: JSON) -> str:
    return cut(go_text(value), LONGEST_VALUE)


def _cleaned(value: JSON) -> JSON:
    """Return a part of the patch without nulls and directives, so that it can replace live data."""
    if isinstance(value, dict):
        return {
            name: _cleaned(child)
            for name, child in value.items()
            if child is not None
            and not name.startswith((_RETAIN_KEYS, _DELETE_PREFIX, _ORDER_PREFIX))
            and not (isinstance(child, dict) and _DIRECTIVE in child)
        }
    if isinstance(value, list):
        return [_cleaned(item) for item in value if not (isinstance(item, dict) and _DIRECTIVE in item)]
    return value


def strategic_merge_diff(old: Document, new: Document, schema: MergeSchema) -> Document:
    """Return a strategic merge patch from ``old`` to ``new``; the patch is empty if the two are equal.

    For a list that merges by key, the patch contains the items that differ and the order of all items. Items that other
    writers add in the meantime are therefore kept. A list with missing or duplicate keys is replaced as a whole.
    """
    patch: Document = dict.fromkeys(sorted(old.keys() - new.keys()))
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif not same(old[name], value):
            _change(patch, name, old[name], value, schema.field(name))
    return patch


def _change(patch: Document, name: str, old: JSON, new: JSON, schema: MergeSchema) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        patch[name] = new if schema.is_replaced_in_patches else strategic_merge_diff(old, new, schema)
    elif isinstance(old, list) and isinstance(new, list) and schema.merges_in_patches:
        if schema.patch_merge_key:
            _change_items(patch, name, old, new, schema)
        else:
            _change_members(patch, name, old, new)
    else:
        patch[name] = new


def _change_items(patch: Document, name: str, old: list[JSON], new: list[JSON], schema: MergeSchema) -> None:
    key = schema.patch_merge_key
    before, after = _by_key(old, key), _by_key(new, key)
    if before is None or after is None:
        patch[name] = [{"$patch": "replace"}, *new]
        return
    items: list[JSON] = []
    for value, item in after.items():
        if value not in before:
            items.append(item)
        elif changes := strategic_merge_diff(before[value], item, schema.item):
            items.append({key: item[key], **changes})
    items += [{"$patch": "delete", key: item[key]} for value, item in before.items() if value not in after]
    if items:
        patch[name] = items
    patch[f"$setElementOrder/{name}"] = [{key: item[key]} for item in new]


def _change_members(patch: Document, name: str, old: list[JSON], new: list[JSON]) -> None:
    if added := _without(new, old):
        patch[name] = added
    if removed := _without(old, new):
        patch[f"$deleteFromPrimitiveList/{name}"] = removed
    patch[f"$setElementOrder/{name}"] = new


def _by_key(items: list[JSON], key: str) -> dict[Hashable, Document] | None:
    """Return a map from each item's key to the item, or None if a key is missing, duplicate or not a scalar."""
    by_key: dict[Hashable, Document] = {}
    for item in items:
        value = item.get(key) if isinstance(item, dict) else None
        if not isinstance(value, str | int) or isinstance(value, bool) or value in by_key:
            return None
        by_key[value] = item
    return by_key


# The patches that a client sends.


class RawPatch(msgspec.Struct, frozen=True):
    """A patch with a fixed body."""

    content_type: str
    body: bytes

    def data(self, obj: Object) -> bytes:
        """Return the body, regardless of ``obj``."""
        del obj
        return self.body


class MergePatch(msgspec.Struct, frozen=True):
    """The merge patch that turns ``old`` into the object passed to :meth:`data`."""

    content_type = MERGE_PATCH  # no ClassVar, which pyright does not accept for a property of a protocol
    old: Object
    optimistic_lock: bool = False

    def data(self, obj: Object) -> bytes:
        """Return the changes from ``old`` to ``obj``; ``{}`` if nothing changed.

        Raises:
            ValueError: ``optimistic_lock`` is set, and ``old`` has no resourceVersion.
        """
        patch = self._diff(self.old.to_dict(), obj.to_dict())
        if self.optimistic_lock:
            version = self.old.metadata.resource_version
            if not version:
                raise ValueError(f"{obj.key}: an optimistic lock needs a resourceVersion")
            patch.setdefault("metadata", {})["resourceVersion"] = version
        return msgspec.json.encode(patch)

    _diff = staticmethod(merge_patch_diff)


class StrategicMergePatch(MergePatch, frozen=True):
    """The strategic merge patch that turns ``old`` into the object passed to :meth:`data`."""

    content_type = STRATEGIC_MERGE_PATCH
    schema: MergeSchema = openapi.UNKNOWN

    def _diff(self, old: Document, new: Document) -> Document:
        return strategic_merge_diff(old, new, self.schema)


def merge_from(old: Object, *, optimistic_lock: bool = False) -> MergePatch:
    """Return a merge patch of the changes since ``old``. Do not change ``old`` until the patch is sent.

    With ``optimistic_lock`` the server rejects the patch (ConflictError) if the object has changed since ``old``.

    Raises:
        TypeError: ``old`` is not an object of a kind.
    """
    check_object(old, "old")
    return MergePatch(old, optimistic_lock)


def strategic_merge_from(old: Object, *, optimistic_lock: bool = False) -> StrategicMergePatch:
    """Return a patch like :func:`merge_from` that contains only the changed items of lists such as ``containers``.

    Items that other writers added to such a list are kept. The API server accepts these patches for Kubernetes' own
    kinds and rejects them for custom resources.

    Raises:
        TypeError: ``old`` is not an object of a kind.
        ValueError: the kind is not one of Kubernetes' own; use :func:`merge_from`.
    """
    check_object(old, "old")
    schema = openapi.merge_schema_of_kind(type(old).gvk)
    if schema is None:
        raise ValueError(
            f"{type(old).gvk}: strategic merge patches are not supported for this kind; use merge_from"
        )
    return StrategicMergePatch(old, optimistic_lock, schema)


def raw_patch(content_type: str, body: bytes) -> RawPatch:
    """Return a patch with a fixed body; ``content_type`` is one of the ``…_PATCH`` constants.

    Raises:
        TypeError: ``content_type`` is not a text, or ``body`` is not bytes.
    """
    if not isinstance(content_type, str):
        raise TypeError(f"content_type must be a text such as {MERGE_PATCH}, not {content_type!r:.100}")
    if not isinstance(body, bytes):
        raise TypeError(f"body must be the bytes of the patch, such as b'{{}}', not {body!r:.100}")
    return RawPatch(content_type, body)


def check_patch(obj: object, patch: object) -> None:
    """Raise TypeError for arguments that are not an object of a kind and a patch."""
    check_object(obj)
    if not hasattr(patch, "content_type"):
        wanted = "ctrl.merge_from(found), client.raw_patch(…) or another patch"
        raise TypeError(f"patch must be {wanted}, not {patch!r:.100}")
