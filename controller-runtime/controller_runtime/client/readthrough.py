# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ReadThrough: a cached Reader that looks up missing objects on the server."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final, TypeVar

import anyio

from controller_runtime.machinery import LazyObject, NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError
from controller_runtime.tokenbucket import TokenBucket

from . import interfaces, narrow

T = TypeVar("T", bound=Object)

_RATE: Final = 10.0
_BURST: Final = 50
_PATIENCE: Final = 2.0
_LONGEST_NAME: Final = 253
"""The most characters of an object's name; references to objects may contain any text."""


class ReadThrough(narrow.ReadOnly):
    """Reads ``cached``; objects of ``kinds`` that are missing there are looked up on the server, ``live``.

    A client may create an object and then another that refers to it before the watch has reported the first. The
    look-up is a list limited to one name, since clients that watch a kind may usually also list it. It is sent at most
    ten times a second (after a burst of 50) and may take two seconds; otherwise the object is reported as missing.
    """

    def __init__(
        self, cached: interfaces.Reader, live: interfaces.Reader, kinds: Collection[type[Object]]
    ) -> None:
        super().__init__(cached)
        self._live = live
        self._kinds = frozenset(kind.gvk for kind in kinds)
        self._bucket = TokenBucket(_RATE, _BURST)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        try:
            return await super().get(kind, key)
        except NotFoundError:
            if (found := await self._look(kind, key)) is None:
                raise
            return found

    async def peek(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object undecoded: see :func:`controller_runtime.client.peek`."""
        try:
            return await super().peek(kind, key)
        except NotFoundError:
            if (found := await self._look(kind, key)) is None:
                raise
            return LazyObject.of(found)

    async def _look(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T | None:
        """Return the object as listed by the server; None if it is not listed or not looked up."""
        namespace, name = NamespacedName.of(key)
        if kind.gvk in self._kinds and 0 < len(name) <= _LONGEST_NAME and self._bucket.try_take():
            with anyio.move_on_after(_PATIENCE), suppress(StatusError, RestError):
                for found in await self._live.list(kind, namespace=namespace, fields={"metadata.name": name}):
                    return found
        return None
