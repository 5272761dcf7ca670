# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The source that enqueues the TrainJobs that wait for a kind when the server serves this kind, or serves it again.

Without this source, the TrainJobs might wait minutes for their next retry: a kind without objects causes no event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from controller_runtime import handler, log, source
from controller_runtime.cache import Cache, CacheError
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.reconcile import Request
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import TrainJob


class KindServed(source.Source):
    """Enqueues the TrainJobs that ``waiting`` returns whenever the cache can read ``kind`` again.

    The kind may have been missing at the start, or since somebody deleted its CRD, or the server may have refused to
    list it.
    """

    def __init__(
        self, cache: Cache, kind: type[Object], waiting: Callable[[], Awaitable[Iterable[TrainJob]]]
    ) -> None:
        self._cache = cache
        self._kind = kind
        self._waiting = waiting

    def __str__(self) -> str:
        return f"arrival of {self._kind.gvk.group_kind}"

    async def start(self, queue: handler.Queue) -> None:
        """Follow the problems of the kind's informer for as long as the controller runs."""
        informer = await self._cache.get_informer(self._kind)
        while True:
            await informer.wait_for_recovery()
            try:
                train_jobs = await self._waiting()
            except (StatusError, RestError, CacheError) as error:
                log.logger_from().error("TrainJobs could not be queued", source=str(self), error=error)
                continue
            for train_job in train_jobs:
                priority = handler.LOW_PRIORITY if train_job.spec.suspend else None
                queue.add(Request.for_object(train_job), priority=priority)
