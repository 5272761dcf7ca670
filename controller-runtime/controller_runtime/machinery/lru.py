# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LRU: a map with a limited number of items."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRU(OrderedDict[K, V]):
    """A map of at most ``most`` items. When it is full, the item that was used longest ago is dropped.

    Writing an item uses it, and so does :meth:`use`; other reads do not.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def use(self, key: K) -> V | None:
        """Return the value of ``key``, or None."""
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]
