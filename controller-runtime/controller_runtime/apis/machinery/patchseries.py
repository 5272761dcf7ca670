# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Many strategic merge patches over one document, each in time of its own size, not of the document's.

The result is the one of :func:`controller_runtime.apis.machinery.strategicpatch.strategic_merge_patch`, patch after patch. Lists that merge by
a key are linked lists while the series lasts. A patch with directives, a list with a key twice: those go the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from .base import JSON
from .strategicpatch import Document, Member, Schema, merge_list, strategic_merge_patch

_SPACING: Final = 1 << 64


class PatchSeries:
    """A document that is patched again and again; it, and the patches, are used up."""

    def __init__(
        self, document: Document, schema: Schema, normalise: Callable[[Document], Document] = lambda it: it
    ) -> None:
        """Begin a series.

        Args:
            document: what is patched.
            schema: how its parts merge.
            normalise: brings the document into shape between patches; may be left out after a patch without
                directives, since such patches mind no shape.
        """
        self._document = document
        self._schema = schema
        self._normalise = normalise

    def merge(self, patch: Document) -> None:
        """Merge one patch.

        Raises:
            StrategicMergeError: an item of a merged list lacks its key, or a directive makes no sense.
        """
        if _is_plain(patch):
            _merge_map(self._document, patch, self._schema)
        else:
            merged = strategic_merge_patch(self.document(), patch, self._schema)
            self._document = self._normalise(merged)

    def document(self) -> Document:
        """Return the document as it is now, normalised; the next patch changes it in place."""
        _thaw(self._document, self._schema)
        self._document = self._normalise(self._document)
        return self._document


def _is_plain(patch: JSON) -> bool:
    """Say whether a patch has neither directives nor nulls."""
    if isinstance(patch, dict):
        return all(name[:1] != "$" and _is_plain(held) for name, held in patch.items())
    if isinstance(patch, list):
        return all(map(_is_plain, patch))
    return patch is not None


def _merge_map(original: Document, patch: Document, schema: Schema) -> None:
    for name, new in patch.items():
        old = original.get(name)
        member = schema.fields.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            _merge_map(old, new, member.schema if member is not None else Schema())
        elif isinstance(old, list | _KeyedList) and isinstance(new, list) and member and member.merge:
            original[name] = _merge_list(old, new, member)
        else:
            original[name] = new


def _merge_list(old: list[JSON] | _KeyedList, new: list[JSON], member: Member) -> list[JSON] | _KeyedList:
    keys = _keys(new, member.key)
    keyed = old if isinstance(old, _KeyedList) else _keyed(old, member.key)
    if keys is not None and keyed is not None:
        keyed.merge(zip(keys, new, strict=True), member.schema)
        return keyed
    return merge_list(_thawed(old, member.schema), new, member)


def _keys(items: list[JSON], key: str) -> list[Hashable] | None:
    """Return the items' keys; None when one has none or two have the same."""
    if not key:
        return None
    found: list[Hashable] = []
    for item in items:
        if not isinstance(item, dict) or isinstance(item.get(key), dict | list | None):
            return None
        found.append(item[key])
    return found if len(set(found)) == len(found) else None


class _Node:
    """An item of a linked list; labels grow along the list."""

    __slots__ = ("after", "before", "item", "label")

    def __init__(self, item: Any, label: int) -> None:
        self.item = item
        self.label = label
        self.before = self.after = self


class _KeyedList:
    """A list of items with a key each, in a ring whose first node is no item."""

    def __init__(self) -> None:
        self._start = _Node(None, 0)
        self._nodes: dict[Hashable, _Node] = {}

    def append(self, key: Hashable, item: JSON) -> None:
        """Add an item that goes last."""
        node = self._nodes[key] = _Node(item, 0)
        self._insert(self._start.before, node)

    def merge(self, patch: Any, schema: Schema) -> None:
        """Merge items into those of their keys.

        Each keeps its place, unless it would come before one that the patch names earlier: then it follows the
        one named just before it. So does a new one, and the first of all goes first.
        """
        previous = self._start
        highest: int | None = None
        for key, item in patch:
            node = self._nodes.get(key)
            if node is None:
                node = self._nodes[key] = _Node(item, 0)
                self._insert(previous, node)
            else:
                _merge_map(node.item, item, schema)
                if highest is not None and node.label < highest:
                    node.before.after, node.after.before = node.after, node.before
                    self._insert(previous, node)
            previous = node
            highest = node.label

    def items(self) -> list[JSON]:
        """Return the items in order."""
        found: list[JSON] = []
        node = self._start.after
        while node is not self._start:
            found.append(node.item)
            node = node.after
        return found

    def _insert(self, before: _Node, node: _Node) -> None:
        after = before.after
        node.before, node.after = before, after
        before.after = after.before = node
        if before is self._start and after is self._start:
            node.label = 0
        elif before is self._start:
            node.label = after.label - _SPACING
        elif after is self._start:
            node.label = before.label + _SPACING
        elif after.label - before.label > 1:
            node.label = (before.label + after.label) // 2
        else:
            self._relabel()

    def _relabel(self) -> None:
        label, node = 0, self._start.after
        while node is not self._start:
            node.label = label
            label += _SPACING
            node = node.after


def _keyed(items: list[JSON], key: str) -> _KeyedList | None:
    keys = _keys(items, key)
    if keys is None:
        return None
    keyed = _KeyedList()
    for each, item in zip(keys, items, strict=True):
        keyed.append(each, item)
    return keyed


def _thaw(document: Document, schema: Schema) -> None:
    """Turn what is a linked list into a list again, in place."""
    for name, member in schema.fields.items():
        held = document.get(name)
        if isinstance(held, dict):
            _thaw(held, member.schema)
        elif isinstance(held, _KeyedList):
            document[name] = _thawed(held, member.schema)


def _thawed(items: list[JSON] | _KeyedList, schema: Schema) -> list[JSON]:
    if isinstance(items, list):
        return items
    found = items.items()
    for item in found:
        _thaw(item, schema)
    return found
