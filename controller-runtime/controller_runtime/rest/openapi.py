# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The schemas of kinds as the server publishes them.

Unlike a CustomResourceDefinition, they are readable by every authenticated client of an ordinary cluster.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from controller_runtime.apis.machinery.errors import NotFoundError
from controller_runtime.apis.machinery.gvk import GVK

from .errors import decoded
from .http1 import Bounds
from .paths import group_version_path
from .request import JSON, Request
from .roundtrip import RoundTripper

_INDEX: Final = "/openapi/v3"
_DOCUMENT: Final = Bounds(64 << 20, 60.0)
"""For a document, which describes all kinds of a group and version."""
_KINDS: Final = "x-kubernetes-group-version-kind"
T = TypeVar("T")


class _Link(msgspec.Struct, rename={"url": "serverRelativeURL"}):
    url: str = ""


class _Index(msgspec.Struct):
    paths: dict[str, _Link]


class _Components(msgspec.Struct):
    schemas: dict[str, dict[str, Any]] = {}


class _Document(msgspec.Struct):
    components: _Components | None = None


class PublishedSchema(msgspec.Struct, frozen=True):
    """The schema of a kind. ``revision`` changes with every change of the document that contains it."""

    revision: str
    properties: dict[str, Any]


async def published_schema(
    transport: RoundTripper, kind: GVK, known: PublishedSchema | None = None
) -> PublishedSchema | None:
    """Return the schema of ``kind``, or None if the server does not publish one.

    If the revision is that of ``known``, ``known`` is returned and only the index of documents is requested.

    Raises:
        StatusError: the server refuses.
        TransportError: it was not reached, or the response cannot be decoded.
    """
    index = await _read(transport, Request("GET", _INDEX, headers={"Accept": JSON}), _Index)
    path = group_version_path(kind.group, kind.version).removeprefix("/")
    link = index.paths.get(path) if index is not None else None
    if link is None:
        return None
    _, _, revision = link.url.partition("?")
    if known is not None and revision and known.revision == revision:
        return known
    request = Request("GET", f"{_INDEX}/{path}", headers={"Accept": JSON}, bounds=_DOCUMENT)
    document = await _read(transport, request, _Document)
    schemas = document.components.schemas if document is not None and document.components is not None else {}
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    for schema in schemas.values():
        if wanted in (schema.get(_KINDS) or ()):
            return PublishedSchema(revision, schema.get("properties") or {})
    return None


async def _read(transport: RoundTripper, request: Request, shape: type[T]) -> T | None:
    """Return the decoded response, or None if the path does not exist. API servers send the index as plain text."""
    response = await transport.send(request)
    if not 200 <= response.status < 300:
        try:
            await response.raise_for_status()
        except NotFoundError:
            return None
    return decoded(msgspec.json.Decoder(shape).decode, await response.read())
