# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Intercept single calls of a client, e.g. to make one fail in a test.

async def refuse(client, obj, **options):
    raise ForbiddenError("no", code=403, reason="Forbidden")

client = interceptor.wrap(FakeClient(), interceptor.Funcs(create=refuse))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from controller_runtime.machinery import NamespacedName, Object

from . import interfaces
from . import options as opts

T = TypeVar("T", bound=Object)

Func = Callable[..., Awaitable[Any]]
"""Replaces a method; called with the wrapped client and the arguments of the call. For a method of a subresource, the
second argument is the subresource's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Funcs:
    """Functions that are called instead of the client's methods; None means that the client's method is called."""

    get: Func | None = None
    list: Func | None = None
    create: Func | None = None
    update: Func | None = None
    patch: Func | None = None
    apply: Func | None = None
    delete: Func | None = None
    delete_all_of: Func | None = None
    subresource_get: Func | None = None
    subresource_create: Func | None = None
    subresource_update: Func | None = None
    subresource_patch: Func | None = None
    subresource_apply: Func | None = None


def wrap(client: interfaces.Client, funcs: Funcs) -> Intercepted:
    """Return a Client that calls the functions in ``funcs`` instead of the methods of ``client``."""
    return Intercepted(client, funcs)


class Intercepted:
    """A Client whose methods :class:`Funcs` may replace."""

    def __init__(self, client: interfaces.Client, funcs: Funcs) -> None:
        self._client = client
        self._funcs = funcs

    @property
    def status(self) -> InterceptedSubResource:
        """The writer of ``status``."""
        return self.subresource("status")

    def subresource(self, name: str) -> InterceptedSubResource:
        """Return the writer of one subresource."""
        return InterceptedSubResource(self._client, name, self._funcs)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Read one object."""
        func = self._funcs.get
        found: T = await (func(self._client, kind, key) if func else self._client.get(kind, key))
        return found

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> interfaces.ObjectList[T]:
        """Read a collection."""
        opts.check_options(opts.ListOptions, options)
        func = self._funcs.list
        found: interfaces.ObjectList[T] = await (
            func(self._client, kind, **options) if func else self._client.list(kind, **options)
        )
        return found

    async def create(self, obj: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Create an object."""
        opts.check_options(opts.CreateOptions, options)
        func = self._funcs.create
        stored: T = await (
            func(self._client, obj, **options) if func else self._client.create(obj, **options)
        )
        return stored

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace an object."""
        opts.check_options(opts.UpdateOptions, options)
        func = self._funcs.update
        stored: T = await (
            func(self._client, obj, **options) if func else self._client.update(obj, **options)
        )
        return stored

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch an object."""
        opts.check_options(opts.PatchOptions, options)
        func = self._funcs.patch
        stored: T = await (
            func(self._client, obj, patch, **options) if func else self._client.patch(obj, patch, **options)
        )
        return stored

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply an object."""
        opts.check_options(opts.ApplyOptions, options)
        func = self._funcs.apply
        stored: T = await (func(self._client, obj, **options) if func else self._client.apply(obj, **options))
        return stored

    async def delete(self, obj: Object, **options: Unpack[opts.DeleteOptions]) -> None:
        """Delete an object."""
        opts.check_options(opts.DeleteOptions, options)
        func = self._funcs.delete
        await (func(self._client, obj, **options) if func else self._client.delete(obj, **options))

    async def delete_all_of(self, kind: type[Object], **options: Unpack[opts.DeleteAllOfOptions]) -> None:
        """Delete a collection."""
        opts.check_options(opts.DeleteAllOfOptions, options)
        func = self._funcs.delete_all_of
        await (func(self._client, kind, **options) if func else self._client.delete_all_of(kind, **options))


class InterceptedSubResource:
    """A subresource whose methods :class:`Funcs` may replace."""

    def __init__(self, client: interfaces.Client, name: str, funcs: Funcs) -> None:
        self._client = client
        self._name = name
        self._funcs = funcs
        self._writer = client.subresource(name)

    async def get(self, obj: Object, into: type[T]) -> T:
        """Read the subresource."""
        func = self._funcs.subresource_get
        found: T = await (func(self._client, self._name, obj, into) if func else self._writer.get(obj, into))
        return found

    async def create(self, obj: Object, body: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Post to the subresource."""
        opts.check_options(opts.CreateOptions, options)
        func = self._funcs.subresource_create
        answer: T = await (
            func(self._client, self._name, obj, body, **options)
            if func
            else self._writer.create(obj, body, **options)
        )
        return answer

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the subresource."""
        opts.check_options(opts.UpdateOptions, options)
        func = self._funcs.subresource_update
        stored: T = await (
            func(self._client, self._name, obj, **options) if func else self._writer.update(obj, **options)
        )
        return stored

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch the subresource."""
        opts.check_options(opts.PatchOptions, options)
        func = self._funcs.subresource_patch
        stored: T = await (
            func(self._client, self._name, obj, patch, **options)
            if func
            else self._writer.patch(obj, patch, **options)
        )
        return stored

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        opts.check_options(opts.ApplyOptions, options)
        func = self._funcs.subresource_apply
        stored: T = await (
            func(self._client, self._name, obj, **options) if func else self._writer.apply(obj, **options)
        )
        return stored
