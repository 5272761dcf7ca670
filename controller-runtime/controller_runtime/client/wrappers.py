# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Clients around another client: read-only, for one namespace, or with the same options for every write.

They wrap any Client, including each other, and cover subresources::

    client = with_field_owner(mgr.client, "website-operator")
    await client.apply(website)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar, Unpack, cast

from controller_runtime.machinery import LazyObject, NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.object import check_kind, check_object
from controller_runtime.rest import request as requests

from . import interfaces, subresources

T = TypeVar("T", bound=Object)
W = TypeVar("W", requests.CreateOptions, requests.UpdateOptions, requests.PatchOptions)


def ignore_not_found(
    of: Object | type[Object], key: NamespacedName | tuple[str, str] | None = None
) -> AbstractContextManager[None, bool]:
    """Return a context that suppresses the NotFoundError of one object: ``ignore_not_found(obj)``, or its kind and key.

    The error that another object, a kind or a subresource does not exist is raised: it would look like success. Of an
    ExceptionGroup, as a TaskGroup raises it, only the other errors are raised.
    """
    if isinstance(of, type):
        check_kind(of, "of")
        if key is None:
            raise TypeError(f"ignore_not_found({of.__name__}, key): the key is missing")
        return _IgnoreNotFound(of, NamespacedName.of(key))
    check_object(of, "of")
    if key is not None and NamespacedName.of(key) != of.key:
        raise TypeError(f"ignore_not_found(obj): {of.key} is the key, not {key!r}")
    return _IgnoreNotFound(type(of), of.key)


class _IgnoreNotFound(AbstractContextManager[None, bool]):
    def __init__(self, kind: type[Object], key: NamespacedName) -> None:
        self._kind = kind
        self._key = key

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BaseExceptionGroup):
            is_expected: Callable[[BaseException], bool] = lambda each: self._is_expected(each)  # noqa: E731, PLW0108
            expected, others = error.split(is_expected)  # Python 3.11 takes a function, but no method
            if expected is not None and others is not None:
                raise others
            return others is None
        return error is not None and self._is_expected(error)

    def _is_expected(self, error: BaseException) -> bool:
        namespace, name = self._key
        return isinstance(error, NotFoundError) and error.is_about(
            self._kind.gvk, self._kind.resource, name, namespace
        )


def read_only(reader: interfaces.Reader) -> ReadOnly:
    """Return a client that only reads with ``reader``."""
    return ReadOnly(reader)


def namespaced(client: interfaces.Client, namespace: str) -> Namespaced:
    """Return ``client`` limited to one namespace."""
    return Namespaced(client, namespace)


class ReadOnly:
    """A Reader without write methods."""

    __slots__ = ("__reader",)

    def __init__(self, reader: interfaces.Reader) -> None:
        self.__reader = reader

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        return await self.__reader.get(kind, key)

    def peek(
        self, kind: type[T], key: NamespacedName | tuple[str, str]
    ) -> Coroutine[Any, Any, LazyObject[T]]:
        """Return the object undecoded: see :func:`controller_runtime.client.peek`."""
        return interfaces.peek(self.__reader, kind, key)

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors."""
        return await self.__reader.list(kind, **options)


class _NamespaceScope:
    """Adds the namespace to objects and keys, except for kinds known to be cluster-scoped."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def of(self, kind: type[Object], namespace: str, name: object) -> str:
        """Return the namespace to use; ValueError if ``namespace`` is a different namespace."""
        if kind.resource is not None and not kind.resource.namespaced:
            return namespace
        if namespace not in ("", self.namespace):
            raise ValueError(f"{kind.gvk.kind} {name}: outside the namespace {self.namespace}")
        return self.namespace

    def object(self, obj: T) -> T:
        """Return ``obj`` or, if it has no namespace, a copy of it in this namespace."""
        check_object(obj)
        namespace = self.of(type(obj), obj.namespace, obj.key)
        if namespace == obj.namespace:
            return obj
        copied = obj.model_copy()
        copied.metadata = obj.metadata.model_copy(update={"namespace": namespace})
        return copied


class _NamespacedWriter:
    """Writes objects in one namespace, or one of their subresources."""

    _client: interfaces.Writer | interfaces.SubResourceClient

    def __init__(self, scope: _NamespaceScope) -> None:
        self._scope = scope

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        return await self._client.update(self._scope.object(obj), **options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        return await self._client.patch(self._scope.object(obj), patch, **options)

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        return await self._client.apply(self._scope.object(obj), **options)


class Namespaced(_NamespacedWriter, subresources.ByName["NamespacedSubResource"]):
    """A Client for one namespace. Objects without a namespace are put into it; any other namespace is a ValueError."""

    _client: interfaces.Client

    def __init__(self, client: interfaces.Client, namespace: str) -> None:
        super().__init__(_NamespaceScope(namespace))
        self._client = client

    @property
    def status(self) -> NamespacedSubResource:
        """The writer of ``status``."""
        return self.subresource("status")

    def _subresource(self, name: str) -> NamespacedSubResource:
        return NamespacedSubResource(self._client.subresource(name), self._scope)

    def _scales(self) -> interfaces.ScaleClient:
        scales = self._client.subresource("scale")

        def send(verb: str, obj: Object, *arguments: Any, **options: Any) -> Any:
            return getattr(scales, verb)(self._scope.object(obj), *arguments, **options)

        return subresources.Scales(send)

    def _logs(self) -> interfaces.LogClient:
        return subresources.LogsOf(self._client.subresource("log"), self._scope.object)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        check_kind(kind)
        namespace, name = NamespacedName.of(key)
        return await self._client.get(kind, NamespacedName(self._scope.of(kind, namespace, name), name))

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        check_kind(kind)
        requests.check_options(requests.ListOptions, options)
        options["namespace"] = self._scope.of(kind, options.get("namespace", ""), "list")
        return await self._client.list(kind, **options)

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        return await self._client.create(self._scope.object(obj), **options)

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        await self._client.delete(self._scope.object(obj), **options)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        check_kind(kind)
        requests.check_options(requests.DeleteAllOfOptions, options)
        options["namespace"] = self._scope.of(kind, options.get("namespace", ""), "collection")
        await self._client.delete_all_of(kind, **options)


class NamespacedSubResource(_NamespacedWriter):
    """Writes a subresource of objects in one namespace."""

    _client: interfaces.SubResourceClient

    def __init__(self, client: interfaces.SubResourceClient, scope: _NamespaceScope) -> None:
        super().__init__(scope)
        self._client = client

    async def get(self, obj: Object, into: type[T]) -> T:
        return await self._client.get(self._scope.object(obj), into)

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        return await self._client.create(self._scope.object(obj), body, **options)


def with_field_owner(client: interfaces.Client, owner: str) -> WithSettings:
    """Return ``client`` with ``owner`` as the field owner of each write that does not set one."""
    return WithSettings(client, Settings(field_owner=owner))


def with_field_validation(client: interfaces.Client, validation: requests.FieldValidation) -> WithSettings:
    """Return ``client`` with ``validation`` as the default of the field validation of writes."""
    return WithSettings(client, Settings(field_validation=validation))


def dry_run(client: interfaces.Client) -> WithSettings:
    """Return ``client`` with every write and deletion as a dry run, regardless of the options of the call."""
    return WithSettings(client, Settings(dry_run=True))


class Settings:
    """Options added to writes."""

    def __init__(
        self,
        *,
        field_owner: str = "",
        field_validation: requests.FieldValidation | None = None,
        dry_run: bool = False,
    ) -> None:
        self._field_owner = field_owner
        self._field_validation = field_validation
        self.dry_run = dry_run

    def of(self, options: W) -> W:
        """Add the settings to ``options`` and return it. Only a dry run replaces an option that the caller set."""
        if self._field_owner and not options.get("field_owner"):
            options["field_owner"] = self._field_owner
        if self._field_validation is not None and options.get("field_validation") is None:
            options["field_validation"] = self._field_validation
        if self.dry_run:
            options["dry_run"] = True
        return options

    def of_apply(self, options: requests.PatchOptions) -> requests.ApplyOptions:
        """Do the same as :meth:`of`, for the options of ``apply``."""
        return cast("requests.ApplyOptions", self.of(options))  # the wrapped client checks for a field owner


class _WriterWithSettings:
    """Adds settings to writes of objects, or of one of their subresources."""

    _client: interfaces.Writer | interfaces.SubResourceClient

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        return await self._client.update(obj, **self._settings.of(options))

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        return await self._client.patch(obj, patch, **self._settings.of(options))

    async def apply(self, obj: T, **options: Unpack[requests.PatchOptions]) -> T:
        """Server-side apply; ``field_owner`` may be left to the settings."""
        return await self._client.apply(obj, **self._settings.of_apply(options))


class WithSettings(_WriterWithSettings, subresources.ByName["SubResourceWithSettings"]):
    """A Client that adds settings to each write; reads are passed on."""

    _client: interfaces.Client

    def __init__(self, client: interfaces.Client, settings: Settings) -> None:
        super().__init__(settings)
        self._client = client

    @property
    def status(self) -> SubResourceWithSettings:
        """The writer of ``status``."""
        return self.subresource("status")

    def _subresource(self, name: str) -> SubResourceWithSettings:
        return SubResourceWithSettings(self._client.subresource(name), self._settings)

    def _scales(self) -> interfaces.ScaleClient:
        scales = self._client.subresource("scale")

        def send(verb: str, *arguments: Any, **options: Any) -> Any:
            if verb != "get":
                self._settings.of(cast("requests.PatchOptions", options))
            return getattr(scales, verb)(*arguments, **options)

        return subresources.Scales(send)

    def _logs(self) -> interfaces.LogClient:
        return self._client.subresource("log")

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        return await self._client.get(kind, key)

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        return await self._client.list(kind, **options)

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        return await self._client.create(obj, **self._settings.of(options))

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        if self._settings.dry_run:
            options["dry_run"] = True
        await self._client.delete(obj, **options)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        if self._settings.dry_run:
            options["dry_run"] = True
        await self._client.delete_all_of(kind, **options)


class SubResourceWithSettings(_WriterWithSettings):
    """Writes a subresource with settings."""

    _client: interfaces.SubResourceClient

    def __init__(self, client: interfaces.SubResourceClient, settings: Settings) -> None:
        super().__init__(settings)
        self._client = client

    async def get(self, obj: Object, into: type[T]) -> T:
        return await self._client.get(obj, into)

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        return await self._client.create(obj, body, **self._settings.of(options))
