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
from functools import partial
from typing import Any, TypeVar, Unpack

from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.rest import request as requests

from . import interfaces, subresources

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


class Intercepted(subresources.ByName["InterceptedSubResource"]):
    """A Client whose methods :class:`Funcs` may replace."""

    def __init__(self, client: interfaces.Client, funcs: Funcs) -> None:
        self._client = client
        self._funcs = funcs

    @property
    def status(self) -> InterceptedSubResource:
        """The writer of ``status``."""
        return self.subresource("status")

    def _subresource(self, name: str) -> InterceptedSubResource:
        return InterceptedSubResource(self._client, name, self._funcs)

    def _scales(self) -> interfaces.ScaleClient:
        scales = self._client.subresource("scale")

        def send(verb: str, *arguments: Any, **options: Any) -> Awaitable[Any]:
            func: Func | None = getattr(self._funcs, f"subresource_{verb}")
            own: Func = getattr(scales, verb)
            call = own if func is None else partial(func, self._client, subresources.SCALE)
            return call(*arguments, **options)

        return subresources.Scales(send)

    def _logs(self) -> interfaces.LogClient:
        return self._client.subresource("log")

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        found: T = await self._call(self._funcs.get, self._client.get)(kind, key)
        return found

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        requests.check_options(requests.ListOptions, options)
        call = self._call(self._funcs.list, self._client.list)
        found: interfaces.ObjectList[T] = await call(kind, **options)
        return found

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        requests.check_options(requests.CreateOptions, options)
        stored: T = await self._call(self._funcs.create, self._client.create)(obj, **options)
        return stored

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        requests.check_options(requests.UpdateOptions, options)
        stored: T = await self._call(self._funcs.update, self._client.update)(obj, **options)
        return stored

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        requests.check_options(requests.PatchOptions, options)
        stored: T = await self._call(self._funcs.patch, self._client.patch)(obj, patch, **options)
        return stored

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        requests.check_options(requests.ApplyOptions, options)
        stored: T = await self._call(self._funcs.apply, self._client.apply)(obj, **options)
        return stored

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        requests.check_options(requests.DeleteOptions, options)
        await self._call(self._funcs.delete, self._client.delete)(obj, **options)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        requests.check_options(requests.DeleteAllOfOptions, options)
        await self._call(self._funcs.delete_all_of, self._client.delete_all_of)(kind, **options)

    def _call(self, func: Func | None, own: Func) -> Func:
        return own if func is None else partial(func, self._client)


class InterceptedSubResource:
    """A subresource whose methods :class:`Funcs` may replace."""

    def __init__(self, client: interfaces.Client, name: str, funcs: Funcs) -> None:
        self._client = client
        self._name = name
        self._funcs = funcs
        self._writer = client.subresource(name)

    async def get(self, obj: Object, into: type[T]) -> T:
        found: T = await self._call(self._funcs.subresource_get, self._writer.get)(obj, into)
        return found

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        requests.check_options(requests.CreateOptions, options)
        call = self._call(self._funcs.subresource_create, self._writer.create)
        answer: T = await call(obj, body, **options)
        return answer

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        requests.check_options(requests.UpdateOptions, options)
        stored: T = await self._call(self._funcs.subresource_update, self._writer.update)(obj, **options)
        return stored

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        requests.check_options(requests.PatchOptions, options)
        call = self._call(self._funcs.subresource_patch, self._writer.patch)
        stored: T = await call(obj, patch, **options)
        return stored

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        requests.check_options(requests.ApplyOptions, options)
        stored: T = await self._call(self._funcs.subresource_apply, self._writer.apply)(obj, **options)
        return stored

    def _call(self, func: Func | None, own: Func) -> Func:
        return own if func is None else partial(func, self._client, self._name)
