# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Field ownership of server-side apply, on plain JSON, for the in-memory API server.

A field set is a set of paths. Each step of a path is the key of a map, an :class:`Item` or a :class:`Member`. Items
belong to lists with key fields, such as the containers of a Pod; members belong to lists that are sets, such as
finalizers. The :class:`~controller_runtime.machinery.openapi.MergeSchema` of a kind says which list is of which type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from controller_runtime.machinery import JSON
from controller_runtime.machinery.object import IDENTIFYING
from controller_runtime.machinery.openapi import MergeSchema
from controller_runtime.machinery.patch import same


class Item(NamedTuple):
    """The step to a list item: the item whose key fields have these values."""

    keys: tuple[tuple[str, JSON], ...]
    defaults: tuple[tuple[str, JSON], ...] = ()
    """Defaults of the key fields, for items that omit a key field."""


class Member(NamedTuple):
    """The step to the member of a set with this value."""

    value: JSON


Step = str | Item | Member
Path = tuple[Step, ...]
FieldSet = frozenset[Path]

_UNOWNED: Final[frozenset[Path]] = frozenset(
    {("apiVersion",), ("kind",)}
    | {("metadata", name) for name in (*IDENTIFYING, "generateName", "managedFields")}
)
_MISSING: Final = object()


def fields_of(obj: Mapping[str, JSON], schema: MergeSchema) -> FieldSet:
    """Return the paths of all fields that ``obj`` sets and a manager can own."""
    return frozenset(filter(_can_be_owned, _walk(obj, (), schema)))


def _can_be_owned(path: Path) -> bool:
    return bool(path) and path not in _UNOWNED and path[:2] not in _UNOWNED


def difference(
    old: Mapping[str, JSON], new: Mapping[str, JSON], schema: MergeSchema
) -> tuple[FieldSet, FieldSet]:
    """Return the paths that ``new`` adds or changes, and the paths that only ``old`` has."""
    written: list[Path] = []
    removed: list[Path] = []
    if same(old, new):
        return frozenset(), frozenset()
    _compare(old, new, (), schema, written, removed)
    return frozenset(filter(_can_be_owned, written)), frozenset(filter(_can_be_owned, removed))


def _compare(
    old: JSON, new: JSON, path: Path, schema: MergeSchema, written: list[Path], removed: list[Path]
) -> None:
    if isinstance(old, dict) and isinstance(new, dict) and old and new and not schema.is_atomic:
        for key, value in new.items():
            if key not in old:
                written += _walk(value, (*path, key), schema.field(key))
            elif not same(old[key], value):
                _compare(old[key], value, (*path, key), schema.field(key), written, removed)
        for key in old.keys() - new.keys():
            removed += _walk(old[key], (*path, key), schema.field(key))
        return
    if not isinstance(old, dict | list) and not isinstance(new, dict | list):
        written.append(path)
        return
    depth, after = len(path), _walk(new, path, schema)
    written += [
        below for below in after if not same(value_at(old, below[depth:]), value_at(new, below[depth:]))
    ]
    removed += set(_walk(old, path, schema)).difference(after)


def value_at(obj: JSON, path: Path) -> JSON:
    """Return the value at ``path``. If there is none, return an object that differs from every JSON value."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(obj, dict) or step not in obj:
                return _MISSING
            obj = obj[step]
        elif (index := _index(obj, step)) is not None:
            obj = obj[index]
        else:
            return _MISSING
    # The path of an item stands for the presence of the item; paths below it own the item's content.
    return True if path and isinstance(path[-1], Item) else obj


def merge(live: JSON, config: JSON, schema: MergeSchema) -> JSON:
    """Return ``live`` with the values of ``config``. Lists with key fields, and lists that are sets, are merged."""
    if isinstance(live, dict) and isinstance(config, dict) and not schema.is_atomic:
        merged = dict(live)
        for key, value in config.items():
            merged[key] = merge(live[key], value, schema.field(key)) if key in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list):
        if schema.is_set:
            return _in_order([(item, item) for item in live], [(item, item) for item in config])
        if not config and schema.keys(live):
            return live
        if schema.keys(config) and (not live or schema.keys(live)):
            return _merge_items(live, config, schema)
    return config


def _merge_items(live: list[JSON], config: list[JSON], schema: MergeSchema) -> list[JSON]:
    merged: list[tuple[JSON, JSON]] = []
    for item, step in zip(config, _steps(config, schema), strict=True):
        index = _index(live, step)
        merged.append((step.keys, item if index is None else merge(live[index], item, schema.item)))
    return _in_order(
        [(step.keys, item) for item, step in zip(live, _steps(live, schema), strict=True)], merged
    )


def _in_order(live: list[tuple[JSON, JSON]], config: list[tuple[JSON, JSON]]) -> list[JSON]:
    """Return the items of two lists in the order of a server. Each item is given with its key.

    An item of ``config`` replaces the item of ``live`` that has the same key. The items of ``config`` keep their order.
    The other items of ``live`` stay in front of the items that follow them in ``live``.
    """
    known, wanted = [key for key, _ in live], [key for key, _ in config]
    merged: list[JSON] = []
    new: list[JSON] = []
    for key, item in config:
        new.append(item)
        if key in known:
            at = next((index for index, (other, _) in enumerate(live) if other == key), len(live))
            merged += [value for other, value in live[:at] if other not in wanted] + new
            live, new = live[at + 1 :], []
    return merged + [value for other, value in live if other not in wanted] + new


def remove(obj: JSON, paths: Iterable[Path], *, kept: FieldSet = frozenset()) -> JSON:
    """Return ``obj`` without the values at ``paths``. Maps and lists that become empty are removed, too.

    If ``paths`` contain a list item and no path in ``kept`` leads into the item, the whole item is removed, including
    fields that were set by default.
    """
    needed = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    for path in sorted(paths, key=len):
        if path not in needed:
            obj = _without(obj, path)
    return obj


def text(path: Path) -> str:
    """Return a path as in the server's messages: ``.spec.containers[name="node"].image``."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, str):
            parts.append(f".{step}")
        elif isinstance(step, Item):
            parts.append(f"[{','.join(f'{key}={_json(value)}' for key, value in step.keys)}]")
        else:
            parts.append(f"[={_json(step.value)}]")
    return "".join(parts)


def _walk(value: JSON, path: Path, schema: MergeSchema) -> list[Path]:
    paths: list[Path] = []
    _collect(value, path, schema, paths)
    return paths


def _collect(value: JSON, path: Path, schema: MergeSchema, paths: list[Path]) -> None:
    if isinstance(value, dict) and value and not schema.is_atomic:
        for key, child in value.items():
            if isinstance(child, dict | list):
                _collect(child, (*path, key), schema.field(key), paths)
            else:
                paths.append((*path, key))
    elif isinstance(value, list) and value and schema.is_set:
        paths += [(*path, Member(member)) for member in value]
    elif isinstance(value, list) and schema.keys(value):
        for item, step in zip(value, _steps(value, schema), strict=True):
            below = (*path, step)
            paths.append(below)
            _collect(item, below, schema.item, paths)
    else:
        paths.append(path)


def _steps(items: list[JSON], schema: MergeSchema) -> list[Item]:
    keys = schema.keys(items)
    defaults = {key: schema.default(key) for key in keys}
    return [
        Item(tuple((key, item.get(key, defaults[key])) for key in keys), tuple(defaults.items()))
        for item in items
    ]


def _index(items: JSON, step: Item | Member) -> int | None:
    if not isinstance(items, list):
        return None
    if isinstance(step, Member):
        return items.index(step.value) if step.value in items else None
    defaults = dict(step.defaults)
    for index, item in enumerate(items):
        if isinstance(item, dict) and all(
            same(item.get(key, defaults.get(key)), value) for key, value in step.keys
        ):
            return index
    return None


def _without(obj: JSON, path: Path) -> JSON:
    step, *rest = path
    place: str | int | None
    if isinstance(step, str):
        place = step if isinstance(obj, dict) and step in obj else None
    else:
        place = _index(obj, step)
        if isinstance(step, Item) and rest and rest[0] in dict(step.keys):
            place = None
    if place is None:
        return obj
    smaller: JSON = obj.copy()
    before = smaller[place]
    after = _without(before, tuple(rest)) if rest else None
    if after or (rest and not before):
        smaller[place] = after
    else:
        del smaller[place]
    return smaller


def _json(value: JSON) -> str:
    return msgspec.json.encode(value).decode()
