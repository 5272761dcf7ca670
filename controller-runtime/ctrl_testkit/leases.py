# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server for leases that can hang, fail, or store writes without an answer."""

import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import ServerError

KEY = NamespacedName("ns", "lock")


class LeaseStore:
    """Stores leases; ``client`` hangs or fails on request."""

    def __init__(self) -> None:
        self.store = FakeClient()
        self.hangs = False
        self.fails = False
        self.loses_answers = False
        self.error: Exception | None = None
        """Raised by the calls in :attr:`error_of`, which are not sent to the server."""
        self.error_of: Collection[str] = ("get", "create", "update")
        self.threads = set[str]()
        self.client = interceptor.wrap(
            self.store,
            interceptor.Funcs(
                get=self._pass("get"), create=self._pass("create"), update=self._pass("update")
            ),
        )

    def _pass(self, verb: str) -> Any:
        async def call(client: FakeClient, *args: Any, **options: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            if self.error is not None and verb in self.error_of:
                raise self.error
            if self.hangs:
                await anyio.sleep_forever()
            if self.fails:
                raise ServerError("etcd is away", code=500)
            answer = await getattr(client, verb)(*args, **options)
            if self.loses_answers and verb != "get":
                await anyio.sleep_forever()
            return answer

        return call

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        yield self.client

    async def lease(self) -> Lease:
        return await self.store.get(Lease, KEY)
