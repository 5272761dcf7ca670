# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The order of work after a start: pods without a group come first."""

from __future__ import annotations

from typing import Final

import anyio.lowlevel
import controller_runtime as ctrl
import msgspec
from controller_runtime import cache, client, handler, source, workqueue
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.errors import NotFoundError
from controller_runtime.apis.machinery.gvk import NamespacedName

from pkg.constants import kai

PRIORITY: Final = workqueue.LOW_PRIORITY // 2
"""Above the objects of the first list, and below new events."""
_STEP: Final = 256
"""Pods looked at before other tasks may run."""


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class UngroupedFirst(source.Source):
    """Moves pods without the annotation of a group to the front of the queue, once, when pods are listed.

    They were created while no pod grouper ran, and are not scheduled before they have a group. Most of the others need
    no work. Of each pod, only the annotations are decoded.
    """

    def __init__(self, informers: source.Informers, reader: client.Reader) -> None:
        self._informers = informers
        self._reader = reader

    def __str__(self) -> str:
        return "pods without a group"

    async def start(self, queue: handler.Queue) -> None:
        """Add their keys to the queue."""
        pods = await self._informers.get_informer(Pod)
        await pods.wait_for_sync(or_problem=True)
        if not pods.has_synced:
            return
        for number, key in enumerate(pods.keys(), 1):
            if await self._lacks_group(key):
                queue.add(ctrl.Request(*key), priority=PRIORITY)
            if number % _STEP == 0:
                await anyio.lowlevel.checkpoint()

    async def _lacks_group(self, key: NamespacedName) -> bool:
        try:
            pod = await client.get_lazily(self._reader, Pod, key)
        except (NotFoundError, cache.CacheError):
            return False
        if (seen := pod.view(_Pod)) is not None:
            return kai.POD_GROUP_ANNOTATION_FOR_POD not in (seen.metadata.annotations or {})
        return pod.known is not None and kai.POD_GROUP_ANNOTATION_FOR_POD not in pod.known.annotations
