# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LiveClient: typed calls to the API server, each of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, Unpack

import msgspec

from controller_runtime import log, rest
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.lazy import LazyObject
from controller_runtime.apis.machinery.lazy import parts as parts_of
from controller_runtime.apis.machinery.object import Object, PartialObjectMetadata
from controller_runtime.rest import request as requests

from . import interfaces
from .lazy import Answer, bounded
from .options import (
    ApplyOptions,
    CreateOptions,
    DeleteAllOfOptions,
    DeleteOptions,
    FieldValidation,
    ListOptions,
    PatchOptions,
    UpdateOptions,
    WatchOptions,
    check_options,
)

if TYPE_CHECKING:
    from .watching import Watch

T = TypeVar("T", bound=Object)
_log = log.logger_from("client")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _List(msgspec.Struct):
    """A list whose items are undecoded."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


_list_decoder = msgspec.json.Decoder(_List)
_decode_answer: Final = msgspec.json.Decoder(dict[str, JSON]).decode


class LiveClient:
    """A Client that sends every call to the API server.

    ``field_validation`` sets how the server treats unknown and duplicate fields in writes: drop them (``Ignore``),
    drop them with a warning (``Warn``, the server's default) or reject the write (``Strict``: BadRequestError,
    for a patch InvalidError).
    """

    def __init__(
        self,
        transport: rest.RoundTripper,
        mapper: rest.RESTMapper | None = None,
        *,
        field_validation: FieldValidation | None = None,
    ) -> None:
        self.transport = transport
        self.mapper = mapper or rest.RESTMapper(transport)
        self.field_validation = field_validation

    @property
    def status(self) -> SubResource:
        """The writer of ``status``."""
        return SubResource(self, "status")

    def subresource(self, name: str) -> SubResource:
        """Return the writer of one subresource."""
        return SubResource(self, name)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        namespace, name = key
        resource = await self.mapper.resource_for(kind)
        request = requests.get(resource, namespace, name, metadata_only=is_metadata(kind))
        return Answer(kind, await self._send(request), name=name).object

    async def list(self, kind: type[T], **options: Unpack[ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors; with ``limit``, one page of them."""
        check_options(ListOptions, options)
        resource = await self.mapper.resource_for(kind)
        request = requests.list_(resource, metadata_only=is_metadata(kind), **options)
        return decode_list(kind, await self._send(request))

    def watch(self, kind: type[T], **options: Unpack[WatchOptions]) -> Watch[T]:
        """Return the changes of ``kind`` as an endless async iterator of :class:`WatchEvent`.

        ::

            async with client.watch(Pod, namespace="team-a") as events:
                async for event in events:
                    print(event.type, event.object.name)

        Without ``resource_version``, existing objects are returned first, as ADDED. With one, e.g. of a list, only
        later changes are returned. Objects that start or stop matching a selector are ADDED or DELETED.

        A connection that ends, breaks or is silent is replaced, with a growing delay after failures, and the watch
        continues after the last event, without losing or repeating any. Bookmarks are not returned; they advance the
        iterator's ``resource_version``, so that a quiet watch also continues from a recent version.

        Iterating raises:
            ExpiredError (410): the version has been compacted. Changes since then are unknown: list again.
            StatusError: the server rejects the watch, e.g. ForbiddenError.
            TransportError: the first connection failed.
            AnswerError: an object is not of the kind.
        """
        from .watching import Watch

        check_options(WatchOptions, options)
        return Watch(self, kind, options)

    async def create(self, obj: T, **options: Unpack[CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        check_options(CreateOptions, options)
        kind = type(obj)
        resource = await self.mapper.resource_for(kind)
        options.setdefault("field_validation", self.field_validation)
        request = requests.create(
            resource, obj.namespace, obj.to_json(), metadata_only=is_metadata(kind), **options
        )
        return Answer(kind, await self._send(request), name=obj.name).object

    async def update(self, obj: T, **options: Unpack[UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is not the newest."""
        return await self._update(obj, "", options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        return (await self._patch(obj, patch, "", options)).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]
    ) -> LazyObject[T]:
        """Patch as :meth:`patch` does; return the object undecoded."""
        return await self._patch(obj, patch, "", options)

    async def apply(self, obj: T, **options: Unpack[ApplyOptions]) -> T:
        """Server-side apply exactly the fields that are set."""
        return (await self._apply(obj, "", options)).object

    async def apply_lazily(self, obj: T, **options: Unpack[ApplyOptions]) -> LazyObject[T]:
        """Apply as :meth:`apply` does; return the object undecoded."""
        return await self._apply(obj, "", options)

    async def delete(self, obj: Object, **options: Unpack[DeleteOptions]) -> None:
        """Delete the object named by ``obj``; preconditions: ``uid``, ``resourceVersion``."""
        await self.remove(obj, **options)

    async def remove(self, obj: T, **options: Unpack[DeleteOptions]) -> T | None:
        """Delete as :meth:`delete` does; return the object while it still exists, None once it is deleted."""
        check_options(DeleteOptions, options)
        kind = type(obj)
        resource = await self.mapper.resource_for(kind)
        body = await self._send(requests.delete(resource, obj.namespace, obj.name, delete_options(**options)))
        left = rest.decoded(_decode_answer, body) if body else {}
        return rest.decoded(kind.from_json, body) if _still_exists(left) else None

    async def delete_all_of(self, kind: type[Object], **options: Unpack[DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors."""
        check_options(DeleteAllOfOptions, options)
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
        if body := await self._send(request):
            rest.decoded(parts_of, body)

    async def _update(self, obj: T, subresource: str, options: UpdateOptions) -> T:
        check_options(UpdateOptions, options)
        options.setdefault("field_validation", self.field_validation)
        kind = type(obj)
        request = requests.update(
            await self.mapper.resource_for(kind),
            obj.namespace,
            obj.name,
            obj.to_json(),
            metadata_only=is_metadata(kind),
            **options,
        )
        return Answer(kind, await self._send(_below(request, subresource)), name=obj.name).object

    async def _patch(
        self, obj: T, patch: interfaces.Patch, subresource: str, options: PatchOptions
    ) -> LazyObject[T]:
        check_options(PatchOptions, options)
        options.setdefault("field_validation", self.field_validation)
        kind = type(obj)
        request = requests.patch(
            await self.mapper.resource_for(kind),
            obj.namespace,
            obj.name,
            patch.data(obj),
            content_type=patch.content_type,
            metadata_only=is_metadata(kind),
            **options,
        )
        return Answer(kind, await self._send(_below(request, subresource)), name=obj.name)

    async def _apply(self, obj: T, subresource: str, options: ApplyOptions) -> LazyObject[T]:
        check_options(ApplyOptions, options)
        options.setdefault("field_validation", self.field_validation)
        kind = type(obj)
        request = requests.apply(
            await self.mapper.resource_for(kind),
            obj.namespace,
            obj.name,
            apply_configuration(obj),
            metadata_only=is_metadata(kind),
            **options,
        )
        return Answer(kind, await self._send(_below(request, subresource)), name=obj.name)

    async def _send(self, request: rest.Request) -> bytes:
        response = await self.transport.send(request)
        await response.raise_for_status()
        return await response.read()


class SubResource:
    """Reads and writes one subresource with a LiveClient."""

    def __init__(self, client: LiveClient, name: str) -> None:
        self._client = client
        self._name = name

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj`` as an object of ``into`` (e.g. a Scale)."""
        resource = await self._client.mapper.resource_for(type(obj))
        request = requests.subresource(requests.get(resource, obj.namespace, obj.name), self._name)
        return Answer(into, await self._client._send(request), name=obj.name).object

    async def create(self, obj: Object, body: T, **options: Unpack[CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj`` (e.g. a TokenRequest, an Eviction)."""
        check_options(CreateOptions, options)
        options.setdefault("field_validation", self._client.field_validation)
        resource = await self._client.mapper.resource_for(type(obj))
        target = requests.subresource(requests.get(resource, obj.namespace, obj.name), self._name)
        answer = await self._client._send(requests.post(target, body.to_json(), **options))
        # The server answers an eviction or a binding with a Status only.
        return body if _is_success(rest.decoded(_decode_answer, answer)) else decode(type(body), answer)

    async def update(self, obj: T, **options: Unpack[UpdateOptions]) -> T:
        """Replace the subresource."""
        return await self._client._update(obj, self._name, options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]) -> T:
        """Patch the subresource."""
        return (await self._client._patch(obj, patch, self._name, options)).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]
    ) -> LazyObject[T]:
        """Patch the subresource; return the object undecoded."""
        return await self._client._patch(obj, patch, self._name, options)

    async def apply(self, obj: T, **options: Unpack[ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        return (await self._client._apply(obj, self._name, options)).object


def is_metadata(kind: type[Object]) -> bool:
    """Return True if ``kind`` contains only metadata."""
    return issubclass(kind, PartialObjectMetadata)


def decode(kind: type[T], body: bytes) -> T:
    """Return the object in ``body`` as a ``kind``; metadata-only objects get the apiVersion and kind of ``kind``."""
    return Answer(kind, body).object


def decode_list(kind: type[T], body: bytes) -> interfaces.ObjectList[T]:
    """Return the objects of a list in ``body``; the items get their apiVersion and kind.

    Objects that exceed the limits of ``machinery.shape`` are left out, so that one such object cannot make lists fail.
    """
    listed = rest.decoded(_list_decoder.decode, body)
    objects = interfaces.ObjectList(
        [
            decode(kind, text)
            for item in listed.items or ()
            if (text := listed_text(kind, bytes(item))) is not None
        ]
    )
    objects.resource_version = listed.metadata.resource_version
    objects.continue_token = listed.metadata.continue_
    objects.remaining = listed.metadata.remaining_item_count
    return objects


def listed_text(kind: type[Object], text: bytes) -> bytes | None:
    """Return the JSON of an object in a list or watch, or None if it exceeds the limits of ``machinery.shape``."""
    try:
        return bounded(text)
    except rest.AnswerError as error:
        _log.warning("Object skipped", kind=str(kind.gvk.group_kind), reason=str(error))
        return None


def apply_configuration(obj: Object) -> bytes:
    """Return ``obj`` as an apply configuration: without ``managedFields``, which the server rejects."""
    if obj.metadata.managed_fields is None:
        return obj.to_json()
    data = obj.to_dict()
    data["metadata"].pop("managedFields")
    return msgspec.json.encode(data)


def delete_options(**options: Unpack[DeleteOptions]) -> bytes:
    """Return the body of a deletion, a DeleteOptions object."""
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


def _still_exists(answer: dict[str, JSON]) -> bool:
    """Return True if the object still exists after a DELETE, whose response is a Status or the object."""
    if answer.get("kind") == "Status":
        return False
    metadata = answer.get("metadata")
    if not isinstance(metadata, dict):
        return False
    waiting = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp") and waiting)


def _is_success(answer: dict[str, JSON]) -> bool:
    return bool(answer.get("kind") == "Status" and answer.get("status") == "Success")


def _below(request: rest.Request, subresource: str) -> rest.Request:
    return requests.subresource(request, subresource) if subresource else request
