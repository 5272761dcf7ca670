# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Enqueues TrainJobs when their runtime changes or their obstacle is removed; their next retry may be minutes away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import controller_runtime as ctrl
from controller_runtime import client, event, handler, predicate
from controller_runtime.builder import Builder
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import indexer
from pkg.util import trainjob

_APPEARED: Final = predicate.Funcs[Object](
    create=lambda evt: not evt.is_in_initial_list,  # every TrainJob is reconciled then
    update=lambda evt: evt.new_metadata.generation != evt.old_metadata.generation,
    delete=lambda _evt: False,
)
_GONE: Final = predicate.Funcs[JobSet](create=lambda _evt: False, update=lambda _evt: False)


def watch_obstacles(builder: Builder, reader: client.Reader) -> Builder:
    """Add the watches of runtimes that appear or change, and of conflicting JobSets that are deleted."""
    for kind, index in (
        (TrainingRuntime, indexer.TRAIN_JOB_RUNTIME_REF_KEY),
        (ClusterTrainingRuntime, indexer.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY),
    ):
        builder = builder.watches(kind, followers(reader, index), predicates=[_APPEARED])
    return builder.watches(JobSet, handler.Funcs(delete=namesake(reader)), predicates=[_GONE])


def followers(reader: client.Reader, index: str) -> handler.Funcs[Object]:
    """Return the handler that enqueues the TrainJobs that follow their runtime, found through ``index``.

    They have no JobSet, or a suspended one. A TrainJob that is not suspended itself may wait for its runtime; of those
    that are, a queue may hold thousands, so they have low priority.
    """

    async def wake(evt: event.CreateEvent[Object] | event.UpdateEvent[Object], queue: handler.Queue) -> None:
        key = evt.key
        for job in await reader.list(TrainJob, namespace=key.namespace, fields={index: key.name}):
            if await _follows(reader, job):
                priority = handler.LOW_PRIORITY if job.spec.suspend else None
                queue.add(ctrl.Request.for_object(job), priority=priority)

    return handler.Funcs(create=wake, update=wake)


async def _follows(reader: client.Reader, job: TrainJob) -> bool:
    try:
        return bool((await client.peek(reader, JobSet, job.key)).object.spec.suspend)
    except NotFoundError:
        return True


def namesake(reader: client.Reader) -> Callable[[event.DeleteEvent[JobSet], handler.Queue], Awaitable[None]]:
    """Return the handler that enqueues the TrainJob of a deleted JobSet's name if it did not control the JobSet."""

    async def wake(evt: event.DeleteEvent[JobSet], queue: handler.Queue) -> None:
        owner = trainjob.controller_of(evt.object)
        if owner is not None and (owner.kind, owner.name) == (TrainJob.gvk.kind, evt.object.name):
            return  # its owner is enqueued anyway
        try:
            await client.peek(reader, TrainJob, evt.object.key)
        except NotFoundError:
            return
        queue.add(ctrl.Request.for_object(evt.object))

    return wake
