# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How long a TrainJob may wait in its queue, in numbers: its position, the missing quota, and the queue's resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from controller_runtime.machinery import JSON, quantity

from pkg.why import kinds
from pkg.why.causes import capacity
from pkg.why.liveobject import MOST_MATCHED, LiveObject, ago, at, maps, moment, number, text
from pkg.why.snapshot import NOT_INSTALLED, Snapshot

PENDING: Final = "pendingworkloads.visibility.kueue.x-k8s.io"
"""The key in ``Snapshot.objects`` and ``Snapshot.unread`` of the Workloads that wait in the TrainJob's LocalQueue."""
_MOST_NAMES: Final = 3
_MOST_RESOURCES: Final = 8
_MOST_POD_SETS: Final = 16
_MOST_ADMISSIONS: Final = 100
_FEWEST_SPANS: Final = 5
_UNITS: Final = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1))
_UID: Final = re.compile(r"\bUID: ([0-9a-fA-F-]{1,40})")


def position(snapshot: Snapshot, workload: LiveObject) -> Iterator[str]:
    """Yield lines on the position of a Workload in its queues, on the TrainJobs ahead of it, and on the time left."""
    if reason := snapshot.unread.get(PENDING):
        if reason == NOT_INSTALLED:
            reason = "the cluster does not serve visibility.kueue.x-k8s.io, the visibility API of Kueue"
        elif "forbidden" in reason:
            reason = (
                f"you need permission to get localqueues/pendingworkloads of visibility.kueue.x-k8s.io in the "
                f"namespace {workload.namespace}"
            )
        yield f"the position in the queue is unknown: {reason}"
        return
    waiting = snapshot.all(PENDING)
    own = next((each for each in waiting if each.name == workload.name), None)
    if own is None:
        if waiting:
            yield f"the position in the queue is unknown: it is not among the first {len(waiting)} of the LocalQueue"
        return
    in_cluster, in_local = own.number("positionInClusterQueue"), own.number("positionInLocalQueue")
    queue = workload.text("spec", "queueName")
    yield f"position {in_cluster + 1} in the ClusterQueue, and {in_local + 1} in the LocalQueue {queue}"
    ahead = [each for each in waiting if each.number("positionInLocalQueue") < in_local]
    ahead.sort(key=lambda each: each.number("positionInLocalQueue"))
    if ahead:
        named = ", ".join(_job_of(each) for each in ahead[:_MOST_NAMES])
        more = f" and {len(ahead) - _MOST_NAMES} more" if len(ahead) > _MOST_NAMES else ""
        yield f"ahead of it in the LocalQueue: {named}{more}"
    if in_cluster > in_local:
        yield f"ahead of it in other LocalQueues of the ClusterQueue: {in_cluster - in_local}"
    if found := estimate(_admissions(snapshot, queue), in_local + 1, snapshot.now):
        yield found


def places(pending: Iterable[LiveObject]) -> dict[str, str]:
    """Return the positions of Workloads in their queues in words, by the UIDs of their owners."""
    return {
        uid: f"position {each.number('positionInLocalQueue') + 1} in {each.text('localQueueName')}, "
        f"{each.number('positionInClusterQueue') + 1} in its ClusterQueue"
        for each in pending
        for uid in each.owner_uids
    }


def preemptors(snapshot: Snapshot, words: str) -> Iterator[str]:
    """Yield the Workloads of the namespace for which Kueue preempted another one, from its message."""
    uids = _UID.findall(words[:MOST_MATCHED])
    yield from (f"{_job_of(each)}, {each}" for each in snapshot.all(kinds.WORKLOAD) if each.uid in uids)


def _job_of(pending: LiveObject) -> str:
    """Return the name of the object that owns a waiting Workload, or the name of the Workload."""
    return next((text(each, "name") for each in pending.maps("metadata", "ownerReferences")), pending.name)


def _admissions(snapshot: Snapshot, queue: str) -> list[datetime]:
    """Return the times of the newest admissions of a LocalQueue, the oldest first."""
    times = [
        moment(each.condition("Admitted"), "lastTransitionTime")
        for each in snapshot.all(kinds.WORKLOAD)
        if each.text("spec", "queueName") == queue and each.is_true("Admitted")
    ]
    return sorted(filter(None, times))[-_MOST_ADMISSIONS:]


def estimate(admissions: list[datetime], turns: int, now: datetime) -> str:
    """Return how long the next ``turns`` admissions of a queue may take, or an empty string if too few were seen.

    The range is the shortest and the longest time in which the queue admitted as many Workloads before, without the
    time since the last admission. Nothing is extrapolated: if the wait is already longer, the string is empty.
    """
    spans = [later - earlier for earlier, later in zip(admissions, admissions[turns:], strict=False)]
    if len(spans) < _FEWEST_SPANS or now - admissions[-1] > max(spans):
        return ""
    least, most = (ago(admissions[-1], admissions[-1] + each) for each in (min(spans), max(spans)))
    left = admissions[-1] + max(spans) - now
    unit = next((each for each in _UNITS if left >= 2 * each), timedelta(seconds=1))
    soonest, latest = ago(now, admissions[-1] + min(spans)), ago(now, now - -left // unit * unit)
    many = f"{turns} admissions" if turns > 1 else "an admission"
    return (
        f"it may be admitted in {soonest} to {latest}: {many} of this LocalQueue took {least} to {most} among its last "
        f"{len(admissions)}; the newest was {ago(admissions[-1], now)} ago"
    )


class Quotas(NamedTuple):
    """The quotas of a ClusterQueue that a Workload needs."""

    lines: list[str]
    missing: str = ""
    """Which quota lacks how much, if the Workload does not fit into any flavor now."""
    never_fits: bool = False
    """True if the Workload does not fit even if nothing else runs."""

    @property
    def lacks(self) -> str:
        """What is missing, as the end of an advice."""
        return f"; missing: {self.missing}" if self.missing else ""


def quotas(snapshot: Snapshot, workload: LiveObject) -> Quotas:
    """Return the quotas of the ClusterQueue that a Workload needs. Kueue names them only to those at the front.

    A ClusterQueue in a cohort can borrow, and pod sets can use different flavors. Then nothing counts as missing.
    """
    queue = next(iter(snapshot.all(kinds.CLUSTER_QUEUE)), None)
    if queue is None:
        return Quotas([])
    wanted: dict[str, str] = {}
    pod_sets = workload.maps("spec", "podSets")[:_MOST_POD_SETS]
    for pod_set in pod_sets:
        pod = LiveObject({"spec": at(pod_set, "template", "spec")})
        count = number(pod_set, "minCount") or number(pod_set, "count")
        for name in capacity.demand(pod):
            amount = quantity.mul(capacity.requested(pod, name) or "0", count)
            wanted[name] = quantity.add(wanted.get(name, "0"), amount)
    reserved = {
        (text(flavor, "name"), text(each, "name")): text(each, "total")
        for flavor in queue.maps("status", "flavorsReservation")
        for each in maps(flavor, "resources")
    }
    offers: dict[str, list[tuple[str, str, str]]] = {}
    for group in queue.maps("spec", "resourceGroups"):
        for flavor in maps(group, "flavors"):
            for each in maps(flavor, "resources"):
                name, most = text(flavor, "name"), str(at(each, "nominalQuota"))
                used = reserved.get((name, text(each, "name"))) or "0"
                if capacity.is_quantity(most) and capacity.is_quantity(used):
                    offers.setdefault(text(each, "name"), []).append((name, used, most))
    lines, lacks, never_fits = [], [], False
    borrows = bool(queue.text("spec", "cohortName") or queue.text("spec", "cohort"))
    for resource in [each for each in wanted if each in offers][:_MOST_RESOURCES]:
        amount, of = capacity.plain(wanted[resource], resource), offers[resource][:_MOST_RESOURCES]
        shown = ", ".join(f"{used} of {most} in flavor {name}" for name, used, most in of)
        lines.append(f"{queue}: {resource} reserved: {shown}; the TrainJob requests {amount}")
        if borrows or (len(of) > 1 and len(pod_sets) > 1):
            continue
        if all(quantity.cmp(amount, most) > 0 for _, _, most in of):
            never_fits = True
            lacks += [
                f"{amount} {resource} are requested in flavor {name}, whose maximum is {most}"
                for name, _, most in of
            ]
        elif all(quantity.cmp(quantity.add(amount, used), most) > 0 for _, used, most in of):
            for name, used, most in of:
                more = quantity.sub(quantity.add(amount, used), most)
                lacks.append(f"{capacity.plain(more, resource)} {resource} in flavor {name}")
    return Quotas(lines, "; ".join(lacks), never_fits)


def resources(snapshot: Snapshot, kind: str, name: str) -> Iterator[str]:
    """Yield a line with the quota, allocated and requested resources of a queue of Volcano or KAI."""
    for queue in snapshot.all(kind):
        if queue.name != name:
            continue
        amounts = {
            "limit": queue.at("spec", "capability"),
            "deserved": queue.at("spec", "deserved"),
            "guarantee": queue.at("spec", "guarantee", "resource"),
            "quota": _kai(queue, "quota"),
            "limit per resource": _kai(queue, "limit"),
            "allocated": queue.at("status", "allocated"),
            "requested": queue.at("status", "requested"),
        }
        shown = [f"{word} {found}" for word, each in amounts.items() if (found := _amounts(each))]
        if shown:
            yield f"{queue}: {'; '.join(shown)}"


def _kai(queue: LiveObject, field: str) -> JSON:
    """Return one value of each resource of a KAI queue. -1 means unlimited."""
    of = {each: queue.at("spec", "resources", each, field) for each in ("gpu", "cpu", "memory")}
    return {
        name: "unlimited" if value == -1 else value
        for name, value in of.items()
        if value is not None and not isinstance(value, bool)
    }


def _amounts(found: JSON) -> str:
    if not isinstance(found, Mapping):
        return ""
    amounts = [
        f"{name} {value}" for name, value in sorted(found.items()) if isinstance(value, str | int | float)
    ]
    more = f" and {len(amounts) - _MOST_RESOURCES} more" if len(amounts) > _MOST_RESOURCES else ""
    return ", ".join(amounts[:_MOST_RESOURCES]) + more
