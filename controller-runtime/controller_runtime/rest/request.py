# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests as values, built here by pure functions and sent by a transport, and the options of the client's verbs.

Paths are percent-encoded. Groups, versions, namespaces and names may come from users. As in client-go, a value that is
not a single path segment is not escaped but rejected (``InvalidRequestError``). A query is a tuple of pairs in a fixed
order, so that equal calls give equal requests.

Every client takes options as keyword arguments, ``**options: Unpack[ListOptions]``. A type checker reports unknown
options and wrong types. At run time, clients call :func:`check_options`, which raises TypeError for an unknown option
and for a value of another type. Without this check, the text ``"none"`` would count as true for ``dry_run``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final, Literal, TypedDict, Unpack
from urllib.parse import quote, urlencode

import msgspec

from controller_runtime.machinery import Resource, names
from controller_runtime.machinery.labels import LabelSelectorLike as LabelSelectorLike
from controller_runtime.machinery.labels import selector_string as selector_string
from controller_runtime.machinery.meta import LabelSelector
from controller_runtime.machinery.patch import APPLY_PATCH

from .errors import InvalidRequestError
from .http1 import ORDINARY, Bounds

DEFAULT_TIMEOUT: Final = 40.0
"""Seconds; longer than the 34 s after which an API server ends a write itself, e.g. because a webhook is slow."""
COLLECTION: Final = Bounds(1 << 30, 600.0)
"""Limits for lists, for instance of all pods of a large cluster over a slow network."""
DELETION: Final = Bounds(1 << 20, 600.0, unread=1 << 30)
"""Limits for the deletion of a collection. The response contains all deleted objects, but they are not needed."""
JSON: Final = "application/json"
TEXT: Final = "text/plain"
APPLY: Final = APPLY_PATCH
_AS_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_AS_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_ACCEPT: Final = {False: {"Accept": JSON}, True: {"Accept": _AS_METADATA}}
"""The headers of requests for an object: for the whole object, and for its metadata only."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
"""Matches the segments of a path that need no check and no escape."""
_LONGEST_SHOWN: Final = 64
"""Maximum number of characters that an error quotes from an invalid value."""

Query = tuple[tuple[str, str], ...]
_encoded: Final = lru_cache(maxsize=64)(urlencode)
"""Encoded queries are cached, because a program repeats a small number of queries."""
_SHORT: Final = 512
"""A query whose values have more characters in total is not cached, because selectors may contain long values."""


Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Ignore", "Warn", "Strict"]


class Selection(TypedDict, total=False):
    """Selects objects of a kind."""

    namespace: str
    """The default is all namespaces."""
    labels: LabelSelectorLike | None
    """None, like an empty map or an empty LabelSelector, selects all objects. A selector in a spec that may be absent
    usually means no objects then, as in Go: use ``machinery.labels.from_label_selector``, or test for None first."""
    fields: Mapping[str, str] | None
    """For a cache, names of registered indices and their values; for the server, a field selector."""


class WatchOptions(Selection, total=False):
    """Options of ``watch``."""

    resource_version: str
    """Report only changes after this version, e.g. that of a list. If not given, report existing objects first."""


class ListOptions(Selection, total=False):
    """Options of ``list``."""

    limit: int | None
    """The maximum number of objects; the server returns a ``continue_token`` for the next page."""
    continue_token: str


class CreateOptions(TypedDict, total=False):
    """Options of ``create``."""

    field_owner: str
    """The name under which the written fields are recorded; by default the server derives it from the user agent."""
    dry_run: bool
    """Run admission and validation, and store nothing."""
    field_validation: FieldValidation | None
    """How the server treats unknown and duplicate fields; see :class:`controller_runtime.client.LiveClient`."""


class UpdateOptions(CreateOptions, total=False):
    """Options of ``update``."""


class PatchOptions(CreateOptions, total=False):
    """Options of ``patch``."""

    force: bool
    """Take over fields from other owners; for apply patches only."""


class _FieldOwner(TypedDict):
    field_owner: str


class ApplyOptions(_FieldOwner, total=False):
    """Options of ``apply``, which requires a ``field_owner``."""

    force: bool
    """Take over fields from other owners instead of failing with a ConflictError."""
    dry_run: bool
    field_validation: FieldValidation | None


WriteOptions = CreateOptions | UpdateOptions | PatchOptions | ApplyOptions


class CollectionDeleteOptions(TypedDict, total=False):
    """Options that ``delete`` and ``delete_all_of`` share."""

    propagation: Propagation | None
    """How the server treats dependents; the default depends on the kind."""
    grace_period_seconds: int | None
    dry_run: bool


class DeleteOptions(CollectionDeleteOptions, total=False):
    """Options of ``delete``."""

    preconditions: Mapping[str, str] | None
    """The required ``uid`` and ``resourceVersion``. If the object has another one, the call raises ConflictError."""


class DeleteAllOfOptions(Selection, CollectionDeleteOptions, total=False):
    """Options of ``delete_all_of``."""


class LogOptions(TypedDict, total=False):
    """Which part of a container's log is returned."""

    container: str
    """The default is the only container of the pod."""
    previous: bool
    """Return the log of the container's previous run, which has ended."""
    timestamps: bool
    """Begin each line with its time."""
    tail_lines: int
    """The maximum number of lines; the last lines are returned."""
    since_seconds: int
    """Return only lines of the last seconds."""
    limit_bytes: int
    """The maximum number of bytes; the last line may be cut."""


_TEXT: Final = ((str,), "a text")
_FLAG: Final = ((bool,), "True or False")
_NUMBER: Final = ((int,), "a number")
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "namespace": ((str,), "a text, the name of one namespace"),
    "labels": ((str, Mapping, LabelSelector), "a map of labels, a text such as 'a=b', or a LabelSelector"),
    "fields": ((Mapping, str), "a map of fields and their values"),
    "preconditions": ((Mapping,), "a map with uid or resourceVersion"),
    "container": _TEXT,
    "continue_token": _TEXT,
    "field_owner": _TEXT,
    "field_validation": _TEXT,
    "propagation": _TEXT,
    "resource_version": _TEXT,
    "dry_run": _FLAG,
    "force": _FLAG,
    "previous": _FLAG,
    "timestamps": _FLAG,
    "grace_period_seconds": _NUMBER,
    "limit": _NUMBER,
    "limit_bytes": _NUMBER,
    "since_seconds": _NUMBER,
    "tail_lines": _NUMBER,
}
"""The types of each option and their description for messages. None is allowed, too: it means the default."""
_CERTAIN: Final = {
    name: {*types, type(None), *({dict} if Mapping in types else ())} for name, (types, _) in _TYPES.items()
}
"""Types of which nothing but membership is checked, which costs no call."""
_CERTAIN["preconditions"] = {type(None)}
_PRECONDITIONS: Final = frozenset({"uid", "resourceVersion"})


@cache
def _names(verb: type) -> tuple[frozenset[str], frozenset[str]]:
    required: frozenset[str] = verb.__required_keys__  # type: ignore[attr-defined]  # every TypedDict has it
    optional: frozenset[str] = verb.__optional_keys__  # type: ignore[attr-defined]
    return required | optional, required


def check_options(verb: type, given: Mapping[str, object]) -> None:
    """Check the options of a call: ``check_options(ListOptions, options)``. Only the values of known names are checked.

    Raises:
        TypeError: an option is unknown or has a value of a wrong type, or a required option is missing.
        ValueError: a precondition is unknown.
    """
    known, required = _names(verb)
    names = given.keys()
    if not names <= known:
        import difflib  # only for this error

        name = min(names - known)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known options are {', '.join(sorted(known))}"
        raise TypeError(f"{verb.__name__} has no option {name}; {hint}")
    if not required <= names:
        raise TypeError(f"{verb.__name__}: {min(required - names)} is required")
    for name, value in given.items():
        if name in _CERTAIN and type(value) not in _CERTAIN[name]:
            _check_value(verb, name, value)


def _check_value(verb: type, name: str, value: object) -> None:
    types, wanted = _TYPES[name]
    if not isinstance(value, (*types, type(None))) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{verb.__name__}: {name} must be {wanted}, not {value!r:.100}")
    if name == "preconditions" and isinstance(value, Mapping) and not _PRECONDITIONS.issuperset(value):
        unknown = ", ".join(sorted(map(str, value.keys() - _PRECONDITIONS)))
        raise ValueError(f"{verb.__name__}: {name} must be {wanted}; the server ignores {unknown}")


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, without the server's address and credentials."""

    method: str
    path: str
    query: Query = ()
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds to wait for the head of the response, and then for each part of its body. For a stream, only the wait for
    the head is limited. None means ``bounds.seconds``; for a stream, None means no limit."""
    stream: bool = False
    """True if the response's body arrives over time and is read line by line."""
    resource: Resource | None = None
    """The resource that the request reads or writes; None for requests that concern no objects, e.g. discovery."""
    namespace: str = ""
    """The namespace that the request is limited to."""
    name: str = ""
    """The object that the request reads or writes; empty for requests that concern a collection."""
    subresource: str = ""
    """The subresource of the object, e.g. ``status``."""
    bounds: Bounds = ORDINARY
    """The maximum size and total duration of the response; not applied to a stream."""

    @property
    def target(self) -> str:
        """Path and query as in the request line."""
        if not self.query:
            return self.path
        short = sum(len(value) for _, value in self.query) <= _SHORT
        return f"{self.path}?{(_encoded if short else urlencode)(self.query)}"


def field_selector_string(fields: Mapping[str, str] | str | None) -> str:
    r"""Return a field selector in query syntax; ``\``, ``,`` and ``=`` in a map's values are escaped."""
    if not fields:
        return ""
    if isinstance(fields, str):
        return fields
    escape = str.maketrans({"\\": "\\\\", ",": "\\,", "=": "\\="})
    return ",".join(f"{path}={value.translate(escape)}" for path, value in sorted(fields.items()))


def get(resource: Resource, namespace: str, name: str, *, metadata_only: bool = False) -> Request:
    """Read one object."""
    path, headers = object_path(resource, namespace, name), _ACCEPT[metadata_only]
    return Request("GET", path, headers=headers, resource=resource, namespace=namespace, name=name)


def list_(
    resource: Resource,
    *,
    namespace: str = "",
    labels: LabelSelectorLike | None = None,
    fields: Mapping[str, str] | str | None = None,
    limit: int | None = None,
    continue_token: str = "",
    resource_version: str | None = None,
    metadata_only: bool = False,
) -> Request:
    """Read a collection, or one page of it."""
    query = _query(
        labelSelector=selector_string(labels),
        fieldSelector=field_selector_string(fields),
        limit=str(limit) if limit else "",
        **{"continue": continue_token},
        resourceVersion=resource_version or "",
    )
    headers = {"Accept": _AS_METADATA_LIST if metadata_only else JSON}
    path = collection_path(resource, namespace)
    return Request("GET", path, query, headers, resource=resource, namespace=namespace, bounds=COLLECTION)


def watch(
    resource: Resource,
    *,
    namespace: str = "",
    labels: LabelSelectorLike | None = None,
    fields: Mapping[str, str] | str | None = None,
    resource_version: str = "",
    timeout_seconds: int | None = None,
    send_initial_events: bool = False,
    metadata_only: bool = False,
) -> Request:
    """Watch a collection; ``send_initial_events`` requests a streaming list first (WatchList)."""
    query = _query(
        labelSelector=selector_string(labels),
        fieldSelector=field_selector_string(fields),
        watch="true",
        allowWatchBookmarks="true",
        resourceVersion=resource_version,
        resourceVersionMatch="NotOlderThan" if send_initial_events else "",
        sendInitialEvents="true" if send_initial_events else "",
        timeoutSeconds=str(timeout_seconds) if timeout_seconds else "",
    )
    path, headers = collection_path(resource, namespace), _ACCEPT[metadata_only]
    return Request("GET", path, query, headers, stream=True, resource=resource, namespace=namespace)


def create(
    resource: Resource,
    namespace: str,
    body: bytes,
    *,
    metadata_only: bool = False,
    **options: Unpack[CreateOptions],
) -> Request:
    """Create an object.

    Raises:
        InvalidRequestError: the namespace of a namespaced kind is empty.
    """
    if resource.namespaced and not namespace:
        raise InvalidRequestError(f"{resource.group_resource}: the namespace may not be empty")
    query = _written(**options)
    headers = {**_ACCEPT[metadata_only], "Content-Type": JSON}
    path = collection_path(resource, namespace)
    return Request("POST", path, query, headers, body, resource=resource, namespace=namespace)


def update(
    resource: Resource,
    namespace: str,
    name: str,
    body: bytes,
    *,
    subresource: str = "",
    metadata_only: bool = False,
    **options: Unpack[CreateOptions],
) -> Request:
    """Replace an object, or a subresource of it."""
    return Request(
        "PUT",
        object_path(resource, namespace, name, subresource),
        _written(**options),
        {**_ACCEPT[metadata_only], "Content-Type": JSON},
        body,
        resource=resource,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def patch(
    resource: Resource,
    namespace: str,
    name: str,
    body: bytes,
    *,
    content_type: str,
    subresource: str = "",
    metadata_only: bool = False,
    **options: Unpack[PatchOptions],
) -> Request:
    """Patch an object, or a subresource of it, with a body of ``content_type``."""
    return Request(
        "PATCH",
        object_path(resource, namespace, name, subresource),
        _written(**options),
        {**_ACCEPT[metadata_only], "Content-Type": content_type},
        body,
        resource=resource,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def delete(resource: Resource, namespace: str, name: str, options: bytes | None = None) -> Request:
    """Delete an object; ``options`` is a DeleteOptions."""
    headers = {"Accept": JSON} | ({"Content-Type": JSON} if options else {})
    path = object_path(resource, namespace, name)
    return Request(
        "DELETE", path, headers=headers, body=options, resource=resource, namespace=namespace, name=name
    )


def delete_collection(
    resource: Resource,
    *,
    namespace: str = "",
    labels: LabelSelectorLike | None = None,
    fields: Mapping[str, str] | str | None = None,
    options: bytes | None = None,
) -> Request:
    """Delete the objects of a collection that match the selectors.

    Raises:
        InvalidRequestError: the namespace of a namespaced kind is empty.
    """
    if resource.namespaced and not namespace:
        raise InvalidRequestError(f"{resource.group_resource}: the namespace may not be empty")
    query = _query(labelSelector=selector_string(labels), fieldSelector=field_selector_string(fields))
    headers = {"Accept": _AS_METADATA_LIST} | ({"Content-Type": JSON} if options else {})
    path = collection_path(resource, namespace)
    return Request(
        "DELETE", path, query, headers, options, resource=resource, namespace=namespace, bounds=DELETION
    )


def post(request: Request, body: bytes, **options: Unpack[CreateOptions]) -> Request:
    """Return the request that posts ``body`` to the path of ``request``, e.g. of a subresource."""
    return msgspec.structs.replace(
        request,
        method="POST",
        query=_written(**options),
        headers={**request.headers, "Content-Type": JSON},
        body=body,
    )


def subresource(request: Request, name: str) -> Request:
    """Return ``request`` with the path of the subresource ``name``; ``request`` must name one object."""
    return msgspec.structs.replace(request, path=f"{request.path}/{segment(name)}", subresource=name)


def log(
    resource: Resource, namespace: str, name: str, *, follow: bool = False, **options: Unpack[LogOptions]
) -> Request:
    """Read the log of a container of a pod.

    With ``follow``, the response ends with the container. A quiet container may be silent for any time, so there is no
    time limit: make the request a stream.
    """
    query = _query(
        container=options.get("container", ""),
        follow="true" if follow else "",
        previous="true" if options.get("previous") else "",
        timestamps="true" if options.get("timestamps") else "",
        tailLines=_number(options.get("tail_lines")),
        sinceSeconds=_number(options.get("since_seconds")),
        limitBytes=_number(options.get("limit_bytes")),
    )
    read = subresource(get(resource, namespace, name), "log")
    timeout = None if follow else DEFAULT_TIMEOUT
    return msgspec.structs.replace(read, query=query, headers={"Accept": f"{TEXT}, */*"}, timeout=timeout)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _written(
    field_owner: str = "", force: bool = False, dry_run: bool = False, field_validation: str | None = None
) -> Query:
    query = []
    if field_owner:
        query.append(("fieldManager", field_owner))
    if force:
        query.append(("force", "true"))
    if dry_run:
        query.append(("dryRun", "All"))
    if field_validation:
        query.append(("fieldValidation", field_validation))
    return tuple(query)


def _query(**parameters: str) -> Query:
    return tuple((name, value) for name, value in parameters.items() if value)


def segment(value: str) -> str:
    """Return ``value`` as one segment of a path.

    Raises:
        InvalidRequestError: the value is empty, ``.`` or ``..``, or contains ``/`` or ``%``.
    """
    if _PLAIN.fullmatch(value):
        return value
    try:
        if names.is_path_segment(value):
            return quote(value, safe="")
    except UnicodeEncodeError:
        pass
    raise InvalidRequestError(f"{value[:_LONGEST_SHOWN]!r} is not valid in the path of a request")


def group_version_path(group: str, version: str) -> str:
    """Return the path of an API group and version.

    Raises:
        InvalidRequestError: the group or version is not valid.
    """
    if not names.is_api_group(group) or not names.is_api_version(version):
        shown = f"{group[:_LONGEST_SHOWN]}/{version[:_LONGEST_SHOWN]}"
        raise InvalidRequestError(f"{shown!r} is not the group and version of an API")
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


@lru_cache(maxsize=256)
def _roots(resource: Resource) -> tuple[str, str]:
    """Return the parts of a path around the namespace, such as ``("/apis/apps/v1", "deployments")``."""
    return group_version_path(resource.group, resource.version), segment(resource.plural)


def collection_path(resource: Resource, namespace: str = "") -> str:
    """Return the path of a kind's objects in ``namespace``; an empty ``namespace`` means all namespaces.

    Raises:
        InvalidRequestError: the namespace or the resource is not valid in a path.
    """
    root, plural = _roots(resource)
    if resource.namespaced and namespace:
        return f"{root}/namespaces/{segment(namespace)}/{plural}"
    return f"{root}/{plural}"


def object_path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object, or of a subresource of it.

    Raises:
        InvalidRequestError: the name, or the namespace of a namespaced kind, is empty or not valid in a path.
    """
    if not name:
        raise InvalidRequestError(f"{resource.group_resource}: an object's name may not be empty")
    if resource.namespaced and not namespace:
        raise InvalidRequestError(f"{resource.group_resource} {name}: the namespace may not be empty")
    root, plural = _roots(resource)
    if resource.namespaced:
        root = f"{root}/namespaces/{segment(namespace)}"
    below = f"/{segment(subresource)}" if subresource else ""
    return f"{root}/{plural}/{segment(name)}{below}"
