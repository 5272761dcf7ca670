# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LiveClient: typed calls to the API server. Each call except ``watch`` sends one request (and discovery requests)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

import anyio.lowlevel
import msgspec

from controller_runtime import log, offload, rest
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import (
    JSON,
    LazyObject,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    Struct,
    rawjson,
)
from controller_runtime.machinery.base import MASK, check_secret_values, unset_fields
from controller_runtime.machinery.errors import NotFoundError, StatusError, from_status
from controller_runtime.machinery.object import check_kind, check_object
from controller_runtime.machinery.patch import RawPatch, check_patch
from controller_runtime.rest import request as requests
from controller_runtime.rest.errors import UNDECODABLE, undecodable

from . import interfaces, subresources

if TYPE_CHECKING:
    from .watching import Watch

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)
R = TypeVar("R")
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_log = log.logger_from("client")
_is_logged: Final = logging.getLogger(__name__).isEnabledFor


class LiveClient(subresources.ByName["SubResource"]):
    """A Client that sends every call to the API server.

    ``field_validation`` sets how the server treats unknown and duplicate fields in writes. It drops them (``Ignore``),
    drops them with a warning (``Warn``, the server's default) or rejects the write (``Strict``). A rejected patch
    raises InvalidError; any other rejected write raises BadRequestError.
    """

    def __init__(
        self,
        transport: rest.RoundTripper,
        mapper: rest.RESTMapper | None = None,
        *,
        field_validation: requests.FieldValidation | None = None,
    ) -> None:
        self.transport = transport
        self.mapper = mapper or rest.RESTMapper(transport)
        self.field_validation = field_validation

    @property
    def status(self) -> SubResource:
        """The writer of ``status``."""
        return SubResource(self, "status")

    def _subresource(self, name: str) -> SubResource:
        return SubResource(self, name)

    def _scales(self) -> subresources.Scales:
        return subresources.Scales(self._scale)

    async def _scale(self, verb: str, obj: Object, *arguments: Any, **options: Any) -> Any:
        name, checked = subresources.SCALE, cast("Any", options)
        scales = self._subresource(name)
        match verb, arguments:
            case "get", (into,):
                return await scales.get(obj, into)
            case "update", (scale,):
                named = subresources.named_as(scale, obj)
                return await scales.explain_404(obj, self._update(obj, named, name, checked))
            case "apply", (scale,):
                named = subresources.named_as(scale, obj)
                return (await scales.explain_404(obj, self._apply(obj, named, name, checked))).object
            case _, (patch, scale):
                body = subresources.scale_kind()() if scale is None else scale
                return (await scales.explain_404(obj, self._patch(obj, body, patch, name, checked))).object

    def _logs(self) -> subresources.Logs:
        return subresources.Logs(self)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        check_kind(kind)
        namespace, name = NamespacedName.of(key)
        resource = await self.mapper.resource_for(kind)
        request = requests.get(
            resource, namespace, name, metadata_only=issubclass(kind, PartialObjectMetadata)
        )
        return ResponseObject(kind, (await self._send(request))[1], name=name).object

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors; with ``limit``, one page of them."""
        check_kind(kind)
        requests.check_options(requests.ListOptions, options)
        resource = await self.mapper.resource_for(kind)
        request = requests.list_(resource, metadata_only=issubclass(kind, PartialObjectMetadata), **options)
        return await decode_list(kind, (await self._send(request))[1])

    def watch(self, kind: type[T], **options: Unpack[requests.WatchOptions]) -> Watch[T]:
        """Return the changes of ``kind`` as an endless async iterator of :class:`WatchEvent`.

        ::

            async with client.watch(Pod, namespace="team-a") as events:
                async for event in events:
                    print(event.type, event.object.name)

        Without ``resource_version``, existing objects are returned first, as ADDED. With a ``resource_version``, e.g.
        that of a list, only later changes are returned. An object that starts to match a selector is ADDED, and one
        that stops matching is DELETED.

        If a connection ends, breaks or is silent, the watch opens another one and continues after the last event. No
        event is lost or repeated. After failures, the delay before the next connection grows. Bookmarks are not
        returned; they advance the iterator's ``resource_version``, so that a quiet watch also continues from a recent
        version. Objects that cannot be decoded, and lines that are not JSON, are logged and left out.

        Iterating raises:
            ExpiredError (410): the version has been compacted. The changes since that version are unknown: list again.
            StatusError: the server rejects the watch, e.g. ForbiddenError.
            TransportError: the first connection failed.
            AnswerError: an object has no readable resourceVersion.
        """
        from .watching import Watch  # it decodes objects with functions of this module

        check_kind(kind)
        requests.check_options(requests.WatchOptions, options)
        return Watch(self, kind, options)

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        requests.check_options(requests.CreateOptions, options)
        check_object(obj)
        check_single(obj)
        kind = type(obj)
        resource = await self.mapper.resource_for(kind)
        options["field_validation"] = options.get("field_validation") or self.field_validation
        request = requests.create(
            resource,
            obj.namespace,
            obj.to_json(),
            metadata_only=issubclass(kind, PartialObjectMetadata),
            **options,
        )
        return ResponseObject(kind, (await self._send(request))[1], name=obj.name).object

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is set and not the newest."""
        return await self._update(obj, obj, "", options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        return (await self._patch(obj, obj, patch, "", options)).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]
    ) -> LazyObject[T]:
        """Patch as :meth:`patch` does; return the object undecoded."""
        return await self._patch(obj, obj, patch, "", options)

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        """Server-side apply exactly the fields that are set."""
        return (await self._apply(obj, obj, "", options)).object

    async def apply_lazily(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> LazyObject[T]:
        """Apply as :meth:`apply` does; return the object undecoded."""
        return await self._apply(obj, obj, "", options)

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        """Delete the object named by ``obj``; ConflictError if it does not meet the ``preconditions``."""
        await self.remove(obj, **options)

    async def remove(self, obj: T, **options: Unpack[requests.DeleteOptions]) -> LazyObject[T] | None:
        """Delete as :meth:`delete` does; return the object if it still exists, e.g. because of a finalizer, or None.

        Only the metadata of the object is decoded and checked.
        """
        requests.check_options(requests.DeleteOptions, options)
        check_object(obj)
        kind = type(obj)
        resource = await self.mapper.resource_for(kind)
        request = requests.delete(resource, obj.namespace, obj.name, delete_options(**options))
        status, body = await self._send(request)
        if status == HTTPStatus.NO_CONTENT or not still_exists(body):
            return None
        left = ResponseObject(kind, body, name=obj.name)
        left.metadata  # noqa: B018  # reading it raises an error if this is another object
        return left

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors."""
        check_kind(kind)
        requests.check_options(requests.DeleteAllOfOptions, options)
        request = requests.delete_collection(
            await self.mapper.resource_for(kind),
            namespace=options.get("namespace", ""),
            labels=options.get("labels"),
            fields=options.get("fields"),
            options=delete_options(
                propagation=options.get("propagation"),
                grace_period_seconds=options.get("grace_period_seconds"),
                dry_run=options.get("dry_run", False),
            ),
        )
        _, body = await self._send(request)
        if body:
            rest.decoded(rawjson.parts, body)

    # ``body`` is ``obj`` itself or, for a subresource of another kind, an object of that kind.

    async def _update(self, obj: Object, body: T, subresource: str, options: requests.UpdateOptions) -> T:
        requests.check_options(requests.UpdateOptions, options)
        check_object(obj)
        options["field_validation"] = options.get("field_validation") or self.field_validation
        kind, text = type(body), body.to_json()
        resource = await self.mapper.resource_for(type(obj))
        request = requests.update(
            resource,
            obj.namespace,
            obj.name,
            text,
            subresource=subresource,
            metadata_only=issubclass(kind, PartialObjectMetadata),
            **options,
        )
        return ResponseObject(kind, (await self._send(request))[1], name=obj.name).object

    async def _patch(
        self,
        obj: Object,
        body: T,
        patch: interfaces.Patch,
        subresource: str,
        options: requests.PatchOptions,
    ) -> LazyObject[T]:
        requests.check_options(requests.PatchOptions, options)
        check_patch(obj, patch)
        options["field_validation"] = options.get("field_validation") or self.field_validation
        kind, text = type(body), patch.data(body)
        if MASK in text:
            check_secret_values(body)
        namespace, name = obj.key
        request = requests.patch(
            await self.mapper.resource_for(type(obj)),
            namespace,
            name,
            text,
            content_type=patch.content_type,
            subresource=subresource,
            metadata_only=issubclass(kind, PartialObjectMetadata),
            **options,
        )
        return ResponseObject(kind, (await self._send(request))[1], name=name, sent=text)

    async def _apply(
        self, obj: Object, body: T, subresource: str, options: requests.ApplyOptions
    ) -> LazyObject[T]:
        requests.check_options(requests.ApplyOptions, options)
        check_object(obj)
        check_single(body)
        patch = RawPatch(requests.APPLY, apply_configuration(body))
        return await self._patch(obj, body, patch, subresource, cast("requests.PatchOptions", options))

    async def _send(self, request: rest.Request) -> tuple[int, bytes]:
        """Return the status and the body of a successful response."""
        response = await self.transport.send(request)
        try:
            await response.raise_for_status()
        except NotFoundError as error:
            error.namespace = request.namespace
            raise
        if _is_logged(logging.DEBUG):
            log_write(request, response.status)
        return response.status, await response.read()


class SubResource:
    """Reads and writes one subresource with a LiveClient."""

    def __init__(self, client: LiveClient, name: str) -> None:
        self._client = client
        self._name = name

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj`` as an object of ``into`` (e.g. a Scale)."""
        check_object(obj)
        check_kind(into, "into")
        resource = await self._client.mapper.resource_for(type(obj))
        request = requests.subresource(requests.get(resource, obj.namespace, obj.name), self._name)
        _, answer = await self.explain_404(obj, self._client._send(request))
        return ResponseObject(into, answer, name=obj.name).object

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj`` (e.g. a TokenRequest, an Eviction)."""
        check_object(obj)
        check_object(body, "body")
        requests.check_options(requests.CreateOptions, options)
        body = subresources.named_as(body, obj)
        options["field_validation"] = options.get("field_validation") or self._client.field_validation
        resource = await self._client.mapper.resource_for(type(obj))
        target = requests.subresource(requests.get(resource, obj.namespace, obj.name), self._name)
        request = requests.post(target, body.to_json(), **options)
        _, answer = await self.explain_404(obj, self._client._send(request))
        if rest.decoded(_decode_outline, answer).is_success:
            return body  # the server answers an eviction or a binding with a Status only
        return decode(type(body), answer)

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the subresource."""
        updated: T = await self.explain_404(obj, self._client._update(obj, obj, self._name, options))
        return updated

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        """Patch the subresource."""
        return (await self.explain_404(obj, self._client._patch(obj, obj, patch, self._name, options))).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]
    ) -> LazyObject[T]:
        """Patch the subresource; return the object undecoded."""
        return await self.explain_404(obj, self._client._patch(obj, obj, patch, self._name, options))

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        return (await self.explain_404(obj, self._client._apply(obj, obj, self._name, options))).object

    async def explain_404(self, obj: Object, call: Awaitable[R]) -> R:
        """Return the result of a call.

        If a custom kind does not have the subresource, the server answers as if the object did not exist. This would
        look like success to callers that ignore the absence of the object, so the object is read in this case.

        Raises:
            NotFoundError: as in ``call``; or the object exists, and its kind has no such subresource.
        """
        try:
            return await call
        except NotFoundError as error:
            kind, client = type(obj), self._client
            if not error.is_about(kind.gvk, kind.resource, obj.name):
                raise
            stored = None
            with suppress(StatusError, rest.RestError):
                resource = await client.mapper.resource_for(kind)
                read = requests.get(resource, obj.namespace, obj.name, metadata_only=True)
                stored = ResponseObject(PartialObjectMetadata, (await client._send(read))[1]).metadata
            if stored is None or obj.metadata.uid not in (None, stored.uid):
                raise
            text = f"{kind.gvk.group_kind} {obj.key} exists, but its kind has no subresource {self._name}"
            raise NotFoundError(text, code=404, reason="NotFound") from error

    async def apply_lazily(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> LazyObject[T]:
        """Server-side apply the subresource; return the object undecoded."""
        return await self.explain_404(obj, self._client._apply(obj, obj, self._name, options))


def log_write(request: rest.Request, status: int) -> None:
    """Log a successful write: its verb, resource and object. Reads are not logged."""
    verb = _VERBS.get(request.method)
    if verb is None:
        return
    if request.headers.get("Content-Type") == requests.APPLY:
        verb = "apply"
    of, namespace, name = request.resource, request.namespace, request.name
    resource = str(of.group_resource) if of is not None else request.path
    key = f"{namespace}/{name}" if namespace else name
    below = {"subresource": request.subresource} if request.subresource else {}
    dry = {"dryRun": True} if any(name == "dryRun" for name, _ in request.query) else {}
    _log.debug("Wrote", verb=verb, resource=resource, object=key, **below, **dry, status=status)


# Bodies of requests and responses: objects, lists, apply configurations and DeleteOptions.


class ResponseObject(LazyObject[T]):
    """The object in the response to a request.

    Reading ``object`` raises StatusError if the response is a Status that reports a failure. It raises AnswerError if
    the object is of another kind or exceeds the limits of ``machinery.rawjson``. If ``name`` is given, an object of
    another name is an AnswerError, too. Reading ``metadata`` raises AnswerError if the metadata cannot be decoded or
    has another name.
    """

    __slots__ = ("_name", "sent")

    def __init__(self, kind: type[T], text: bytes, *, name: str = "", sent: bytes | None = None) -> None:
        super().__init__(kind, text)
        self._name = name
        self.sent = sent

    def _decode(self) -> T:
        text, kind = self.text or b"", self.kind
        if len(text) > rawjson.SMALL:
            text = within_limits(text)
        try:
            obj = kind.from_json(text)
        except UNDECODABLE as error:
            _check_kind(text, kind.gvk.kind)
            raise undecodable(text, error) from error
        if issubclass(kind, PartialObjectMetadata):
            _check_kind(text, "")
            obj.api_version, obj.kind = kind.gvk.api_version, kind.gvk.kind
        if obj.metadata.name != self._name:
            _check_name(obj.name, self._name)
        return obj

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        return None  # a response is only checked as a whole

    def _decode_only(self, names: tuple[str, ...]) -> T:
        return self.object

    def _decode_metadata(self) -> ObjectMeta:
        metadata = rest.decoded(_metadata, self.text or b"")
        _check_name(metadata.name, self._name)
        return metadata


def within_limits(text: bytes) -> bytes:
    """Return an object's JSON. If it exceeds the limits of ``machinery.rawjson``, remove its managedFields.

    Raises:
        AnswerError: the object exceeds the limits even without managedFields; decoding it would block the process.
    """
    if rawjson.check(text, rawjson.WIDE) is not None:
        text = rawjson.without_managed_fields(text)
        if (reason := rawjson.check(text, rawjson.WIDE)) is not None:
            raise rest.AnswerError(f"the object is not decoded: {reason}")
    return text


def _metadata(text: bytes) -> ObjectMeta:
    fields = rawjson.parts(rawjson.metadata_text(text))
    fields.pop("managedFields", None)
    return ObjectMeta.from_json(within_limits(msgspec.json.encode(fields)))


class _Outline(msgspec.Struct):
    """The fields that show what a response is. They are not decoded, because they may have any type and size."""

    kind: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()
    spec: msgspec.Raw = msgspec.Raw()

    @property
    def kind_name(self) -> str:
        """The kind, or an empty string."""
        try:
            return msgspec.json.decode(self.kind, type=str)
        except rawjson.UNREADABLE:
            return ""

    @property
    def is_success(self) -> bool:
        """True for a Status that reports success."""
        return self.kind_name == "Status" and bytes(self.status) == b'"Success"'


_decode_outline: Final = msgspec.json.Decoder(_Outline).decode


def _check_kind(text: bytes, kind: str) -> None:
    """Raise StatusError for a Status that reports a failure, and AnswerError for an object that is not of ``kind``."""
    outline = rest.decoded(_decode_outline, text)
    received = outline.kind_name
    if received == "Status" != kind and not outline.is_success:
        raise from_status(rest.decoded(msgspec.json.decode, within_limits(text)), http_code=500)
    if kind and received and received != kind:
        raise rest.AnswerError(f"the response is a {received:.100}, not a {kind}")


def _check_name(received: str | None, name: str) -> None:
    if name and received != name:
        raise rest.AnswerError(f"the response is the object {received!r}, not {name!r}")


def decode(kind: type[T], body: bytes) -> T:
    """Return the object in ``body`` as a ``kind``; metadata-only objects get the apiVersion and kind of ``kind``."""
    return ResponseObject(kind, body).object


async def decode_list(kind: type[T], body: bytes) -> interfaces.ObjectList[T]:
    """Return the objects of a list in ``body``; the items get their apiVersion and kind.

    Objects that cannot be decoded are left out, so that one such object cannot make lists fail; ``skipped`` has the
    reasons.
    """
    listed = rest.decoded(rawjson.split_page, body)
    skipped: list[Exception] = []
    objects: interfaces.ObjectList[T] = interfaces.ObjectList()
    for number, item in enumerate(listed.items or (), 1):
        if (obj := decode_listed(kind, bytes(item), skipped.append)) is not None:
            objects.append(obj)
        if number % offload.STEP == 0:
            await anyio.lowlevel.checkpoint()
    objects.skipped = skipped
    objects.resource_version = listed.metadata.resource_version
    objects.continue_token = listed.metadata.continue_
    objects.remaining = listed.metadata.remaining_item_count
    return objects


def decode_listed(kind: type[T], text: bytes, skip: Callable[[Exception], object] | None = None) -> T | None:
    """Return an object of a list or watch.

    If the object is not of the kind or exceeds the limits of ``machinery.rawjson``, log its name, return None and call
    ``skip`` with the reason.
    """
    try:
        return decode(kind, text)
    except rest.AnswerError as error:
        group_kind, key = str(kind.gvk.group_kind), _key_of(text)
        _log.warning("Object skipped", kind=group_kind, object=key, reason=str(error))
        if skip is not None:
            skip(rest.AnswerError(f"{group_kind} {key}: {error}"))
        return None


def _key_of(text: bytes) -> str:
    """Return namespace and name of an object, or ``?`` if they cannot be read."""
    try:
        return str(ResponseObject(Object, text).key)
    except rest.AnswerError:
        return "?"


def check_single(obj: Object) -> None:
    """Raise InvalidRequestError for a list of objects, such as a ``v1`` List: the server stores only its items."""
    kind = type(obj).gvk.kind
    unnamed = kind.endswith("List") and not obj.name and not obj.metadata.generate_name
    if unnamed and isinstance(obj.to_dict().get("items"), list):
        text = "this is a list of objects; write each of its items"
        raise rest.InvalidRequestError(f"{type(obj).gvk.api_version} {kind}: {text}")


def apply_configuration(obj: Object) -> bytes:
    """Return ``obj`` as an apply configuration: the fields that were set, without Python defaults.

    The configuration has no ``managedFields``, which the server rejects.
    """
    fields = obj.metadata.managed_fields
    unset: dict[Any, Any] = {} if obj.applies_defaults else unset_fields(obj)
    if not unset and fields is None:
        return obj.to_json()
    if obj.applies_defaults:
        data = obj.to_dict()
        data["metadata"].pop("managedFields")
        return msgspec.json.encode(data)
    if fields is not None:
        unset["metadata"] = {**unset.get("metadata", {}), "managed_fields": True}
    body: bytes = obj.__pydantic_serializer__.to_json(obj, exclude_none=True, by_alias=True, exclude=unset)
    if MASK in body:
        check_secret_values(obj)
    return body


def delete_options(**options: Unpack[requests.DeleteOptions]) -> bytes:
    """Return the body of a deletion request, a DeleteOptions object."""
    body: dict[str, JSON] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if (propagation := options.get("propagation")) is not None:
        body["propagationPolicy"] = propagation
    if (grace_period := options.get("grace_period_seconds")) is not None:
        body["gracePeriodSeconds"] = grace_period
    if preconditions := options.get("preconditions"):
        body["preconditions"] = dict(preconditions)
    if options.get("dry_run"):
        body["dryRun"] = ["All"]
    return msgspec.json.encode(body)


class _Spec(msgspec.Struct):
    finalizers: list[str] | None = None


_decode_spec: Final = msgspec.json.Decoder(_Spec).decode


def still_exists(body: bytes) -> bool:
    """Return True if the server's response to a DELETE shows that the object still exists.

    Raises:
        StatusError: the response is a Status that reports a failure.
        AnswerError: the response is neither a Status nor an object.
    """
    outline = rest.decoded(_decode_outline, body)
    if outline.kind_name == "Status":
        _check_kind(body, "")
        return False
    if not outline.metadata:
        if not outline.kind:
            raise rest.AnswerError("the response to a deletion is neither a Status nor an object")
        return False
    metadata = ResponseObject(Object, body).metadata
    waiting = bool(metadata.finalizers or metadata.deletion_grace_period_seconds)
    if not waiting and outline.spec:
        with suppress(*rawjson.UNREADABLE):  # not the spec of a Namespace
            waiting = bool(_decode_spec(outline.spec).finalizers)
    return bool(metadata.deletion_timestamp) and waiting
