# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster of a command that reads or changes live TrainJobs."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple

from controller_runtime.client import LiveClient
from controller_runtime.machinery import unstructured
from controller_runtime.rest import Transport, load_config
from pkg.why import Snapshot, Thing, kinds, reading

from trainerctl.cli.serverclock import ServerClock

FIELD_OWNER: Final = "trainerctl"
DEFAULT_NAMESPACE: Final = "default"
_PAGE: Final = 500


class Cluster(NamedTuple):
    """A client, and the namespace of the command."""

    client: LiveClient
    namespace: str
    clock: ServerClock

    async def snapshot(self, name: str) -> Snapshot:
        """Return the objects of a TrainJob.

        Raises:
            StatusError: the TrainJob cannot be read; NotFoundError if it does not exist.
        """
        began = datetime.now(UTC)
        found = await reading.take(self.client, self.namespace, name, began)
        return dataclasses.replace(found, now=self.clock.corrected(began))

    async def all(
        self, kind: str, *, namespace: str = "", fields: Mapping[str, str] | None = None
    ) -> list[Thing]:
        """Return the objects of a kind, in pages.

        Raises:
            StatusError: they cannot be read.
        """
        found: list[Thing] = []
        token, listed = "", unstructured(kinds.VERSIONS[kind][0])
        while True:
            page = await self.client.list(
                listed, namespace=namespace, fields=fields, limit=_PAGE, continue_token=token
            )
            found += [Thing(each.to_dict()) for each in page]
            if not (token := page.continue_token):
                return found


@asynccontextmanager
async def connect(arguments: argparse.Namespace) -> AsyncIterator[Cluster]:
    """Connect to the cluster of the kubeconfig; the namespace is the flag's, else the context's."""
    config = await load_config(arguments.kubeconfig, context=arguments.context)
    async with Transport(config) as transport:
        clock = ServerClock(transport)
        yield Cluster(LiveClient(clock), arguments.namespace or config.namespace or DEFAULT_NAMESPACE, clock)
