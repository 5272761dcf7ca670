# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The order of work after a start: TrainJobs without a JobSet come first."""

from __future__ import annotations

from typing import Final

import anyio.lowlevel
import controller_runtime as ctrl
from controller_runtime import handler, source, workqueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

PRIORITY: Final = workqueue.LOW_PRIORITY // 2
"""Above the objects of the first list, and below new events."""
_STEP: Final = 1024
"""Keys checked before other tasks may run."""


class UnbuiltFirst(source.Source):
    """Moves TrainJobs without a JobSet to the front of the queue, once, when both kinds are listed.

    They were created while no manager ran; most of the others need no work. No object is decoded: a JobSet has its
    TrainJob's name.
    """

    def __init__(self, informers: source.Informers) -> None:
        self._informers = informers

    def __str__(self) -> str:
        return "TrainJobs without a JobSet"

    async def start(self, queue: handler.Queue) -> None:
        """Add their keys to the queue."""
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
