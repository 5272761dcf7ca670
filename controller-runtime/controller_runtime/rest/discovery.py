# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a server serves: the resources of kinds, and their schemas.

`RESTMapper` maps a kind to its resource. If the kind's class does not declare the resource, `RESTMapper` uses
discovery. `published_schema` reads the schema of a kind. In an ordinary cluster, every authenticated client may read
published schemas. Reading CustomResourceDefinitions requires a further permission.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import anyio
import msgspec

from controller_runtime.machinery import GVK, Object, Resource, names
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.locks import KeyedLocks

from .errors import NoKindMatchError, decoded
from .http1 import ORDINARY, Bounds
from .layers import Response, RoundTripper
from .request import JSON, Request, group_version_path

MISS_TTL: Final = 10.0
"""If the server does not serve a kind, the kind is not requested again for this many seconds."""
MISSES: Final = 64
"""Maximum number of groups and versions that are remembered as missing. When it is reached, another group and version
is requested only if the server lists it."""

_INDEX: Final = "/openapi/v3"
_DOCUMENT: Final = Bounds(64 << 20, 60.0)
"""Limits for a schema document, which describes all kinds of a group and version."""
_KINDS: Final = "x-kubernetes-group-version-kind"

GroupVersion = tuple[str, str]
T = TypeVar("T")


class _APIResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _Resources(msgspec.Struct):
    resources: list[_APIResource] | None


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    versions: list[_Version]


class _Groups(msgspec.Struct):
    groups: list[_Group] | None


class RESTMapper:
    """Maps kinds to resources.

    The resources of a group and version are requested once and cached. A missing kind is looked up again after
    :data:`MISS_TTL`, so a CRD installed later is found. Group names may come from users. Therefore an invalid name
    causes no request, and only a limited number of unknown names is requested and remembered.
    """

    def __init__(self, transport: RoundTripper) -> None:
        self._transport = transport
        self._served: dict[GroupVersion, Mapping[str, Resource]] = {}
        """This and ``_asked_at`` contain only groups and versions that the server serves."""
        self._asked_at: dict[GroupVersion, float] = {}
        self._missing: OrderedDict[GroupVersion, float] = OrderedDict()
        self._asking: KeyedLocks[GroupVersion] = KeyedLocks()
        """Allows one request at a time per group and version."""
        self._groups: tuple[float, frozenset[GroupVersion]] | None = None
        self._groups_lock = anyio.Lock()

    async def resource_for(self, kind: type[Object] | GVK) -> Resource:
        """Return the resource of ``kind``, without a request if its class declares it.

        Raises:
            NoKindMatchError: the server does not serve the kind.
            StatusError, TransportError: discovery failed.
        """
        if not isinstance(kind, tuple):
            if kind.resource is not None:
                return kind.resource
            kind = kind.gvk
        return await self.discover(kind)

    async def discover(self, gvk: GVK) -> Resource:
        """Return the resource of ``gvk`` according to the server. Raises like :meth:`resource_for`."""
        group_version = (gvk.group, gvk.version)
        resource = self._known(gvk)
        if resource is None and names.is_api_group(gvk.group) and names.is_api_version(gvk.version):
            async with self._asking.holding(group_version):
                resource = self._known(gvk)
                if resource is None and await self._may_ask(group_version):
                    await self._ask(group_version)
                    resource = self._known(gvk)
        if resource is None:
            raise NoKindMatchError(gvk)
        return resource

    def reset(self) -> None:
        """Clear the cache."""
        self._served.clear()
        self._asked_at.clear()
        self._missing.clear()
        self._groups = None

    def _known(self, gvk: GVK) -> Resource | None:
        return self._served.get((gvk.group, gvk.version), {}).get(gvk.kind)

    async def _may_ask(self, group_version: GroupVersion) -> bool:
        now = anyio.current_time()
        asked_at = self._asked_at.get(group_version, self._missing.get(group_version))
        if asked_at is not None:
            return now - asked_at >= MISS_TTL
        while self._missing and now - next(iter(self._missing.values())) >= MISS_TTL:
            self._missing.popitem(last=False)
        return len(self._missing) < MISSES or group_version in await self._listed()

    async def _ask(self, group_version: GroupVersion) -> None:
        group, version = group_version
        answer = await _read(self._transport, group_version_path(group, version), _Resources)
        now = anyio.current_time()
        self._missing.pop(group_version, None)
        if answer is None:
            self._served.pop(group_version, None)
            self._asked_at.pop(group_version, None)
            if len(self._missing) < MISSES:
                self._missing[group_version] = now
            return
        self._asked_at[group_version] = now
        self._served[group_version] = {
            entry.kind: Resource(group, version, entry.name, entry.namespaced)
            for entry in answer.resources or ()
            if "/" not in entry.name
        }

    async def _listed(self) -> frozenset[GroupVersion]:
        """Return the groups and versions that the server lists; the list is cached for :data:`MISS_TTL`."""
        async with self._groups_lock:
            if self._groups is None or anyio.current_time() - self._groups[0] >= MISS_TTL:
                answer = await _read(self._transport, "/apis", _Groups)
                listed = {
                    (group.name, each.version)
                    for group in (answer.groups if answer is not None else None) or ()
                    for each in group.versions
                }
                self._groups = anyio.current_time(), frozenset({("", "v1"), *listed})
            return self._groups[1]


class _Link(msgspec.Struct, rename={"url": "serverRelativeURL"}):
    url: str = ""


class _Index(msgspec.Struct):
    paths: dict[str, _Link]


class _Components(msgspec.Struct):
    schemas: dict[str, dict[str, Any]] = {}


class _Document(msgspec.Struct):
    components: _Components | None = None


class PublishedSchema(msgspec.Struct, frozen=True):
    """The schema of a kind. ``revision`` changes whenever the document with the schema changes."""

    revision: str
    properties: dict[str, Any]


async def published_schema(
    transport: RoundTripper, kind: GVK, known: PublishedSchema | None = None
) -> PublishedSchema | None:
    """Return the schema of ``kind``, or None if the server does not publish one.

    If ``known`` has the current revision, only the index of documents is requested, and ``known`` is returned.

    Raises:
        StatusError: the server refused the request.
        TransportError: the server was not reached, or its response cannot be decoded.
    """
    index = await _read(transport, _INDEX, _Index, media_type="")  # API servers send the index as plain text
    path = group_version_path(kind.group, kind.version).removeprefix("/")
    link = index.paths.get(path) if index is not None else None
    if link is None:
        return None
    _, _, revision = link.url.partition("?")
    if known is not None and revision and known.revision == revision:
        return known
    answer = await _answer(transport, f"{_INDEX}/{path}", bounds=_DOCUMENT, media_type="")
    if answer is None:
        return None
    document = decoded(msgspec.json.Decoder(_Document).decode, await answer.read())
    # The index may be older than the document, or come from another API server: then both are read again.
    if tag := answer.headers.get("Etag", "").strip('"'):
        revision = f"hash={tag}"
    schemas = document.components.schemas if document.components is not None else {}
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    for schema in schemas.values():
        if wanted in (schema.get(_KINDS) or ()):
            return PublishedSchema(revision, schema.get("properties") or {})
    return None


async def _read(
    transport: RoundTripper, path: str, shape: type[T], *, bounds: Bounds = ORDINARY, media_type: str = "json"
) -> T | None:
    """Return the decoded response, or None if the path does not exist."""
    response = await _answer(transport, path, bounds=bounds, media_type=media_type)
    return None if response is None else decoded(msgspec.json.Decoder(shape).decode, await response.read())


async def _answer(transport: RoundTripper, path: str, *, bounds: Bounds, media_type: str) -> Response | None:
    response = await transport.send(Request("GET", path, headers={"Accept": JSON}, bounds=bounds))
    try:
        await response.raise_for_status(media_type=media_type)
    except NotFoundError:
        return None
    return response
