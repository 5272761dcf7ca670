# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The watches for gang-scheduled TrainJobs: PodGroups, the kinds that determine the resource requests of pods, and the
served version of Kubernetes' own gang API.

The watches start with the first gang-scheduled TrainJob, because most clusters have neither kind of PodGroup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import anyio
from controller_runtime import event, handler, log, predicate, source
from controller_runtime.apis.core.v1 import LimitRange
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.builder import Builder
from controller_runtime.cache import Cache, CacheError
from controller_runtime.client import Client, Reader
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.reconcile import Request
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, PodGroupPolicy, TrainingRuntime, TrainJob
from pkg.runtime import indexer as index
from pkg.runtime.framework.plugins.workload.served import MISSING_TTL, TTL, Served
from pkg.runtime.interface import ReconcilerBuilder

Needed = Callable[[], Awaitable[object]]
"""Returns as soon as there is a gang-scheduled TrainJob."""


IsGang = Callable[[PodGroupPolicy], bool]
"""Returns True if the calling plugin gang-schedules TrainJobs whose runtime has this policy."""


def watches(pod_group: type[Object], needed: Needed, is_gang: IsGang) -> list[ReconcilerBuilder]:
    """Return the functions that add the watches of PodGroups, LimitRanges and RuntimeClasses.

    The watches begin when ``needed`` returns.
    """

    def kind_served(builder: Builder, client: Client, cache: Cache) -> Builder:
        return builder.watches_raw_source(
            source.Deferred(_KindServed(cache, client, pod_group, is_gang), needed)
        )

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

    return [owned(pod_group, needed), kind_served, limit_ranges, runtime_classes]


def owned(kind: type[Object], needed: Needed) -> ReconcilerBuilder:
    """Return the function that watches objects of ``kind`` and enqueues the TrainJobs that control them.

    The watch begins when ``needed`` returns.
    """

    def add(builder: Builder, _client: Client, _cache: Cache) -> Builder:
        owner = handler.enqueue_request_for_owner(TrainJob, only_controller=True)
        return builder.watches(kind, owner, predicates=[predicate.NotOwnWrite()], when=needed)

    return add


async def train_jobs_of_runtime_class(client: Reader, name: str) -> list[TrainJob]:
    """Return the TrainJobs, in all namespaces, whose runtimes have pods with this RuntimeClass.

    A TrainJob and a TrainingRuntime are matched by the runtime's name only, even if they are in different namespaces.
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


async def gang_scheduled_train_jobs(client: Reader, is_gang: IsGang) -> list[TrainJob]:
    """Return the TrainJobs of runtimes for which ``is_gang`` returns True."""
    found: list[TrainJob] = []
    for kind, key in index.TRAIN_JOBS_OF.items():
        for runtime in await client.list(kind):
            if (policy := runtime.spec.pod_group_policy) is not None and is_gang(policy):
                fields = {key: runtime.name}
                found += await client.list(TrainJob, namespace=runtime.namespace, fields=fields)
    return found


class _KindServed(source.Source):
    """When the server begins to serve a kind of PodGroup, enqueues the TrainJobs that wait for that kind.

    Without this source, the TrainJobs might wait minutes for their next retry: a new kind without objects causes no
    event.
    """

    def __init__(self, cache: Cache, client: Reader, pod_group: type[Object], is_gang: IsGang) -> None:
        self._cache = cache
        self._client = client
        self._pod_group = pod_group
        self._is_gang = is_gang

    def __str__(self) -> str:
        return f"arrival of {self._pod_group.gvk.group_kind}"

    async def start(self, queue: handler.Queue) -> None:
        """If the kind is not served yet, wait until it is served, and then enqueue the waiting TrainJobs."""
        informer = await self._cache.get_informer(self._pod_group)
        await informer.wait_for_sync(or_problem=True)
        if informer.has_synced:
            return
        await informer.wait_for_sync()
        try:
            train_jobs = await gang_scheduled_train_jobs(self._client, self._is_gang)
        except (StatusError, RestError, CacheError) as error:
            log.logger_from().error("TrainJobs could not be queued", podGroup=str(self), error=error)
            return
        for train_job in train_jobs:
            queue.add(Request.for_object(train_job))


def _wake_suspended(
    noun: str, concerned: Callable[[Object], Awaitable[Iterable[TrainJob]]]
) -> handler.EventHandler[Object]:
    """Return a handler that enqueues each suspended TrainJob that ``concerned`` returns.

    The objects of a TrainJob that is not suspended must not be changed.
    """

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


def served_versions(served: Served, needed: Needed) -> ReconcilerBuilder:
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
                    jobs = await gang_scheduled_train_jobs(client, lambda policy: policy.workload is not None)
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
