# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Registers the pod grouper with a manager."""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio
import controller_runtime as ctrl
from controller_runtime import cache, client, controller, handler, log, predicate, source, workqueue
from controller_runtime.apis.core.v1 import ConfigMap, Namespace, Pod
from controller_runtime.machinery import (
    GVK,
    JSON,
    LazyObject,
    NamespacedName,
    Object,
    metadata_only,
    unstructured,
)
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError, field_selector_string

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai

from .hub import new_plugins_hub
from .ownercache import OwnerCache
from .pod_controller import PodReconciler
from .podgroup import OLDEST, Handler
from .podgrouper import PodGrouper
from .regrouping import Regrouping
from .servedrules import PERIOD, Fetch, ServedRules, fixed
from .settings import Settings

NAME: Final = "podgrouper"
"""The name in ``--controllers``."""
_KARTA: Final = unstructured(GVK("run.ai", "v1alpha1", "Karta"))
_BASE_DELAY: Final = 1.0
_MAX_DELAY: Final = 60.0


# Permissions that no module of a grouper declares. Owners are read and never written; the walk ends below an owner
# whose kind the role does not permit reading.
# +kubebuilder:rbac:groups="",resources=configmaps;namespaces,verbs=list;watch
# +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
# +kubebuilder:rbac:groups="",resources=pods,verbs=get;patch
# +kubebuilder:rbac:groups=apps,resources=replicasets;statefulsets,verbs=get;list;watch
# +kubebuilder:rbac:groups=argoproj.io,resources=workflows,verbs=get;list;watch
# +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;get;update
# +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances;virtualmachines,verbs=get;list;watch
# +kubebuilder:rbac:groups=machinelearning.seldon.io,resources=seldondeployments,verbs=get;list;watch
# +kubebuilder:rbac:groups=nvidia.com,resources=dynamographdeployments,verbs=get;list;watch
# +kubebuilder:rbac:groups=run.ai,resources=kartas,verbs=list
# +kubebuilder:rbac:groups=run.ai,resources=distributedinferenceworkloads;distributedworkloads;inferenceworkloads;interactiveworkloads;trainingworkloads,verbs=get;list;watch
# +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch
# +kubebuilder:rbac:groups=scheduling.run.ai,resources=podgroups,verbs=create;get;list;update;watch
# +kubebuilder:rbac:groups=tekton.dev,resources=pipelineruns;taskruns,verbs=get;list;watch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get;list;watch
# +kubebuilder:rbac:groups=workspace.devfile.io,resources=devworkspaces,verbs=get;list;watch


def cache_options(options: Settings) -> dict[type[Object], cache.ByObject]:
    """Return the cache options of the kinds that the pod grouper reads.

    The cache holds only our scheduler's pods that have not ended, pod groups without their status, and the one
    ConfigMap with the default priorities.
    """
    ours = {"spec.schedulerName": options.scheduler_name}
    running = "status.phase!=Failed,status.phase!=Succeeded"
    held: dict[type[Object], cache.ByObject] = {
        Pod: cache.ByObject(
            labels=options.pod_labels or None,
            fields=f"{field_selector_string(ours)},{running}",
        ),
        PodGroup: cache.ByObject(transform=_without_status),
    }
    wanted = options.default_priorities
    if wanted is not None:
        only = cache.InNamespace(fields={"metadata.name": wanted.name})
        held[ConfigMap] = cache.ByObject(namespaces={wanted.namespace: only})
        held[metadata_only(ConfigMap)] = cache.ByObject()
    return held


async def setup(mgr: ctrl.Manager, options: Settings, *, published: Fetch | None = None) -> None:
    """Register the pod grouper with a manager that has not started.

    ``published`` returns the schema of PodGroup; by default, that of the API server.

    Raises:
        ControllerError: the pod grouper cannot be registered.
        GrouperLoadError: a third-party grouper cannot be loaded.
    """
    # Started later, the first pods would wait for the list of PodGroups.
    pod_groups = await mgr.cache.get_informer(PodGroup)
    pods = await mgr.cache.get_informer(Pod)
    builder = (
        ctrl.new_controller_managed_by(mgr)
        .for_(Pod)
        .with_options(
            controller.Options(
                max_concurrent_reconciles=options.max_concurrent_reconciles,
                rate_limiter=workqueue.ItemExponentialFailureRateLimiter(_BASE_DELAY, _MAX_DELAY),
            )
        )
    )
    if options.namespace_labels:

        async def pods_of(namespace: Object) -> list[ctrl.Request]:
            return [ctrl.Request(*key) for key in pods.keys(namespace.name)]

        builder.watches(
            Namespace,
            handler.enqueue_requests_from_map_func(pods_of),
            predicates=[
                predicate.LabelChanged(),
                predicate.Funcs(create=lambda _event: False, delete=lambda _event: False),
            ],
            only_metadata=True,
        )
    rules = fixed(options.rules or OLDEST)
    if options.rules is None:

        async def is_served() -> bool:
            try:
                await mgr.api_reader.list(PodGroup, limit=1)
            except NotFoundError:
                return False
            return True

        async def follow_rules(queue: source.Queue) -> None:
            """Reconcile every pod when the rules change because the CRD of PodGroup was replaced."""
            while True:
                await anyio.sleep(PERIOD)
                if await served.refresh():
                    for key in pods.keys(""):
                        queue.add(ctrl.Request(*key))

        served = ServedRules(published or partial(mgr.published_schema, PodGroup), is_served)
        rules = served.current
        builder.watches_raw_source(source.Func(follow_rules, "rules of the served PodGroup"))
    builder.watches_raw_source(ungrouped_first(mgr.cache, mgr.client))
    regrouping = Regrouping()
    owners = OwnerCache(
        mgr.api_reader,
        mgr.client,
        mgr.cache,
        partial(new_plugins_hub, options=options),
        served=mgr.rest_mapper.resource_for,
        regrouping=regrouping,
    )
    mgr.add(_KartaNotice(mgr.api_reader))
    feed = partial(regrouping.feed, exists=owners.exists)
    builder.watches_raw_source(source.Func(feed, "changed owners and deleted groups"))
    node_pool, queue = options.node_pool_label_key, options.queue_label_key
    groups = Handler(mgr.client, mgr.api_reader, node_pool_key=node_pool, queue_key=queue)

    def group_deleted(group: LazyObject[PodGroup], _unknown: bool) -> None:
        groups.forget(group.key)
        regrouping.group_deleted(group.key)

    pod_groups.add_event_handler(
        cache.LazyHandlerFuncs(
            on_add=lambda group, _initial: regrouping.group_created(group.key),
            # As in upstream, a group is compared when a pod or an owner changes.
            on_update=lambda _old, _group: None,
            on_delete=group_deleted,
        )
    )
    recorder, grouper = mgr.event_recorder_for(kai.EVENT_SOURCE), PodGrouper(owners, owners.hub)
    builder.complete(
        PodReconciler(
            mgr.client,
            recorder,
            grouper,
            groups,
            options,
            notices=recorder,
            rules=rules,
            regrouping=regrouping,
        )
    )


def ungrouped_first(informers: source.Informers, reader: client.Reader) -> source.Prioritized:
    """Return the source that moves pods without the annotation of a group to the front of the queue.

    Such pods were created while no pod grouper ran, and they cannot be scheduled until they have a group. Most pods
    that have a group need no work. Only the metadata of a pod is decoded.
    """

    async def lacks_group(key: NamespacedName) -> bool:
        try:
            annotations = (await client.peek(reader, Pod, key)).metadata.annotations
        except (NotFoundError, cache.CacheError):
            return False
        return kai.POD_GROUP_ANNOTATION_FOR_POD not in (annotations or {})

    return source.Prioritized(informers, Pod, lambda _pods: lacks_group, name="pods without a group")


class _KartaNotice:
    """At the start, logs a line if users describe groups in Karta objects, which have no effect here."""

    def __init__(self, reader: client.Reader) -> None:
        self._reader = reader

    async def start(self) -> None:
        """Look for a Karta object once."""
        try:
            found = await self._reader.list(_KARTA, limit=1)
        except (StatusError, RestError):
            return  # the kind is not served, or the role does not permit listing it
        if found:
            log.logger_from("podgrouper").info(
                "Karta objects exist, but the pod grouper does not read them", karta=found[0].name
            )


def _without_status(obj: dict[str, JSON]) -> dict[str, JSON]:
    obj.pop("status", None)
    return obj
