# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Who comes first after a start: TrainJobs for which nothing was built yet."""

from __future__ import annotations

from typing import Final

import anyio.lowlevel
import controller_runtime as ctrl
from controller_runtime import handler, source, workqueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

PRIORITY: Final = workqueue.LOW_PRIORITY // 2
"""Above what the first list found, and below what happens now."""
_STEP: Final = 1024
"""Keys looked at in a row."""


class UnbuiltFirst(source.Source):
    """Moves TrainJobs without a JobSet to the front, once, when both kinds are listed.

    Somebody made them while no manager ran, and waits; of the thousands beside them hardly any needs anything.
    Nothing is decoded for that: a JobSet has its TrainJob's name.
    """

    def __init__(self, informers: source.Informers) -> None:
        self._informers = informers

    def __str__(self) -> str:
        return "TrainJobs without a JobSet"

    async def start(self, queue: handler.Queue) -> None:
        """Add them."""
        jobs = await self._informers.get_informer(TrainJob)
        sets = await self._informers.get_informer(JobSet)
        for informer in (jobs, sets):
            await informer.wait_for_sync(or_problem=True)
        if not (jobs.has_synced and sets.has_synced):
            return
        built = set(sets.keys())
        for number, key in enumerate(jobs.keys(), 1):
            if key not in built:
                queue.add(ctrl.Request(*key), priority=PRIORITY)
            if number % _STEP == 0:
                await anyio.lowlevel.checkpoint()
