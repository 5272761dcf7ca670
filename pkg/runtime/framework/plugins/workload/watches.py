# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The watch of the gang API that the server serves."""

from __future__ import annotations

import anyio
from controller_runtime import handler, log, source
from controller_runtime.builder import Builder
from controller_runtime.cache import Cache, CacheError
from controller_runtime.client import Client
from controller_runtime.machinery.errors import StatusError
from controller_runtime.reconcile import Request
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import PodGroupPolicy
from pkg.runtime.framework.plugins.podgroup_watches import Needed, gang_scheduled_train_jobs
from pkg.runtime.interface import ReconcilerBuilder

from .served import MISSING_TTL, TTL, Served


def api(served: Served, needed: Needed) -> ReconcilerBuilder:
    """Return the function that adds a source: when the served version changes, it enqueues the gangs' TrainJobs.

    Without the source, the TrainJobs might wait minutes for their next retry.
    """

    def add(builder: Builder, client: Client, cache: Cache) -> Builder:
        served.expire_after_interruption(cache.interrupted_since)

        async def enqueue_on_change(queue: handler.Queue) -> None:
            before = served.last
            while True:
                missing = before is None or not before.version
                await anyio.sleep(MISSING_TTL if missing else TTL)
                try:
                    after = await served.current()
                    if before in (None, after):
                        before = after
                        continue
                    jobs = await gang_scheduled_train_jobs(client, _is_gang)
                except (StatusError, RestError, CacheError) as error:
                    log.logger_from().debug("The served gang API cannot be followed", error=error)
                    continue
                before = after
                for job in jobs:
                    queue.add(Request.for_object(job))

        return builder.watches_raw_source(
            source.Deferred(source.Func(enqueue_on_change, "versions of the gang API"), needed)
        )

    return add


def _is_gang(policy: PodGroupPolicy) -> bool:
    return policy.workload is not None
