# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What wakes a gang-scheduled TrainJob: its PodGroup, and what may change how much a suspended one will ask for.

Nothing here is watched before the first gang-scheduled TrainJob: most clusters have neither kind of PodGroup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from pkg.apis.core.v1 import LimitRange
from pkg.apis.machinery.errors import StatusError
from pkg.apis.machinery.object import Object
from pkg.apis.node.v1 import RuntimeClass
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.ctrl import event, handler, log
from pkg.ctrl.builder import Builder
from pkg.ctrl.cache import Cache, CacheError
from pkg.ctrl.client import Client, Reader
from pkg.ctrl.reconcile import Request
from pkg.ctrl.rest import RestError
from pkg.runtime import indexer as index
from pkg.runtime.interface import ReconcilerBuilder

Needed = Callable[[], Awaitable[object]]
"""Returns once a TrainJob is gang-scheduled."""


def watches(pod_group: type[Object], needed: Needed) -> list[ReconcilerBuilder]:
    """Return what makes the controller watch PodGroups, LimitRanges and RuntimeClasses, once they are needed."""

    def pod_groups(builder: Builder, _client: Client, _cache: Cache) -> Builder:
        owner = handler.enqueue_request_for_owner(TrainJob, only_controller=True)
        return builder.watches(pod_group, owner, when=needed)

    def limit_ranges(builder: Builder, client: Client, _cache: Cache) -> Builder:
        async def concerned(limit_range: Object) -> Iterable[TrainJob]:
            return await client.list(TrainJob, namespace=limit_range.namespace)

        return builder.watches(
            LimitRange, _wake_suspended("limitRange", concerned), only_metadata=True, when=needed
        )

    def runtime_classes(builder: Builder, client: Client, _cache: Cache) -> Builder:
        async def concerned(runtime_class: Object) -> Iterable[TrainJob]:
            return await train_jobs_of_runtime_class(client, runtime_class.name)

        return builder.watches(
            RuntimeClass, _wake_suspended("runtimeClass", concerned), only_metadata=True, when=needed
        )

    return [pod_groups, limit_ranges, runtime_classes]


async def train_jobs_of_runtime_class(client: Reader, name: str) -> list[TrainJob]:
    """Return the TrainJobs, in all namespaces, that refer to a runtime whose pods are of this RuntimeClass.

    A TrainingRuntime counts for its name alone, in whatever namespace the TrainJob is.
    """
    namespaced = await client.list(
        TrainingRuntime, fields={index.TRAINING_RUNTIME_CONTAINER_RUNTIME_CLASS_KEY: name}
    )
    shared = await client.list(
        ClusterTrainingRuntime, fields={index.CLUSTER_TRAINING_RUNTIME_CONTAINER_RUNTIME_CLASS_KEY: name}
    )
    found: list[TrainJob] = []
    for key, runtimes in (
        (index.TRAIN_JOB_RUNTIME_REF_KEY, [runtime.name for runtime in namespaced]),
        (index.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY, [runtime.name for runtime in shared]),
    ):
        for runtime in dict.fromkeys(runtimes):
            found += await client.list(TrainJob, fields={key: runtime})
    return found


def _wake_suspended(
    noun: str, concerned: Callable[[Object], Awaitable[Iterable[TrainJob]]]
) -> handler.EventHandler[Object]:
    """Return a handler that wakes those ``concerned`` that are suspended: of the others nothing may change."""

    async def wake(obj: Object, queue: handler.Queue) -> None:
        try:
            train_jobs = await concerned(obj)
        except (StatusError, RestError, CacheError) as error:
            log.logger_from().error(
                "Suspended TrainJobs could not be queued", **{noun: str(obj.key)}, error=error
            )
            return
        for train_job in train_jobs:
            if train_job.spec.suspend:
                queue.add(Request.for_object(train_job))

    async def create(evt: event.CreateEvent[Object], queue: handler.Queue) -> None:
        await wake(evt.object, queue)

    async def update(evt: event.UpdateEvent[Object], queue: handler.Queue) -> None:
        await wake(evt.new, queue)

    async def delete(evt: event.DeleteEvent[Object], queue: handler.Queue) -> None:
        await wake(evt.object, queue)

    return handler.Funcs(create=create, update=update, delete=delete)
