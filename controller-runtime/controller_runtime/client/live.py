# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LiveClient: typed calls to the API server. Each call except ``watch`` sends one request (and discovery requests)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, TypeVar, Unpack, cast

from controller_runtime import log, rest
from controller_runtime.machinery import LazyObject, NamespacedName, Object, PartialObjectMetadata
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.rawjson import parts as parts_of
from controller_runtime.rest import request as requests

from . import bodies, interfaces, subresources
from . import options as opts
from .watching import Watch

T = TypeVar("T", bound=Object)
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_log = log.logger_from("client")


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
        field_validation: opts.FieldValidation | None = None,
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
        match verb, arguments:
            case "get", (into,):
                return await self._subresource(name).get(obj, into)
            case "update", (scale,):
                return await self._update(obj, subresources.named_as(scale, obj), name, checked)
            case "apply", (scale,):
                return (await self._apply(obj, subresources.named_as(scale, obj), name, checked)).object
            case _, (patch, scale):
                body = subresources.scale_kind()() if scale is None else scale
                return (await self._patch(obj, body, patch, name, checked)).object

    def _logs(self) -> subresources.Logs:
        return subresources.Logs(self)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        namespace, name = NamespacedName.of(key)
        resource = await self.mapper.resource_for(kind)
        request = requests.get(
            resource, namespace, name, metadata_only=issubclass(kind, PartialObjectMetadata)
        )
        return bodies.ResponseObject(kind, (await self._send(request))[1], name=name).object

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors; with ``limit``, one page of them."""
        opts.check_options(opts.ListOptions, options)
        resource = await self.mapper.resource_for(kind)
        request = requests.list_(resource, metadata_only=issubclass(kind, PartialObjectMetadata), **options)
        return await bodies.decode_list(kind, (await self._send(request))[1])

    def watch(self, kind: type[T], **options: Unpack[opts.WatchOptions]) -> Watch[T]:
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
        version. Objects that cannot be decoded are logged and left out.

        Iterating raises:
            ExpiredError (410): the version has been compacted. The changes since that version are unknown: list again.
            StatusError: the server rejects the watch, e.g. ForbiddenError.
            TransportError: the first connection failed.
            AnswerError: an object has no readable resourceVersion.
        """
        opts.check_options(opts.WatchOptions, options)
        return Watch(self, kind, options)

    async def create(self, obj: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        opts.check_options(opts.CreateOptions, options)
        bodies.check_single(obj)
        kind = type(obj)
        resource = await self.mapper.resource_for(kind)
        options.setdefault("field_validation", self.field_validation)
        request = requests.create(
            resource,
            obj.namespace,
            obj.to_json(),
            metadata_only=issubclass(kind, PartialObjectMetadata),
            **options,
        )
        return bodies.ResponseObject(kind, (await self._send(request))[1], name=obj.name).object

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is set and not the newest."""
        return await self._update(obj, obj, "", options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        return (await self._patch(obj, obj, patch, "", options)).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]
    ) -> LazyObject[T]:
        """Patch as :meth:`patch` does; return the object undecoded."""
        return await self._patch(obj, obj, patch, "", options)

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply exactly the fields that are set."""
        return (await self._apply(obj, obj, "", options)).object

    async def apply_lazily(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> LazyObject[T]:
        """Apply as :meth:`apply` does; return the object undecoded."""
        return await self._apply(obj, obj, "", options)

    async def delete(self, obj: Object, **options: Unpack[opts.DeleteOptions]) -> None:
        """Delete the object named by ``obj``; ConflictError if it does not meet the ``preconditions``."""
        await self.remove(obj, **options)

    async def remove(self, obj: T, **options: Unpack[opts.DeleteOptions]) -> T | None:
        """Delete as :meth:`delete` does; return the object if it still exists, e.g. because of a finalizer, or None."""
        opts.check_options(opts.DeleteOptions, options)
        kind = type(obj)
        resource = await self.mapper.resource_for(kind)
        request = requests.delete(resource, obj.namespace, obj.name, bodies.delete_options(**options))
        status, body = await self._send(request)
        if status == HTTPStatus.NO_CONTENT:
            return None
        left = rest.decoded(bodies.decode_answer, body)
        if "kind" not in left and "metadata" not in left:
            raise rest.AnswerError("the response to a deletion is neither a Status nor an object")
        return rest.decoded(kind.from_json, body) if bodies.still_exists(left) else None

    async def delete_all_of(self, kind: type[Object], **options: Unpack[opts.DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors."""
        opts.check_options(opts.DeleteAllOfOptions, options)
        request = requests.delete_collection(
            await self.mapper.resource_for(kind),
            namespace=options.get("namespace", ""),
            labels=options.get("labels"),
            fields=options.get("fields"),
            options=bodies.delete_options(
                propagation=options.get("propagation"),
                grace_period_seconds=options.get("grace_period_seconds"),
                dry_run=options.get("dry_run", False),
            ),
        )
        _, body = await self._send(request)
        if body:
            rest.decoded(parts_of, body)

    # ``body`` is ``obj`` itself or, for a subresource of another kind, an object of that kind.

    async def _update(self, obj: Object, body: T, subresource: str, options: opts.UpdateOptions) -> T:
        opts.check_options(opts.UpdateOptions, options)
        options.setdefault("field_validation", self.field_validation)
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
        return bodies.ResponseObject(kind, (await self._send(request))[1], name=obj.name).object

    async def _patch(
        self,
        obj: Object,
        body: T,
        patch: interfaces.Patch,
        subresource: str,
        options: opts.PatchOptions,
    ) -> LazyObject[T]:
        opts.check_options(opts.PatchOptions, options)
        path = (type(obj), obj.namespace, obj.name, subresource)
        return await self._sent(path, type(body), patch.content_type, patch.data(body), options)

    async def _apply(
        self, obj: Object, body: T, subresource: str, options: opts.ApplyOptions
    ) -> LazyObject[T]:
        opts.check_options(opts.ApplyOptions, options)
        bodies.check_single(body)
        checked = cast("opts.PatchOptions", options)
        path = (type(obj), obj.namespace, obj.name, subresource)
        return await self._sent(path, type(body), requests.APPLY, bodies.apply_configuration(body), checked)

    async def _sent(
        self,
        path: tuple[type[Object], str, str, str],
        kind: type[T],
        content_type: str,
        text: bytes,
        options: opts.PatchOptions,
    ) -> LazyObject[T]:
        """Send a patch to the path: the kind, namespace and name of an object, and a subresource."""
        options.setdefault("field_validation", self.field_validation)
        target, namespace, name, subresource = path
        request = requests.patch(
            await self.mapper.resource_for(target),
            namespace,
            name,
            text,
            content_type=content_type,
            subresource=subresource,
            metadata_only=issubclass(kind, PartialObjectMetadata),
            **options,
        )
        return bodies.ResponseObject(kind, (await self._send(request))[1], name=name)

    async def _send(self, request: rest.Request) -> tuple[int, bytes]:
        """Return the status and the body of a successful response."""
        response = await self.transport.send(request)
        try:
            await response.raise_for_status()
        except NotFoundError as error:
            error.namespace = request.namespace
            raise
        if log.may_write(log.DEBUG):
            log_write(request, response.status)
        return response.status, await response.read()


class SubResource:
    """Reads and writes one subresource with a LiveClient."""

    def __init__(self, client: LiveClient, name: str) -> None:
        self._client = client
        self._name = name

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj`` as an object of ``into`` (e.g. a Scale)."""
        resource = await self._client.mapper.resource_for(type(obj))
        request = requests.subresource(requests.get(resource, obj.namespace, obj.name), self._name)
        return bodies.ResponseObject(into, (await self._client._send(request))[1], name=obj.name).object

    async def create(self, obj: Object, body: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj`` (e.g. a TokenRequest, an Eviction)."""
        body = subresources.named_as(body, obj)
        opts.check_options(opts.CreateOptions, options)
        options.setdefault("field_validation", self._client.field_validation)
        resource = await self._client.mapper.resource_for(type(obj))
        target = requests.subresource(requests.get(resource, obj.namespace, obj.name), self._name)
        _, answer = await self._client._send(requests.post(target, body.to_json(), **options))
        if bodies.is_success(rest.decoded(bodies.decode_answer, answer)):
            return body  # the server answers an eviction or a binding with a Status only
        return bodies.decode(type(body), answer)

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the subresource."""
        return await self._client._update(obj, obj, self._name, options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch the subresource."""
        return (await self._client._patch(obj, obj, patch, self._name, options)).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]
    ) -> LazyObject[T]:
        """Patch the subresource; return the object undecoded."""
        return await self._client._patch(obj, obj, patch, self._name, options)

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        return (await self._client._apply(obj, obj, self._name, options)).object


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
