# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Indexers: functions that return the values by which the objects of a kind are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from controller_runtime.machinery import GVK, Object, callables, raised
from controller_runtime.machinery.printable import cut

from . import errors
from .objects import CachedObject, UnreadableLog

T = TypeVar("T", bound=Object)
_Indexer = tuple[type[Object], Callable[[Any], Iterable[str]], type[msgspec.Struct] | None]


class Indexers:
    """The indexers of a kind, by the name of their index."""

    def __init__(self, gvk: GVK, unreadable: UnreadableLog) -> None:
        self._gvk = gvk
        self._unreadable = unreadable
        self._indexers: dict[str, _Indexer] = {}

    def add(
        self,
        kind: type[T],
        field: str,
        extract: Callable[[T], Iterable[str]],
        view: type[msgspec.Struct] | None = None,
    ) -> None:
        """Add an index of the values that ``extract`` returns for an object of class ``kind``, or for its ``view``.
        ValueError if there is an index of that name.
        """
        callables.must_be_plain(extract)
        if field in self._indexers:
            raise ValueError(f"{self._gvk.group_kind}: an index with name {field!r} is registered already")
        self._indexers[field] = (kind, extract, view)

    def values_of(self, obj: CachedObject[Object]) -> Mapping[str, tuple[str, ...]]:
        """Return the values of an object for each index. If the function of an index fails, the index is left out."""
        values: dict[str, tuple[str, ...]] = {}
        if obj.entry.too_large_reason:
            return values
        for field, (kind, extract, view) in self._indexers.items():
            try:
                given = (obj.view(view) if view is not None else None) or obj.as_kind(kind).object
                found = extract(given)
                if isinstance(found, str):
                    raise TypeError(f"the function returns the text {cut(found)!r}, not a list of texts")
                values[field] = tuple(dict.fromkeys(found))
            except errors.UndecodableObjectError as error:
                self._unreadable.skip(error)
            except raised.FAILURES as error:
                # This is the caller's code: if it fails on one object, the watch must not end.
                reason = f"index {field!r}: {raised.name(error)}: {raised.text(error)}"
                self._unreadable.skip(errors.UndecodableObjectError(self._gvk, obj.key, reason))
        return values
