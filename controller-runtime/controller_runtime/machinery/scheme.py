# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scheme: map kinds to the classes that model them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .base import JSON
from .gvk import GVK
from .object import Object, unstructured


class Scheme:
    """A registry of kinds. Registering two classes for one kind is an error."""

    def __init__(
        self, *kinds: type[Object], later: Callable[[], Iterable[type[Object]]] | None = None
    ) -> None:
        """Register ``kinds``, and on first use those that ``later`` returns, because importing kinds is expensive."""
        self._known: dict[GVK, type[Object]] = {}
        self._later = later
        if kinds:
            self.register(*kinds)

    @property
    def _kinds(self) -> dict[GVK, type[Object]]:
        if self._later is not None:
            later, self._later = self._later, None
            self.register(*later())
        return self._known

    def register(self, *kinds: type[Object]) -> None:
        """Add kinds.

        Raises:
            ValueError: another class is registered for the same kind.
        """
        for kind in kinds:
            known = self._kinds.setdefault(kind.gvk, kind)
            if known is not kind:
                raise ValueError(f"{kind.gvk} is registered as {known.__qualname__} already")

    def kind_for(self, gvk: GVK) -> type[Object]:
        """Return the class for ``gvk``, or an unstructured one if there is no model."""
        return self._kinds.get(gvk) or unstructured(gvk)

    def decode(self, data: dict[str, JSON]) -> Object:
        """Return ``data`` as an object of the class for its apiVersion and kind."""
        gvk = GVK.parse(str(data.get("apiVersion") or ""), str(data.get("kind") or ""))
        return self.kind_for(gvk).from_dict(data)

    def __contains__(self, gvk: GVK) -> bool:
        return gvk in self._kinds

    def __iter__(self) -> Iterator[type[Object]]:
        return iter(self._kinds.values())
