# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The subresources that are not of the kind of their object: ``scale`` is a Scale, and ``log`` is text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, Unpack, overload

import msgspec

from controller_runtime import rest
from controller_runtime.machinery import Object
from controller_runtime.machinery.object import check_object
from controller_runtime.machinery.patch import check_patch
from controller_runtime.rest import request as requests

from . import interfaces

if TYPE_CHECKING:
    from controller_runtime.apis.autoscaling.v1 import Scale

    from .live import LiveClient

T = TypeVar("T", bound=Object)
S = TypeVar("S")
SCALE: Final = "scale"
LOG: Final = "log"


def scale_kind() -> type[Scale]:
    """Return the kind Scale, whose module is imported on first use."""
    from controller_runtime.apis.autoscaling.v1 import Scale

    return Scale


def named_as(body: T, obj: Object) -> T:
    """Return ``body`` or, if it has no name, a copy with the name and namespace of ``obj``, as the server demands."""
    if body.name:
        return body
    named = body.model_copy()
    named.metadata = body.metadata.model_copy(update={"name": obj.name, "namespace": obj.namespace or None})
    return named


class ByName(ABC, Generic[S]):
    """A base of clients: the method ``subresource``."""

    @overload
    def subresource(self, name: Literal["scale"]) -> interfaces.ScaleClient: ...
    @overload
    def subresource(self, name: Literal["log"]) -> interfaces.LogClient: ...
    @overload
    def subresource(self, name: str) -> S: ...
    def subresource(self, name: str) -> Any:
        """Return the client of one subresource. ``scale`` and ``log`` have clients with methods of their own."""
        if type(name) is not str or not name:
            raise TypeError(f"a subresource has a name, such as 'status', not {name!r}")
        if name == SCALE:
            return self._scales()
        return self._logs() if name == LOG else self._subresource(name)

    @abstractmethod
    def _subresource(self, name: str) -> S: ...
    @abstractmethod
    def _scales(self) -> interfaces.ScaleClient: ...
    @abstractmethod
    def _logs(self) -> interfaces.LogClient: ...


def _check_scaled(obj: object) -> None:
    """Raise TypeError if ``obj`` is not the object that is scaled."""
    check_object(obj)
    if getattr(type(obj), "gvk", None) == ("autoscaling", "v1", "Scale"):
        raise TypeError("obj must be the object that is scaled, such as a Deployment; its Scale comes last")


class Scales:
    """The methods of a :class:`.interfaces.ScaleClient`. Each calls ``send`` with its own name and its arguments."""

    def __init__(self, send: Callable[..., Awaitable[Any]]) -> None:
        self._send = send

    async def get(self, obj: Object, into: type[Any] | None = None) -> Any:
        """Return the scale of ``obj``, always from the server."""
        _check_scaled(obj)
        return await self._send("get", obj, scale_kind() if into is None else into)

    async def update(self, obj: Object, scale: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the scale of ``obj``; ConflictError if the Scale's ``resourceVersion`` is not the newest."""
        requests.check_options(requests.UpdateOptions, options)
        _check_scaled(obj)
        check_object(scale, "scale")
        stored: T = await self._send("update", obj, scale, **options)
        return stored

    async def patch(
        self,
        obj: Object,
        patch: interfaces.Patch,
        scale: Scale | None = None,
        **options: Unpack[requests.PatchOptions],
    ) -> Scale:
        """Send ``patch.data(scale)`` to the scale of ``obj``; a raw patch needs no ``scale``."""
        requests.check_options(requests.PatchOptions, options)
        check_patch(obj, patch)
        _check_scaled(obj)
        if scale is not None:
            check_object(scale, "scale")
        stored: Scale = await self._send("patch", obj, patch, scale, **options)
        return stored

    async def apply(self, obj: Object, scale: T, **options: Unpack[requests.PatchOptions]) -> T:
        """Server-side apply the fields of ``scale`` that are set."""
        requests.check_options(requests.PatchOptions, options)
        _check_scaled(obj)
        check_object(scale, "scale")
        stored: T = await self._send("apply", obj, scale, **options)
        return stored


class Logs:
    """Reads the logs of containers with a LiveClient: see :class:`.interfaces.LogClient`."""

    def __init__(self, client: LiveClient) -> None:
        self._client = client

    async def get(self, pod: Object, **options: Unpack[requests.LogOptions]) -> str:
        """Return the log."""
        response = await self._response(pod, options)
        return (await response.read()).decode("utf-8", "replace")

    def stream(
        self, pod: Object, *, follow: bool = False, **options: Unpack[requests.LogOptions]
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Return the log's lines as they arrive."""
        check_object(pod, "pod")
        requests.check_options(requests.LogOptions, options)
        return self._stream(pod, options, follow=follow)

    @asynccontextmanager
    async def _stream(
        self, pod: Object, options: requests.LogOptions, *, follow: bool
    ) -> AsyncGenerator[AsyncIterator[str]]:
        response = await self._response(pod, options, stream=True, follow=follow)
        try:
            async with aclosing(_lines(response)) as lines:
                yield lines
        finally:
            await response.close()

    async def _response(
        self, pod: Object, options: requests.LogOptions, *, stream: bool = False, follow: bool = False
    ) -> rest.Response:
        check_object(pod, "pod")
        requests.check_options(requests.LogOptions, options)
        resource = await self._client.mapper.resource_for(type(pod))
        request = requests.log(resource, pod.namespace, pod.name, follow=follow, **options)
        response = await self._client.transport.send(msgspec.structs.replace(request, stream=stream))
        await response.raise_for_status(media_type=requests.TEXT)
        return response


async def _lines(response: rest.Response) -> AsyncGenerator[str]:
    async for line in response.lines():
        yield line.decode("utf-8", "replace")


class LogsOf:
    """Passes calls to another LogClient, with another target."""

    def __init__(self, logs: interfaces.LogClient, target: Callable[[Object], Object]) -> None:
        self._logs = logs
        self._target = target

    async def get(self, pod: Object, **options: Unpack[requests.LogOptions]) -> str:
        check_object(pod, "pod")
        return await self._logs.get(self._target(pod), **options)

    def stream(
        self, pod: Object, *, follow: bool = False, **options: Unpack[requests.LogOptions]
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        check_object(pod, "pod")
        return self._logs.stream(self._target(pod), follow=follow, **options)
