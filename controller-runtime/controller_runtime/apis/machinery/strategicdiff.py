# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Create strategic merge patches: :func:`strategic_merge_diff` is the inverse of :mod:`.strategicpatch`."""

from __future__ import annotations

from collections.abc import Hashable

from .base import JSON
from .patch import same
from .strategicpatch import Document
from .strategicschema import Member, Schema

_PLAIN = Member()


def strategic_merge_diff(old: Document, new: Document, schema: Schema) -> Document:
    """Return a strategic merge patch from ``old`` to ``new``; it is empty if they are equal.

    For a list that merges by key, the patch contains the items that differ and the order of all items, so that items
    which other writers add meanwhile are kept. A list with missing or duplicate keys is replaced as a whole.
    """
    patch: Document = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif not same(old[name], value):
            _change(patch, name, old[name], value, schema.fields.get(name, _PLAIN))
    return patch


def _change(patch: Document, name: str, old: JSON, new: JSON, member: Member) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        patch[name] = strategic_merge_diff(old, new, member.schema)
    elif isinstance(old, list) and isinstance(new, list) and member.merge:
        if member.key:
            _change_items(patch, name, old, new, member)
        else:
            _change_members(patch, name, old, new)
    else:
        patch[name] = new


def _change_items(patch: Document, name: str, old: list[JSON], new: list[JSON], member: Member) -> None:
    key = member.key
    before, after = _by_key(old, key), _by_key(new, key)
    if before is None or after is None:
        patch[name] = [{"$patch": "replace"}, *new]
        return
    items: list[JSON] = []
    for value, item in after.items():
        if value not in before:
            items.append(item)
        elif changes := strategic_merge_diff(before[value], item, member.schema):
            items.append({key: item[key], **changes})
    items += [{"$patch": "delete", key: item[key]} for value, item in before.items() if value not in after]
    if items:
        patch[name] = items
    patch[f"$setElementOrder/{name}"] = [{key: item[key]} for item in new]


def _change_members(patch: Document, name: str, old: list[JSON], new: list[JSON]) -> None:
    if added := [value for value in new if value not in old]:
        patch[name] = added
    if removed := [value for value in old if value not in new]:
        patch[f"$deleteFromPrimitiveList/{name}"] = removed
    patch[f"$setElementOrder/{name}"] = new


def _by_key(items: list[JSON], key: str) -> dict[Hashable, Document] | None:
    """Return the items by the value of their key, or None if it does not identify them."""
    found: dict[Hashable, Document] = {}
    for item in items:
        value = item.get(key) if isinstance(item, dict) else None
        if not isinstance(value, str | int) or isinstance(value, bool) or value in found:
            return None
        found[value] = item
    return found
