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
D = TypeVar("D", requests.DeleteOptions, requests.DeleteAllOfOptions)


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
            is_expected: Callable[[BaseException], bool] = lambda member: self._is_expected(member)  # noqa: E731, PLW0108
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


class Wrapper(subresources.ByName["SubResourceWrapper"]):
    """A Client that passes each call on to ``client``. Subclasses change the objects, keys and options of the calls."""

    def __init__(self, client: interfaces.Client) -> None:
        self._client = client

    def in_namespace(self, kind: type[Object], namespace: str, name: object) -> str:
        """Return the namespace to use for an object or a list."""
        del kind, name
        return namespace

    def with_settings(self, options: W) -> W:
        """Return the options of a write."""
        return options

    def with_deletion_settings(self, options: D) -> D:
        """Return the options of a deletion."""
        return options

    def own(self, obj: T) -> T:
        """Return the object to send for ``obj``."""
        check_object(obj)
        namespace = self.in_namespace(type(obj), obj.namespace, obj.key)
        if namespace == obj.namespace:
            return obj
        copied = obj.model_copy()
        copied.metadata = obj.metadata.model_copy(update={"namespace": namespace})
        return copied

    @property
    def status(self) -> SubResourceWrapper:
        """The writer of ``status``."""
        return self.subresource("status")

    def _subresource(self, name: str) -> SubResourceWrapper:
        return SubResourceWrapper(self, self._client.subresource(name))

    def _scales(self) -> interfaces.ScaleClient:
        scales = self._client.subresource("scale")

        def send(verb: str, obj: Object, *arguments: Any, **options: Any) -> Any:
            if verb != "get":
                options = self.with_settings(cast("Any", options))
            return getattr(scales, verb)(self.own(obj), *arguments, **options)

        return subresources.Scales(send)

    def _logs(self) -> interfaces.LogClient:
        return subresources.LogsOf(self._client.subresource("log"), self.own)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        check_kind(kind)
        namespace, name = NamespacedName.of(key)
        return await self._client.get(kind, NamespacedName(self.in_namespace(kind, namespace, name), name))

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        check_kind(kind)
        requests.check_options(requests.ListOptions, options)
        if namespace := self.in_namespace(kind, options.get("namespace") or "", "list"):
            options["namespace"] = namespace
        return await self._client.list(kind, **options)

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        return await self._client.create(self.own(obj), **self.with_settings(options))

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        return await self._client.update(self.own(obj), **self.with_settings(options))

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        return await self._client.patch(self.own(obj), patch, **self.with_settings(options))

    async def apply(self, obj: T, **options: Unpack[requests.PatchOptions]) -> T:
        """Server-side apply; ``field_owner`` may be left to the settings."""
        checked = cast(
            "requests.ApplyOptions", self.with_settings(options)
        )  # the client checks for a field owner
        return await self._client.apply(self.own(obj), **checked)

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        await self._client.delete(self.own(obj), **self.with_deletion_settings(options))

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        check_kind(kind)
        requests.check_options(requests.DeleteAllOfOptions, options)
        if namespace := self.in_namespace(kind, options.get("namespace") or "", "collection"):
            options["namespace"] = namespace
        await self._client.delete_all_of(kind, **self.with_deletion_settings(options))


class SubResourceWrapper:
    """Reads and writes a subresource with the changes of a :class:`Wrapper`."""

    def __init__(self, wrapper: Wrapper, client: interfaces.SubResourceClient) -> None:
        self._wrapper = wrapper
        self._client = client

    async def get(self, obj: Object, into: type[T]) -> T:
        return await self._client.get(self._wrapper.own(obj), into)

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        return await self._client.create(self._wrapper.own(obj), body, **self._wrapper.with_settings(options))

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        return await self._client.update(self._wrapper.own(obj), **self._wrapper.with_settings(options))

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        return await self._client.patch(self._wrapper.own(obj), patch, **self._wrapper.with_settings(options))

    async def apply(self, obj: T, **options: Unpack[requests.PatchOptions]) -> T:
        """Server-side apply; ``field_owner`` may be left to the settings."""
        checked = cast("requests.ApplyOptions", self._wrapper.with_settings(options))
        return await self._client.apply(self._wrapper.own(obj), **checked)


class Namespaced(Wrapper):
    """A Client for one namespace. Objects without a namespace are put into it; any other namespace is a ValueError."""

    def __init__(self, client: interfaces.Client, namespace: str) -> None:
        super().__init__(client)
        self._namespace = namespace

    def in_namespace(self, kind: type[Object], namespace: str, name: object) -> str:
        """Return this namespace, except for kinds that are known to be cluster-scoped."""
        if kind.resource is not None and not kind.resource.namespaced:
            return namespace
        if namespace not in ("", self._namespace):
            raise ValueError(f"{kind.gvk.kind} {name}: outside the namespace {self._namespace}")
        return self._namespace


def with_field_owner(client: interfaces.Client, owner: str) -> WithSettings:
    """Return ``client`` with ``owner`` as the field owner of each write that does not set one."""
    return WithSettings(client, field_owner=owner)


def with_field_validation(client: interfaces.Client, validation: requests.FieldValidation) -> WithSettings:
    """Return ``client`` with ``validation`` as the default of the field validation of writes."""
    return WithSettings(client, field_validation=validation)


def dry_run(client: interfaces.Client) -> WithSettings:
    """Return ``client`` with every write and deletion as a dry run, regardless of the options of the call."""
    return WithSettings(client, dry_run=True)


class WithSettings(Wrapper):
    """A Client that adds settings to each write; reads are passed on."""

    def __init__(
        self,
        client: interfaces.Client,
        *,
        field_owner: str = "",
        field_validation: requests.FieldValidation | None = None,
        dry_run: bool = False,
    ) -> None:
        super().__init__(client)
        self._field_owner = field_owner
        self._field_validation = field_validation
        self._dry_run = dry_run

    def with_settings(self, options: W) -> W:
        """Add the settings to the options. Only a dry run replaces an option that the caller set."""
        if self._field_owner and not options.get("field_owner"):
            options["field_owner"] = self._field_owner
        if self._field_validation is not None and options.get("field_validation") is None:
            options["field_validation"] = self._field_validation
        if self._dry_run:
            options["dry_run"] = True
        return options

    def with_deletion_settings(self, options: D) -> D:
        """Make the deletion a dry run if all writes are."""
        if self._dry_run:
            options["dry_run"] = True
        return options
