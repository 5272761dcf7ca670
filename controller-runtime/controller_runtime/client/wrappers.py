# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Clients around another client: read-only, for one namespace, or with the same options for every write.

They wrap any Client, including each other, and cover subresources::

    client = with_field_owner(mgr.client, "website-operator")
    await client.apply(website)
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar, Unpack, cast

from controller_runtime.machinery import LazyObject, NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError

from . import interfaces, lazy
from . import options as opts

T = TypeVar("T", bound=Object)
W = TypeVar("W", opts.CreateOptions, opts.UpdateOptions, opts.PatchOptions)


def ignore_not_found() -> AbstractContextManager[None]:
    """Return a context that suppresses NotFoundError."""
    return suppress(NotFoundError)


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
        return lazy.peek(self.__reader, kind, key)

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> interfaces.ObjectList[T]:
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
        namespace = self.of(type(obj), obj.namespace, obj.key)
        if namespace == obj.namespace:
            return obj
        copied = obj.model_copy()
        copied.metadata = obj.metadata.model_copy(update={"namespace": namespace})
        return copied


class Namespaced:
    """A Client for one namespace. Objects without a namespace are put into it; any other namespace is a ValueError."""

    def __init__(self, client: interfaces.Client, namespace: str) -> None:
        self._client = client
        self._scope = _NamespaceScope(namespace)

    @property
    def status(self) -> NamespacedSubResource:
        """The writer of ``status``."""
        return self.subresource("status")

    def subresource(self, name: str) -> NamespacedSubResource:
        """Return the writer of one subresource."""
        return NamespacedSubResource(self._client.subresource(name), self._scope)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Read one object."""
        namespace, name = NamespacedName.of(key)
        return await self._client.get(kind, NamespacedName(self._scope.of(kind, namespace, name), name))

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> interfaces.ObjectList[T]:
        """Read the objects of ``kind`` in the namespace."""
        options["namespace"] = self._scope.of(kind, options.get("namespace", ""), "list")
        return await self._client.list(kind, **options)

    async def create(self, obj: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Create an object."""
        return await self._client.create(self._scope.object(obj), **options)

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace an object."""
        return await self._client.update(self._scope.object(obj), **options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch an object."""
        return await self._client.patch(self._scope.object(obj), patch, **options)

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply an object."""
        return await self._client.apply(self._scope.object(obj), **options)

    async def delete(self, obj: Object, **options: Unpack[opts.DeleteOptions]) -> None:
        """Delete an object."""
        await self._client.delete(self._scope.object(obj), **options)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[opts.DeleteAllOfOptions]) -> None:
        """Delete objects of ``kind`` in the namespace."""
        options["namespace"] = self._scope.of(kind, options.get("namespace", ""), "collection")
        await self._client.delete_all_of(kind, **options)


class NamespacedSubResource:
    """Writes a subresource of objects in one namespace."""

    def __init__(self, writer: interfaces.SubResourceClient, scope: _NamespaceScope) -> None:
        self._writer = writer
        self._scope = scope

    async def get(self, obj: Object, into: type[T]) -> T:
        """Read the subresource."""
        return await self._writer.get(self._scope.object(obj), into)

    async def create(self, obj: Object, body: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Post to the subresource."""
        return await self._writer.create(self._scope.object(obj), body, **options)

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the subresource."""
        return await self._writer.update(self._scope.object(obj), **options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch the subresource."""
        return await self._writer.patch(self._scope.object(obj), patch, **options)

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        return await self._writer.apply(self._scope.object(obj), **options)


def with_field_owner(client: interfaces.Client, owner: str) -> WithSettings:
    """Return ``client`` with ``owner`` as the field owner of each write that does not set one."""
    return WithSettings(client, Settings(field_owner=owner))


def with_field_validation(client: interfaces.Client, validation: opts.FieldValidation) -> WithSettings:
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
        field_validation: opts.FieldValidation | None = None,
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

    def of_apply(self, options: opts.PatchOptions) -> opts.ApplyOptions:
        """Do the same as :meth:`of`, for the options of ``apply``."""
        return cast("opts.ApplyOptions", self.of(options))  # the wrapped client checks for a field owner


class WithSettings:
    """A Client that adds settings to each write; reads are passed on."""

    def __init__(self, client: interfaces.Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    @property
    def status(self) -> SubResourceWithSettings:
        """The writer of ``status``."""
        return self.subresource("status")

    def subresource(self, name: str) -> SubResourceWithSettings:
        """Return the writer of one subresource."""
        return SubResourceWithSettings(self._client.subresource(name), self._settings)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Read one object."""
        return await self._client.get(kind, key)

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> interfaces.ObjectList[T]:
        """Read a collection."""
        return await self._client.list(kind, **options)

    async def create(self, obj: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Create an object."""
        return await self._client.create(obj, **self._settings.of(options))

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace an object."""
        return await self._client.update(obj, **self._settings.of(options))

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch an object."""
        return await self._client.patch(obj, patch, **self._settings.of(options))

    async def apply(self, obj: T, **options: Unpack[opts.PatchOptions]) -> T:
        """Server-side apply an object; ``field_owner`` may come from the settings."""
        return await self._client.apply(obj, **self._settings.of_apply(options))

    async def delete(self, obj: Object, **options: Unpack[opts.DeleteOptions]) -> None:
        """Delete an object."""
        if self._settings.dry_run:
            options["dry_run"] = True
        await self._client.delete(obj, **options)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[opts.DeleteAllOfOptions]) -> None:
        """Delete a collection."""
        if self._settings.dry_run:
            options["dry_run"] = True
        await self._client.delete_all_of(kind, **options)


class SubResourceWithSettings:
    """Writes a subresource with settings."""

    def __init__(self, writer: interfaces.SubResourceClient, settings: Settings) -> None:
        self._writer = writer
        self._settings = settings

    async def get(self, obj: Object, into: type[T]) -> T:
        """Read the subresource."""
        return await self._writer.get(obj, into)

    async def create(self, obj: Object, body: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Post to the subresource."""
        return await self._writer.create(obj, body, **self._settings.of(options))

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the subresource."""
        return await self._writer.update(obj, **self._settings.of(options))

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch the subresource."""
        return await self._writer.patch(obj, patch, **self._settings.of(options))

    async def apply(self, obj: T, **options: Unpack[opts.PatchOptions]) -> T:
        """Server-side apply the subresource; ``field_owner`` may come from the settings."""
        return await self._writer.apply(obj, **self._settings.of_apply(options))
