# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RESTMapper: where a kind is served, by our own classes where they know it, else by asking the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec

from pkg.apis.machinery.errors import NotFoundError
from pkg.apis.machinery.gvk import GVK, Resource
from pkg.apis.machinery.object import Object

from .errors import NoKindMatchError
from .request import JSON, Request
from .roundtrip import RoundTripper

MISS_TTL: Final = 10.0
"""Seconds for which a kind that was not served is believed to be missing still."""


class RESTMapper:
    """Maps kinds to resources.

    What the server serves is asked once per group and version, and remembered; a kind that is missing is
    asked for again after :data:`MISS_TTL`, so a CRD installed later is found.
    """

    def __init__(self, transport: RoundTripper, *, miss_ttl: float = MISS_TTL) -> None:
        self._transport = transport
        self._miss_ttl = miss_ttl
        self._served: dict[tuple[str, str], Mapping[str, Resource]] = {}
        self._asked_at: dict[tuple[str, str], float] = {}
        self._asking: dict[tuple[str, str], anyio.Lock] = {}

    async def resource_for(self, kind: type[Object] | GVK) -> Resource:
        """Return where ``kind`` is served; a class that knows its resource is not asked about.

        Raises:
            NoKindMatchError: the server does not serve it.
            StatusError, TransportError: the server could not be asked.
        """
        if not isinstance(kind, tuple):
            if kind.resource is not None:
                return kind.resource
            kind = kind.gvk
        return await self.discover(kind)

    async def discover(self, gvk: GVK) -> Resource:
        """Return where the server itself says that ``gvk`` is served. Raises like :meth:`resource_for`."""
        group_version = (gvk.group, gvk.version)
        async with self._asking.setdefault(group_version, anyio.Lock()):
            resource = self._served.get(group_version, {}).get(gvk.kind)
            if resource is None and self._may_ask(group_version):
                self._served[group_version] = await self._ask(*group_version)
                self._asked_at[group_version] = anyio.current_time()
                resource = self._served[group_version].get(gvk.kind)
        if resource is None:
            raise NoKindMatchError(gvk)
        return resource

    def reset(self) -> None:
        """Forget everything."""
        self._served.clear()
        self._asked_at.clear()

    def _may_ask(self, group_version: tuple[str, str]) -> bool:
        asked_at = self._asked_at.get(group_version)
        return asked_at is None or anyio.current_time() - asked_at >= self._miss_ttl

    async def _ask(self, group: str, version: str) -> dict[str, Resource]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        response = await self._transport.send(Request("GET", path, headers={"Accept": JSON}))
        try:
            await response.raise_for_status()
        except NotFoundError:
            return {}
        listed: Any = msgspec.json.decode(await response.read())
        return {
            entry["kind"]: Resource(group, version, entry["name"], bool(entry.get("namespaced")))
            for entry in listed.get("resources") or []
            if "/" not in entry["name"]
        }
