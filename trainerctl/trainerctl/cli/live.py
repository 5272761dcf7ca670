# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Connects a command to the cluster whose TrainJobs it reads or changes."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread
import msgspec
from controller_runtime.client import LiveClient
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import (
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    StatusError,
    UnauthorizedError,
)
from controller_runtime.rest import (
    Anonymous,
    ConfigError,
    Request,
    Response,
    RoundTripper,
    Transport,
    TransportTimeoutError,
    load_config,
)
from pkg.why import LiveObject, Snapshot, kinds, reading

from trainerctl.cli import removedpods
from trainerctl.offline import inputfiles

FIELD_OWNER: Final = "trainerctl"
KIND: Final = unstructured(kinds.VERSIONS[kinds.TRAIN_JOB][0])
_RESOURCE: Final = "trainjobs"
_TOLERATED: Final = timedelta(seconds=5)
"""We ignore smaller differences between the clocks: responses contain whole seconds, and a busy server responds late.
"""
_FIRST: Final = 4.0
"""Seconds to wait for the server's first response, so that a command fails within five seconds.

Later responses may take longer.
"""


class FirstAnswer:
    """A round tripper with a shorter timeout until the server has answered for the first time."""

    def __init__(self, inner: RoundTripper) -> None:
        self._inner = inner
        self._answered = False

    async def send(self, request: Request) -> Response:
        """Return the response of the inner round tripper.

        Raises:
            TransportTimeoutError: the server has not answered any request yet, and does not answer this GET in time.
        """
        if self._answered or request.method != "GET":
            response = await self._inner.send(request)
        else:
            try:
                response = await self._inner.send(msgspec.structs.replace(request, timeout=_FIRST))
            except TransportTimeoutError as error:
                raise TransportTimeoutError(f"the API server does not answer: {error}") from error
        self._answered = True
        return response


class ServerClock:
    """A round tripper that learns the server's time from responses. Times in objects come from the server's clock."""

    def __init__(
        self, inner: RoundTripper, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._ahead = timedelta()

    async def send(self, request: Request) -> Response:
        response = await self._inner.send(request)
        try:
            found = parsedate_to_datetime(response.headers.get("Date", ""))
        except (ValueError, OverflowError):
            return response
        if found.tzinfo is not None:
            self._ahead = found - self._clock()
        return response

    def corrected(self, local: datetime) -> datetime:
        """Convert ``local``, a time of this machine's clock, to the server's time."""
        return local + self._ahead if abs(self._ahead) > _TOLERATED else local


class Connection(NamedTuple):
    """A client, the namespace of the command, and the server's clock."""

    client: LiveClient
    namespace: str
    clock: ServerClock
    address: str = ""
    """The URL of the API server."""
    is_anonymous: bool = False
    """True if the kubeconfig has no credentials."""

    def worded(self, error: StatusError) -> StatusError:
        """Return the error. If its text leaves out what a person must know, return one that says it."""
        more = ""
        if isinstance(error, NotFoundError) and error.details.get("kind") == _RESOURCE:
            more = (
                f" in namespace {self.namespace}; trainerctl get -A lists all TrainJobs. If it was deleted, for "
                "example after its ttlSecondsAfterFinished, this shows what is left of it: kubectl get events -n "
                f"{self.namespace}"
            )
        elif isinstance(error, UnauthorizedError | ForbiddenError) and self.is_anonymous:
            more = "; the user of the kubeconfig has no credentials"
        if error.message.endswith(more):
            return error
        return type(error)(
            f"{error.message}{more}", code=error.code, reason=error.reason, details=error.details
        )

    @property
    def removed(self) -> Path | None:
        """The folder with the removed pods, if this is a local cluster of the user."""
        return removedpods.folder_of(self.address)

    async def snapshot(self, name: str, *, explains: bool = True) -> Snapshot:
        """Return the objects of a TrainJob and, if it ``explains``, logs and what else shows the causes of its state.

        Raises:
            StatusError: the TrainJob cannot be read; NotFoundError if it does not exist.
        """
        began = datetime.now(UTC)
        found = await reading.take(self.client, self.namespace, name, began, explains=explains)
        found = await anyio.to_thread.run_sync(lambda: removedpods.with_removed(self.removed, found))
        return dataclasses.replace(found, now=self.clock.corrected(began))

    async def states(self, name: str) -> AsyncGenerator[LiveObject | None, None]:
        """Yield a TrainJob as it is, and again after each change. The last value is None: it does not exist.

        If the watch expires, for example because the server restarts, another one begins. Close the generator with
        :func:`contextlib.aclosing`.

        Raises:
            StatusError: the TrainJob cannot be read.
        """
        fields = {"metadata.name": name}
        while True:
            listed = await self.client.list(KIND, namespace=self.namespace, fields=fields)
            if not listed:
                yield None
                return
            yield LiveObject(listed[0].to_dict())
            with suppress(ExpiredError):
                async with self.client.watch(
                    KIND, namespace=self.namespace, fields=fields, resource_version=listed.resource_version
                ) as events:
                    async for event in events:
                        if event.type == "DELETED":
                            yield None
                            return
                        yield LiveObject(event.object.to_dict())

    async def all(self, kind: str, *, namespace: str = "") -> list[LiveObject]:
        """Return all objects of a kind. They are requested in pages.

        Raises:
            StatusError: the objects cannot be read.
        """
        selection = reading.Selection(namespace=namespace)
        found, _ = await reading.listed(self.client, kinds.VERSIONS[kind][0], selection)
        return found


def _not_counted(code: str, method: str, host: str) -> None:
    """Count no responses: a command serves no metrics, and their library is slow to load."""


@asynccontextmanager
async def connect(arguments: argparse.Namespace) -> AsyncIterator[Connection]:
    """Connect to the cluster of the kubeconfig.

    The namespace comes from the flag, else from the kubeconfig's context, else it is ``default``. Errors of the body
    say in which namespace a TrainJob was not found, and that the kubeconfig has no credentials.

    Raises:
        ConfigError: the kubeconfig cannot be loaded. If no flag selects one, the text also suggests a local cluster
            that is healthy.
    """
    try:
        config = await load_config(arguments.kubeconfig, context=arguments.context)
    except ConfigError as error:
        from trainerctl.cli import cluster  # slow to load

        if hint := "" if arguments.kubeconfig or arguments.context else await cluster.running():
            raise ConfigError(f"{error}; {hint}") from error
        raise
    async with Transport(config, observe=_not_counted) as transport:
        clock = ServerClock(FirstAnswer(transport))
        namespace = arguments.namespace or config.namespace or inputfiles.DEFAULT_NAMESPACE
        has_key = config.tls is not None and (config.tls.cert is not None or config.tls.issued is not None)
        is_anonymous = isinstance(config.credentials, Anonymous) and not has_key
        connection = Connection(LiveClient(clock), namespace, clock, config.address, is_anonymous)
        try:
            yield connection
        except StatusError as error:
            if (worded := connection.worded(error)) is error:
                raise
            raise worded from error
