# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Intercept single calls of a client, e.g. to make one fail in a test.

async def refuse(client, obj, **options):
    raise ForbiddenError("no", code=403, reason="Forbidden")

client = interceptor.wrap(FakeClient(), interceptor.Funcs(create=refuse))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from controller_runtime.rest import request as requests

from . import interfaces, subresources
from .wrappers import Wrapper

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


_OPTIONS: Final[Mapping[str, type]] = {
    "list": requests.ListOptions,
    "create": requests.CreateOptions,
    "update": requests.UpdateOptions,
    "patch": requests.PatchOptions,
    "apply": requests.PatchOptions,  # the wrapped client checks for a field owner
    "delete": requests.DeleteOptions,
    "delete_all_of": requests.DeleteAllOfOptions,
}


def wrap(client: interfaces.Client, funcs: Funcs) -> Intercepted:
    """Return a Client that calls the functions in ``funcs`` instead of the methods of ``client``."""
    return Intercepted(client, funcs)


class Intercepted(Wrapper):
    """A Client whose methods :class:`Funcs` may replace."""

    def __init__(self, client: interfaces.Client, funcs: Funcs) -> None:
        super().__init__(cast("interfaces.Client", _Calls(client, client, "", (client,), funcs)))


class _Calls:
    """The methods of ``called``, or the functions that replace them, which get ``first`` and the arguments of the call.

    ``prefix`` stands before the names of the methods in :class:`Funcs`.
    """

    def __init__(
        self, client: interfaces.Client, called: object, prefix: str, first: tuple[object, ...], funcs: Funcs
    ) -> None:
        self._client = client
        self._called = called
        self._prefix = prefix
        self._first = first
        self._funcs = funcs

    def subresource(self, name: str) -> Any:
        called = self._client.subresource(name)
        if name == subresources.LOG:
            return called
        return _Calls(self._client, called, "subresource_", (self._client, name), self._funcs)

    def __getattr__(self, method: str) -> Func:
        func: Func | None = getattr(self._funcs, self._prefix + method)
        call = getattr(self._called, method) if func is None else partial(func, *self._first)

        def checked(*arguments: Any, **options: Any) -> Awaitable[Any]:
            if method in _OPTIONS:
                requests.check_options(_OPTIONS[method], options)
            result: Awaitable[Any] = call(*arguments, **options)
            return result

        return checked
