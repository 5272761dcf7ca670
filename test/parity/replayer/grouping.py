# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's operations: the search for the top owner, the wanted group, and whole reconciles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from controller_runtime import reconcile
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import CacheError
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from pkg.podgrouper import (
    DirectOwners,
    Grouping,
    PluginsHub,
    PodGrouper,
    PodReconciler,
    Settings,
    fixed,
    new_plugins_hub,
)
from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Handler, Metadata, Rules, SubGroupMetadata, TopologyConstraintMetadata

from .groupworld import GroupCluster, Watches
from .world import Recorder

Answer = dict[str, Any]

_CLEAN: Final = (GroupingError, StatusError, RestError, CacheError)
"""The expected errors of the grouper; any other is a bug."""


@dataclass(frozen=True)
class _Product:
    """The product's objects, with the case's cluster and settings."""

    hub: PluginsHub
    grouper: PodGrouper
    handler: Handler
    options: Settings
    rules: Rules


def _product(cluster: GroupCluster, config: Answer, *, remembering: bool = False) -> _Product:
    cached, direct = cluster.side("cached"), cluster.side("direct")
    namespace = config.get("defaultConfigPerTypeConfigMapNamespace")
    name = config.get("defaultConfigPerTypeConfigMapName")
    settings = Settings(
        scheduler_name=config.get("schedulerName", kai.SCHEDULER_NAME),
        queue_label_key=config.get("queueLabelKey", kai.QUEUE_LABEL_KEY),
        node_pool_label_key=config.get("nodePoolLabelKey", kai.NODE_POOL_LABEL_KEY),
        namespace_labels=config.get("namespaceLabelSelector") or {},
        search_legacy_pod_groups=config.get("searchForLegacyPodGroups", True),
        knative_gang_schedule=config.get("knativeGangSchedule", True),
        default_priorities=NamespacedName(namespace, name) if namespace and name else None,
    )
    new_hub = partial(new_plugins_hub, options=settings, found=())
    hub = new_hub(cached)
    owners: OwnerCache | DirectOwners = DirectOwners(direct, cached)
    if remembering:
        owners = OwnerCache(direct, cached, Watches(), new_hub)
        hub = owners.hub
    return _Product(
        hub,
        PodGrouper(owners, hub),
        Handler(
            cached, cached, node_pool_key=settings.node_pool_label_key, queue_key=settings.queue_label_key
        ),
        settings,
        Rules(config.get("rules", Rules.V0_13)),
    )


async def owners(case: Answer, *, remembering: bool = False) -> Answer:
    """Find the top owner of the pod; with ``remembering``, by the manager's cache of owners."""
    cluster = GroupCluster(case)
    found = await _walk(
        _product(cluster, case.get("config") or {}, remembering=remembering), await cluster.pod(case["pod"])
    )
    return _owners_answer(found.top_owner, found.owners) if isinstance(found, Grouping) else found


async def metadata(case: Answer, *, remembering: bool = False) -> Answer:
    """Return the group of the top owner's grouper; with ``remembering``, by the manager's cache of owners."""
    cluster = GroupCluster(case)
    product = _product(cluster, case.get("config") or {}, remembering=remembering)
    pod = await cluster.pod(case["pod"])
    found = await _walk(product, pod)
    if not isinstance(found, Grouping):
        return found
    answer = _owners_answer(found.top_owner, found.owners) | {"plugin": found.grouper.name}
    try:
        wanted = await found.metadata(pod)
    except _CLEAN as error:
        return answer | {"error": {"stage": "metadata", **_error(error)}}
    sub_group = wanted.find_sub_group_for_pod(pod.namespace, pod.name)
    return answer | {
        "metadata": _metadata(wanted, product.rules),
        "podSubGroup": sub_group.name if sub_group is not None else "",
    }


async def reconcile_pods(case: Answer) -> Answer:
    """Carry out the steps; return the result of each reconcile, and the objects stored at the end."""
    cluster, recorder = GroupCluster(case), Recorder()
    product = _product(cluster, case.get("config") or {})
    steps = case.get("steps") or [{"reconcile": _key(case["pod"])}]
    done = []
    for step in steps:
        if "apply" in step:
            cluster.put(step["apply"])
        elif "delete" in step:
            cluster.drop(step["delete"])
        else:
            # A new one each time, because a reconciler ignores its own writes to the pod.
            reconciler = PodReconciler(
                cluster.side("cached"),
                recorder,
                product.grouper,
                product.handler,
                product.options,
                rules=fixed(product.rules),
            )
            answer = await _reconcile(cluster, reconciler, recorder, step["reconcile"])
            if answer["requeueAfterNanoseconds"] and product.rules is not Rules.V0_13:
                answer["requeueAfterNanoseconds"] = 10**9
            done.append(answer)
    return {
        "steps": done,
        "podGroups": [_stored_group(each, product.rules) for each in await cluster.stored(PodGroup.gvk)],
        "pods": [_stored(each) for each in await cluster.stored(Pod.gvk)],
    }


async def _reconcile(
    cluster: GroupCluster, reconciler: PodReconciler, recorder: Recorder, pod: Answer
) -> Answer:
    recorder.events, cluster.asked, cluster.written = [], [], []
    error: Answer | None = None
    again = False
    try:
        selected = await reconciler.selects(pod["namespace"])
    except _CLEAN:
        selected = False  # the pod is left unchanged until a later retry
    if selected:
        try:
            result = await reconciler.reconcile(reconcile.Request(pod["namespace"], pod["name"]))
            again = bool(result.requeue_after)
        except _CLEAN as raised:
            error = _error(raised)
    # If the pod cannot be read, upstream requests a retry after a nanosecond, or a second since v0.17.
    # The result of a failed reconcile has no effect; this one only gives the answer the recorded form.
    asked = [call for call in cluster.asked if call != ("get", "Namespace")]
    unread = error is not None and asked == [("get", "Pod")]
    return {
        **({} if selected else {"filteredOut": True}),
        "requeue": unread or again,
        "requeueAfterNanoseconds": int(unread),
        "error": error,
        "events": recorder.events,
        "writes": cluster.written,
    }


async def _walk(product: _Product, pod: Pod) -> Grouping | Answer:
    try:
        return await product.grouper.get_pod_owners(pod, product.rules)
    except _CLEAN as error:
        return {"error": {"stage": "owners", **_error(error)}}


def _owners_answer(top: Object, below: list[Any]) -> Answer:
    return {"topOwner": _owner(top), "allOwners": [_owner(each) for each in below]}


def _owner(owner: Object) -> Answer:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "namespace": owner.namespace,
        "uid": owner.metadata.uid or "",
    }


def _error(error: BaseException) -> Answer:
    """Return the message, and the reason of the API server's refusal if there is one."""
    answer = {"message": str(error)}
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, StatusError):
        cause = cause.__cause__
    if cause is not None and cause.reason:
        answer["reason"] = cause.reason
    return answer


def _metadata(wanted: Metadata, rules: Rules) -> Answer:
    newer = {} if rules is Rules.V0_13 else _newer(wanted)
    return {
        "name": wanted.name,
        "namespace": wanted.namespace,
        "labels": wanted.labels or {},
        "annotations": wanted.annotations or {},
        "queue": wanted.queue,
        "priorityClassName": wanted.priority_class_name,
        "preemptibility": wanted.preemptibility,
        "minAvailable": wanted.min_available,
        "owner": wanted.owner.to_dict(),
        "subGroups": [_sub_group(each, rules) for each in wanted.sub_groups],
        **_topology(wanted),
        **newer,
    }


def _newer(wanted: Metadata | SubGroupMetadata) -> Answer:
    """Return the fields that the rules of v0.17 add, if they are set."""
    found: Answer = {"minSubGroup": wanted.min_sub_group}
    if isinstance(wanted, Metadata):
        found |= {
            "preemptionDelay": wanted.preemption_delay,
            "stalenessGracePeriod": wanted.staleness_grace_period,
        }
    return {name: value for name, value in found.items() if value is not None}


def _sub_group(group: SubGroupMetadata, rules: Rules) -> Answer:
    constraints = group.topology_constraints
    return {
        **({} if rules is Rules.V0_13 else _newer(group)),
        "name": group.name,
        "minAvailable": group.min_available,
        "parent": group.parent,
        "podsReferences": group.pods_references,
        "topologyConstraints": _topology(constraints) if constraints is not None else None,
    }


def _topology(wanted: Metadata | TopologyConstraintMetadata) -> Answer:
    return {
        "preferredTopologyLevel": wanted.preferred_topology_level,
        "requiredTopologyLevel": wanted.required_topology_level,
        "topology": wanted.topology,
    }


def _key(pod: Answer) -> Answer:
    return {"namespace": pod["metadata"].get("namespace", ""), "name": pod["metadata"]["name"]}


def _stored(document: Answer) -> Answer:
    metadata = document["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "labels": metadata.get("labels") or {},
        "annotations": metadata.get("annotations") or {},
    }


def _stored_group(document: Answer, rules: Rules) -> Answer:
    """Return a group with its spec as Go writes it.

    There is always a ``topologyConstraint``; by the rules of v0.13, a ``minMember`` of zero is left out.
    """
    spec = {
        name: value for name, value in (document.get("spec") or {}).items() if value not in ("", [], None)
    }
    for holder in (spec, *spec.get("subGroups", ())):
        if holder.get("minMember") == 0 and rules is Rules.V0_13:
            del holder["minMember"]
    return {
        **_stored(document),
        "ownerReferences": document["metadata"].get("ownerReferences") or [],
        "spec": {**spec, "topologyConstraint": spec.get("topologyConstraint") or {}},
    }
