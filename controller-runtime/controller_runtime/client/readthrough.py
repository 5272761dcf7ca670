# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A Reader that does not take a cache's word for an object's absence."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final, TypeVar

import anyio

from controller_runtime.apis.machinery.errors import NotFoundError, StatusError
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.lazy import LazyObject
from controller_runtime.apis.machinery.object import Object
from controller_runtime.rest import RestError
from controller_runtime.tokenbucket import TokenBucket

from . import interfaces, narrow

T = TypeVar("T", bound=Object)

_RATE: Final = 10.0
_BURST: Final = 50
_PATIENCE: Final = 2.0
_LONGEST_NAME: Final = 253
"""Characters of an object's name; what refers to objects may hold any text."""


class ReadThrough(narrow.ReadOnly):
    """Reads ``cached``; of certain kinds, what is not there is looked for on the server, ``live``, too.

    Somebody may make an object and at once another that refers to it, before any watch told of the first. The server is
    asked for a list of one name, which whoever may watch a kind is allowed. It is asked ten times a second (after a burst
    of 50) and for two seconds at most; beyond that, and when it does not answer, the cache's word stands.
    """

    def __init__(
        self, cached: interfaces.Reader, live: interfaces.Reader, kinds: Collection[type[Object]]
    ) -> None:
        super().__init__(cached)
        self._live = live
        self._kinds = frozenset(kind.gvk for kind in kinds)
        self._bucket = TokenBucket(_RATE, _BURST, anyio.current_time)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError when there is none."""
        try:
            return await super().get(kind, key)
        except NotFoundError as missing:
            return await self._look(kind, key, missing)

    async def get_lazily(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object undecoded: see :func:`controller_runtime.client.get_lazily`."""
        try:
            return await super().get_lazily(kind, key)
        except NotFoundError as missing:
            return LazyObject.of(await self._look(kind, key, missing))

    async def _look(self, kind: type[T], key: NamespacedName | tuple[str, str], missing: NotFoundError) -> T:
        """Return the object as the server lists it; raise ``missing`` if it does not, or is not asked."""
        namespace, name = key
        if kind.gvk in self._kinds and 0 < len(name) <= _LONGEST_NAME and self._bucket.try_take():
            with anyio.move_on_after(_PATIENCE), suppress(StatusError, RestError):
                for found in await self._live.list(kind, namespace=namespace, fields={"metadata.name": name}):
                    return found
        raise missing
