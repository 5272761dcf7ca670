# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Parse the requests to an API server in memory, and encode its responses."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from controller_runtime.machinery import (
    GVK,
    JSON,
    NamespacedName,
    PartialObjectMetadata,
    errors,
    field,
    labels,
)
from controller_runtime.rest import CompleteResponse, Request, Response

from . import subresources
from .storage import DeletionSettings
from .tables import Document, Table, not_served

Tables = Mapping[tuple[str, str, str], Table]
_APPLY = "application/apply-patch+yaml"
_META = {"apiVersion": "meta.k8s.io/v1"}
_POD: Final = GVK("", "v1", "Pod")
_DELETE_OPTIONS: Final = GVK("meta.k8s.io", "v1", "DeleteOptions")
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")
_EVERYWHERE: Final = ("metadata.name", "metadata.namespace")
_SELECTABLE: Final[Mapping[str, frozenset[str]]] = {
    "Pod": frozenset(
        {
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
        }
    ),
    "Event": frozenset(
        {"involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "reason", "type"}
    ),
    "Namespace": frozenset({"status.phase"}),
    "Secret": frozenset({"type"}),
    "Job": frozenset({"status.successful"}),
    "Node": frozenset({"spec.unschedulable"}),
}
"""For each Kubernetes kind, the fields that a field selector may contain besides name and namespace."""

_FALSE_WHEN_UNSET: Final = frozenset({"spec.hostNetwork", "spec.unschedulable"})


@dataclass(slots=True)
class ParsedRequest:
    """A parsed request: its verb, and the objects that it reads or writes."""

    verb: str
    table: Table
    key: NamespacedName
    subresource: str
    query: Mapping[str, str]
    request: Request
    picks: Callable[[Document], bool]
    """Returns True for an object that is in the namespace of the request and matches its selectors."""

    @property
    def gvk(self) -> GVK:
        return self.table.properties.gvk

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def content_type(self) -> str:
        return next((v for k, v in self.request.headers.items() if k.lower() == "content-type"), "")

    @property
    def is_apply(self) -> bool:
        return self.content_type == _APPLY

    @property
    def metadata_only(self) -> bool:
        """True if the client asks for objects with only their metadata."""
        return "as=PartialObjectMetadata" in self.request.headers.get("Accept", "")

    def check_subresource(self) -> None:
        """Raise NotFoundError if the kind does not have the requested subresource.

        Only ``status`` and ``scale``, and parts of some kinds, can be read, updated or patched.
        """
        properties = self.table.properties
        parts = subresources.PARTS.get((properties.gvk.group, properties.gvk.kind), frozenset())
        if self.subresource in parts and not properties.custom:
            return
        has = {"": True, "status": properties.status, "scale": properties.scale is not None}
        if not has.get(self.subresource):
            raise self.table.no_subresource(self.key.name)

    def manager(self, user: str) -> str:
        return self.query.get("fieldManager") or user

    def body(self) -> Any:
        """Return the JSON value of the body, newly decoded on each call."""
        return _decoded(self.request.body or b"{}")

    def document(self) -> Document:
        """Return the object in the body, newly decoded on each call. Raises ValueError if the metadata is malformed."""
        return checked(self.body())

    def delete_options(self, body: Document) -> DeletionSettings:
        """Return the options of a delete, from ``body``, which may be empty, and the query.

        Raises:
            InvalidError: the propagation policy is unknown.
        """
        grace = body.get("gracePeriodSeconds", self.query.get("gracePeriodSeconds"))
        propagation = body.get("propagationPolicy") or self.query.get("propagationPolicy")
        if propagation not in (None, *_PROPAGATIONS):
            unknown = field.not_supported(
                field.Path("propagationPolicy"), propagation, [*_PROPAGATIONS, "nil"]
            )
            raise errors.new_invalid(_DELETE_OPTIONS, "", field.AggregateError([unknown]))
        return DeletionSettings(
            propagation,
            None if grace is None else int(grace),
            body.get("preconditions") or {},
            self.dry_run or body.get("dryRun") == ["All"],
        )

    def representation(self, document: Document) -> Document:
        """Return an object in the form that the client asks for: whole, only its metadata, or its scale."""
        if self.subresource == "scale":
            return subresources.scale_of(self.table, document)
        if self.metadata_only:
            return {**_META, "kind": "PartialObjectMetadata", "metadata": document["metadata"]}
        gvk = self.gvk
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, **document}

    def collection(self, documents: list[Document], version: int, token: str = "", left: int = 0) -> Document:
        """Return a list, or one page of it."""
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if token:
            metadata |= {"continue": token, "remainingItemCount": left}
        gvk = self.gvk
        kind = "PartialObjectMetadataList" if self.metadata_only else f"{gvk.kind}List"
        api_version = "meta.k8s.io/v1" if self.metadata_only else gvk.api_version
        items = [self.representation(document) for document in documents]
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items}


def parse_request(request: Request, tables: Tables) -> ParsedRequest:
    """Return the parsed request.

    Raises:
        NotFoundError: the kind is not served.
        BadRequestError: a selector is malformed, or names a field that servers do not support.
        MethodNotAllowedError: the method is not one of GET, POST, PUT, PATCH and DELETE.
    """
    table, namespace, rest = _table_of(request.path, tables)
    if table is None:
        raise not_served()
    name, subresource = (*rest[1:3], "", "")[:2]
    query = dict(request.query)
    matcher = _matcher(query.get("labelSelector") or None)
    fields = [_requirement(part) for part in query.get("fieldSelector", "").split(",") if part]
    for path, value, _ in fields:
        _has_field(table, {}, path, value)  # refuse the request even if no object exists

    def picks(document: Document) -> bool:
        metadata = document["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        if not matcher.matches(metadata.get("labels")):
            return False
        return all(_has_field(table, document, path, value) is equal for path, value, equal in fields)

    key = NamespacedName(namespace if table.resource.namespaced else "", name)
    return ParsedRequest(_verb(request, name, query), table, key, subresource, query, request, picks)


def kind_of(path: str, tables: Tables) -> GVK | None:
    """Return the kind whose objects a path names, or None if the kind is not served."""
    return part_of(path, tables)[0]


def part_of(path: str, tables: Tables) -> tuple[GVK | None, str]:
    """Return the kind of the objects at a URL path (None if it is not served), and the subresource in the path."""
    table, _, rest = _table_of(path, tables)
    return (table.properties.gvk if table is not None else None), (*rest[2:3], "")[0]


def _table_of(path: str, tables: Tables) -> tuple[Table | None, str, list[str]]:
    """Return the table, the namespace, and the rest of a URL path: resource, name and subresource."""
    group, version, rest = _split(path)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and (group, version, rest[2]) in tables:
        namespace, rest = rest[1], rest[2:]
    return (tables.get((group, version, rest[0])) if rest else None), namespace, rest


@functools.lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, str, list[str]]:
    """Return the group, the version and the other segments of a URL path. Callers must not change the shared list."""
    steps = [unquote(step) for step in path.strip("/").split("/")]
    group, steps = ("", steps[1:]) if steps[0] == "api" else (steps[1], steps[2:])
    version, *rest = steps or [""]
    return group, version, rest


def _requirement(part: str) -> tuple[str, str, bool]:
    """Return the field and the value in one term of a field selector, and True for ``=`` or False for ``!=``."""
    path, unequal, value = part.partition("!=")
    if not unequal:
        path, _, value = part.replace("==", "=").partition("=")
    return path, value, not unequal


def _verb(request: Request, name: str, query: Mapping[str, str]) -> str:
    match request.method:
        case "GET":
            return "get" if name else "watch" if query.get("watch") == "true" else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if name else "deletecollection"
    raise errors.MethodNotAllowedError(
        "the server does not allow this method on the requested resource", code=405, reason="MethodNotAllowed"
    )


def _matcher(selector: labels.LabelSelectorLike | None) -> labels.Selector:
    """Parse a label selector. Raises BadRequestError if this fails."""
    try:
        return labels.selector(selector)
    except labels.SelectorError as error:
        raise errors.BadRequestError(str(error), code=400, reason="BadRequest") from error


def _has_field(table: Table, document: Document, path: str, value: str) -> bool:
    """Return True if the object matches the field selector ``path=value``.

    Raises:
        BadRequestError: servers do not allow this field in a selector for this kind.
    """
    custom = table.properties.custom
    known = table.properties.selectable if custom else _SELECTABLE.get(table.properties.gvk.kind)
    if path not in _EVERYWHERE and path not in (known or ()):
        if known is not None:
            message = f"field label not supported: {path}"
        else:
            message = f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        raise errors.BadRequestError(message, code=400, reason="BadRequest")
    selected: JSON = document
    for step in path.split("."):
        selected = selected.get(step) if isinstance(selected, dict) else None
    if selected is None and path in _FALSE_WHEN_UNSET:
        selected = False
    return _text(selected) == value


def _text(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def checked(document: Any) -> Document:
    """Return ``document``. Raises ValueError if it is not an object in JSON, or if its metadata is malformed."""
    PartialObjectMetadata.from_dict(document)
    return cast("Document", document)


def _decoded(body: bytes) -> JSON:
    """Return the JSON value of a body. Raises BadRequestError if the body is not JSON."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise errors.BadRequestError(str(error), code=400, reason="BadRequest") from error


def discovery(path: str, tables: Tables) -> Document | None:
    """Return the response for a discovery path, or None for all other paths."""
    if path == "/version":
        return {"major": "1", "minor": "35", "gitVersion": "v1.35.0"}
    if path.count("/") > 3:
        return None
    served = {(group, version) for group, version, _ in tables}
    if path == "/apis":
        names = sorted({group for group, _ in served if group})
        listed = [_group(name, served) for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    steps = path.strip("/").split("/")
    if steps[0] == "apis" and len(steps) == 2 and any(group == steps[1] for group, _ in served):
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(steps[1], served)}
    if steps[0] == "api" and len(steps) == 2:
        group_version = ("", steps[1])
    elif steps[0] == "apis" and len(steps) == 3:
        group_version = (steps[1], steps[2])
    else:
        return None
    if group_version not in served:
        return None
    resources = [
        {
            "name": table.resource.plural,
            "kind": table.properties.gvk.kind,
            "namespaced": table.resource.namespaced,
        }
        for (group, version, _), table in tables.items()
        if (group, version) == group_version
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "resources": resources}


def _group(name: str, served: set[tuple[str, str]]) -> Document:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for group, version in sorted(served)
        if group == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[-1]}


_HEADERS: Final = {"Content-Type": "application/json"}


class Stream(Response):
    """A response whose lines arrive over time."""

    def __init__(self, lines: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        self.status = 200
        self.headers = _HEADERS
        self._lines = lines
        self._on_close = on_close

    async def read(self) -> bytes:
        return b"\n".join([line async for line in self._lines])

    def lines(self) -> AsyncIterator[bytes]:
        return self._lines

    async def close(self) -> None:
        self._on_close()


def success(body: Any, status: int = 200) -> CompleteResponse:
    """Return a response with ``body`` as JSON."""
    return CompleteResponse(status, msgspec.json.encode(body))


def refusal(error: errors.StatusError) -> CompleteResponse:
    """Return the response for an error: its metav1.Status and, if the error has a delay, a Retry-After header."""
    headers = dict(_HEADERS)
    if error.retry_after is not None:
        headers["Retry-After"] = str(int(error.retry_after))
    return CompleteResponse(error.code, msgspec.json.encode(errors.to_status(error)), headers)


def proxy_error_page(status: int) -> CompleteResponse:
    """Return a proxy's error page."""
    return CompleteResponse(
        status, b"<html><body><h1>Bad Gateway</h1></body></html>", {"Content-Type": "text/html"}
    )
