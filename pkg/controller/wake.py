# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Enqueues TrainJobs when their obstacle is removed; their next retry may be minutes away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import controller_runtime as ctrl
from controller_runtime import client, event, handler, predicate
from controller_runtime.apis.machinery.errors import NotFoundError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.builder import Builder

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
        waiting = handler.enqueue_requests_from_map_func(held_up(reader, index))
        builder = builder.watches(kind, waiting, predicates=[_APPEARED])
    return builder.watches(JobSet, handler.Funcs(delete=namesake(reader)), predicates=[_GONE])


def held_up(reader: client.Reader, index: str) -> Callable[[Object], Awaitable[list[ctrl.Request]]]:
    """Return the function that maps a runtime to the TrainJobs that may need it, found through ``index``.

    They have no JobSet, or were resumed and their JobSet was not. The others do not follow their runtime.
    """

    async def requests(runtime: Object) -> list[ctrl.Request]:
        jobs = await reader.list(TrainJob, namespace=runtime.namespace, fields={index: runtime.name})
        return [ctrl.Request.for_object(job) for job in jobs if await _is_held_up(reader, job)]

    return requests


async def _is_held_up(reader: client.Reader, job: TrainJob) -> bool:
    try:
        job_set = await client.peek(reader, JobSet, job.key)
    except NotFoundError:
        return True
    return bool(job_set.spec.suspend) and not job.spec.suspend


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
