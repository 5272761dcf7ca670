# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests as values: built here by pure functions, sent by a transport.

A path is percent-encoded already; a query is a tuple of pairs in a fixed order, so that equal calls give
equal requests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

from pkg.apis.machinery.gvk import Resource
from pkg.apis.machinery.labels import LabelSelectorLike as LabelSelectorLike
from pkg.apis.machinery.labels import selector_string as selector_string

DEFAULT_TIMEOUT: Final = 30.0
JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
_AS_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_AS_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

Query = tuple[tuple[str, str], ...]
_encoded: Final = lru_cache(maxsize=64)(urlencode)
"""A program asks in few ways, again and again."""
_SHORT: Final = 512
"""Characters of the values of a query that is remembered: names in selectors may be any text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, without the server's address and credentials."""

    method: str
    path: str
    query: Query = ()
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds without a byte of the answer; of a stream only its first is waited for. None waits for ever."""
    stream: bool = False
    """The body arrives over time and is read by lines."""

    @property
    def target(self) -> str:
        """Path and query as they stand in the request line."""
        if not self.query:
            return self.path
        short = sum(len(value) for _, value in self.query) <= _SHORT
        return f"{self.path}?{(_encoded if short else urlencode)(self.query)}"


def field_selector_string(fields: Mapping[str, str] | str | None) -> str:
    r"""Return a field selector as the query writes it; ``\``, ``,`` and ``=`` in a map's values are escaped."""
    if not fields:
        return ""
    if isinstance(fields, str):
        return fields
    escape = str.maketrans({"\\": "\\\\", ",": "\\,", "=": "\\="})
    return ",".join(f"{path}={value.translate(escape)}" for path, value in sorted(fields.items()))


def collection_path(resource: Resource, namespace: str = "") -> str:
    """Return the path of a kind's objects, in one namespace or (with none) in all."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if resource.namespaced and namespace:
        return f"{root}/namespaces/{quote(namespace, safe='')}/{resource.plural}"
    return f"{root}/{resource.plural}"


def object_path(resource: Resource, namespace: str, name: str) -> str:
    """Return the path of one object.

    Raises:
        ValueError: the name is empty, or the namespace of a namespaced kind.
    """
    if not name:
        raise ValueError(f"{resource.group_resource}: an object's name may not be empty")
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource.group_resource} {name}: the namespace may not be empty")
    return f"{collection_path(resource, namespace)}/{quote(name, safe='')}"


def get(resource: Resource, namespace: str, name: str, *, metadata_only: bool = False) -> Request:
    """Read one object."""
    return Request("GET", object_path(resource, namespace, name), headers=_accept(metadata_only))


def list_(
    resource: Resource,
    *,
    namespace: str = "",
    labels: LabelSelectorLike | None = None,
    fields: Mapping[str, str] | str | None = None,
    limit: int | None = None,
    continue_token: str = "",
    resource_version: str | None = None,
    resource_version_match: str = "",
    metadata_only: bool = False,
) -> Request:
    """Read a collection, or one page of it."""
    query = _query(
        labelSelector=selector_string(labels),
        fieldSelector=field_selector_string(fields),
        limit=str(limit) if limit else "",
        **{"continue": continue_token},
        resourceVersion=resource_version or "",
        resourceVersionMatch=resource_version_match,
    )
    headers = {"Accept": _AS_METADATA_LIST if metadata_only else JSON}
    return Request("GET", collection_path(resource, namespace), query, headers)


def watch(
    resource: Resource,
    *,
    namespace: str = "",
    labels: LabelSelectorLike | None = None,
    fields: Mapping[str, str] | str | None = None,
    resource_version: str = "",
    timeout_seconds: int | None = None,
    bookmarks: bool = True,
    send_initial_events: bool = False,
    metadata_only: bool = False,
) -> Request:
    """Follow a collection; ``send_initial_events`` asks for a streaming list first (WatchList)."""
    query = _query(
        labelSelector=selector_string(labels),
        fieldSelector=field_selector_string(fields),
        watch="true",
        allowWatchBookmarks="true" if bookmarks else "",
        resourceVersion=resource_version,
        resourceVersionMatch="NotOlderThan" if send_initial_events else "",
        sendInitialEvents="true" if send_initial_events else "",
        timeoutSeconds=str(timeout_seconds) if timeout_seconds else "",
    )
    return Request("GET", collection_path(resource, namespace), query, _accept(metadata_only), stream=True)


def create(
    resource: Resource,
    namespace: str,
    body: bytes,
    *,
    field_owner: str = "",
    dry_run: bool = False,
    metadata_only: bool = False,
) -> Request:
    """Create an object.

    Raises:
        ValueError: the namespace of a namespaced kind is empty.
    """
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource.group_resource}: the namespace may not be empty")
    query = _query(fieldManager=field_owner, dryRun="All" if dry_run else "")
    headers = _accept(metadata_only) | {"Content-Type": JSON}
    return Request("POST", collection_path(resource, namespace), query, headers, body)


def update(
    resource: Resource,
    namespace: str,
    name: str,
    body: bytes,
    *,
    field_owner: str = "",
    dry_run: bool = False,
    metadata_only: bool = False,
) -> Request:
    """Replace an object."""
    query = _query(fieldManager=field_owner, dryRun="All" if dry_run else "")
    headers = _accept(metadata_only) | {"Content-Type": JSON}
    return Request("PUT", object_path(resource, namespace, name), query, headers, body)


def patch(
    resource: Resource,
    namespace: str,
    name: str,
    body: bytes,
    *,
    content_type: str,
    field_owner: str = "",
    force: bool = False,
    dry_run: bool = False,
    metadata_only: bool = False,
) -> Request:
    """Change an object by a patch of ``content_type``."""
    query = _query(fieldManager=field_owner, force="true" if force else "", dryRun="All" if dry_run else "")
    headers = _accept(metadata_only) | {"Content-Type": content_type}
    return Request("PATCH", object_path(resource, namespace, name), query, headers, body)


def apply(
    resource: Resource,
    namespace: str,
    name: str,
    body: bytes,
    *,
    field_owner: str,
    force: bool = False,
    dry_run: bool = False,
    metadata_only: bool = False,
) -> Request:
    """Server-side apply an object: the patch that creates it where it is missing."""
    return patch(
        resource,
        namespace,
        name,
        body,
        content_type=APPLY,
        field_owner=field_owner,
        force=force,
        dry_run=dry_run,
        metadata_only=metadata_only,
    )


def delete(resource: Resource, namespace: str, name: str, options: bytes | None = None) -> Request:
    """Delete an object; ``options`` is a DeleteOptions."""
    headers = _accept(metadata_only=False) | ({"Content-Type": JSON} if options else {})
    return Request("DELETE", object_path(resource, namespace, name), headers=headers, body=options)


def delete_collection(
    resource: Resource,
    *,
    namespace: str = "",
    labels: LabelSelectorLike | None = None,
    fields: Mapping[str, str] | str | None = None,
    options: bytes | None = None,
) -> Request:
    """Delete what the selectors pick from a collection.

    Raises:
        ValueError: the namespace of a namespaced kind is empty.
    """
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource.group_resource}: the namespace may not be empty")
    query = _query(labelSelector=selector_string(labels), fieldSelector=field_selector_string(fields))
    headers = _accept(metadata_only=False) | ({"Content-Type": JSON} if options else {})
    return Request("DELETE", collection_path(resource, namespace), query, headers, options)


def subresource(request: Request, name: str) -> Request:
    """Return ``request``, which names one object, turned to a subresource of it."""
    return dataclasses.replace(request, path=f"{request.path}/{quote(name, safe='')}")


def _accept(metadata_only: bool) -> dict[str, str]:
    return {"Accept": _AS_METADATA if metadata_only else JSON}


def _query(**parameters: str) -> Query:
    return tuple((name, value) for name, value in parameters.items() if value)
