# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Recycling of the cluster's volumes: when a claim is deleted, its volume becomes available for another claim."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from controller_runtime import log
from controller_runtime.client import MERGE, LiveClient, Writer, raw_patch
from controller_runtime.machinery import GVK, Object, unstructured
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError
from pkg.why import LiveObject
from pkg.why.liveobject import text

VOLUME: Final = unstructured(GVK("", "v1", "PersistentVolume"))
LABELS: Final = {"type": "recycled"}
"""The labels of volumes that are recycled; volumes that users create do not have them."""
_PAUSE: Final = 5.0
_log = log.logger_from("recycling")

RemoveData = Callable[[str, str, str], None]
"""Removes the data of a deleted claim, which is given by its namespace, name and uid."""


async def recycle(client: LiveClient, remove_data: RemoveData) -> None:
    """Recycle volumes until cancelled; if a request fails, log the error and try again."""
    while True:
        try:
            async with client.watch(VOLUME, labels=LABELS) as events:
                async for event in events:
                    await recycle_one(client, event.object, remove_data)
        except (StatusError, RestError) as error:
            _log.info("Volumes cannot be recycled", error=str(error))
        await anyio.sleep(_PAUSE)


async def recycle_one(client: Writer, volume: Object, remove_data: RemoveData) -> None:
    """Make a volume available again if its claim was deleted."""
    found = LiveObject(volume.to_dict())
    if found.text("status", "phase") != "Released":
        return
    claim = found.at("spec", "claimRef")
    names = text(claim, "namespace"), text(claim, "name"), text(claim, "uid")
    await anyio.to_thread.run_sync(lambda: remove_data(*names))  # a data set may have many files
    version = found.text("metadata", "resourceVersion")
    body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "spec": {"claimRef": None}})
    with suppress(NotFoundError):
        await client.patch(volume, raw_patch(MERGE, body))
