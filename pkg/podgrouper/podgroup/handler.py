# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The handler writes the desired pod group to the cluster. It sends no request if the stored group is up to date."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from typing import Final

import msgspec
from controller_runtime import client, log
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import older
from controller_runtime.machinery import NamespacedName, names
from controller_runtime.machinery.errors import AlreadyExistsError, ConflictError, NotFoundError
from controller_runtime.machinery.locks import KeyedLocks

from pkg.apis.kai.v2alpha2 import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint

from .faircache import FairCache
from .metadata import Metadata, SubGroupMetadata, TopologyConstraintMetadata
from .rules import OLDEST, Rules
from .updater import excess, pod_groups_equal, update_pod_group

_log: Final = log.logger_from("podgrouper")

_TRIES: Final = 5
"""How often we try to write a group that other clients also write. After the last attempt, the conflict is raised."""
_REMEMBERED: Final = 20_000
"""Maximum number of groups that are remembered as up to date."""

_compared_of_group: Final = attrgetter(
    *(each.name for each in fields(Metadata) if each.compare and each.name != "sub_groups")
)
_compared_of_sub_group: Final = attrgetter(*(each.name for each in fields(SubGroupMetadata) if each.compare))


class Handler:
    """Creates and updates pod groups. In this process, only one task at a time writes a group.

    ``client`` reads from a cache; ``live`` reads the newest state when the server reports that the cache is stale.
    ``node_pool_key`` and ``queue_key`` are the keys of labels whose existing values are kept.
    """

    def __init__(
        self, client: client.Client, live: client.Reader, *, node_pool_key: str, queue_key: str
    ) -> None:
        self._client = client
        self._live = live
        self._node_pool_key = node_pool_key
        self._queue_key = queue_key
        self._locks: KeyedLocks[NamespacedName] = KeyedLocks()
        self._up_to_date: FairCache[NamespacedName, tuple[str, int]] = FairCache(_REMEMBERED)
        """The version and the digest of groups that were written or found up to date for one of their pods.

        The other pods usually need the same group.
        """

    async def apply_to_cluster(self, metadata: Metadata, rules: Rules = OLDEST) -> bool:
        """Create or update the group that ``metadata`` describes, and return True if it was created.

        Only fields of the release in ``rules`` are set.

        Raises:
            StatusError, RestError, CacheError: the group cannot be read or written. A stale cache is
                not an error as long as the newest state can be read.
        """
        key = NamespacedName(metadata.namespace, metadata.name)
        async with self._locks.holding(key):
            known = self._up_to_date.find(key)
            created = False
            try:
                version = (await client.peek(self._client, PodGroup, key)).resource_version
                lags = known is not None and older(version, known[0])
                is_known = known is not None and (lags or version == known[0])
                if known is not None and is_known and known[1] == _digest(metadata, rules):
                    return False
                stored = await (self._live if lags else self._client).get(PodGroup, key)
                wanted = pod_group_for(metadata, rules)
            except NotFoundError:
                wanted = pod_group_for(metadata, rules)
                stored, created = await self._create(wanted, was_written=known is not None)
            self._up_to_date.drop(key)
            if metadata.unread and not created:
                wanted.spec.priority_class_name = stored.spec.priority_class_name
                wanted.spec.preemptibility = stored.spec.preemptibility
            current = stored if created else await self._update(stored, wanted, rules)
            if pod_groups_equal(current, wanted):  # the server may have stored something else
                version = current.metadata.resource_version or ""
                self._up_to_date.keep(key, (version, _digest(metadata, rules)))
            return created

    def forget(self, key: NamespacedName) -> None:
        """Forget a group that was deleted."""
        self._up_to_date.drop(key)

    async def exists(self, namespace: str, name: str) -> bool:
        """Return True if the server has the group now."""
        try:
            await self._live.get(PodGroup, (namespace, name))
        except NotFoundError:
            return False
        return True

    async def _create(self, wanted: PodGroup, *, was_written: bool) -> tuple[PodGroup, bool]:
        """Return the group, and True if it was created. If ``was_written``, the cache may lack a group that exists."""
        if was_written:
            with suppress(NotFoundError):
                return await self._live.get(PodGroup, wanted.key), False
        try:
            return await self._client.create(wanted), True
        except AlreadyExistsError as error:
            try:
                return await self._live.get(PodGroup, wanted.key), False
            except NotFoundError:
                raise error from None

    async def _update(self, stored: PodGroup, wanted: PodGroup, rules: Rules) -> PodGroup:
        """Update the group unless it is up to date, and return it. ``wanted`` gets the fields that others assign."""
        labels, constraint = wanted.labels, wanted.spec.topology_constraint
        for attempt in range(_TRIES):
            # Other components assign the queue, the node pool and these fields.
            wanted.spec.mark_unschedulable = stored.spec.mark_unschedulable
            wanted.spec.scheduling_backoff = stored.spec.scheduling_backoff
            wanted.spec.queue = stored.spec.queue
            wanted.metadata.labels = {
                key: value for key, value in labels.items() if key != self._node_pool_key
            }
            for key in (self._node_pool_key, self._queue_key):
                if (value := stored.labels.get(key)) is not None:
                    wanted.metadata.labels[key] = value
            if (
                rules < Rules.V0_17
            ):  # these releases do not know the durations, so another client has set them
                wanted.spec.preemption_delay = stored.spec.preemption_delay
                wanted.spec.staleness_grace_period = stored.spec.staleness_grace_period
            if rules is not Rules.V0_13 and (constraint is None or not constraint.topology):
                wanted.spec.topology_constraint = stored.spec.topology_constraint
            if pod_groups_equal(stored, wanted):
                return stored
            version = stored.metadata.resource_version
            update_pod_group(stored, wanted)
            try:
                return await self._client.update(stored)
            except ConflictError:
                stored = await self._live.get(PodGroup, wanted.key)
                # If the version is unchanged, the server refuses for a reason other than a concurrent write.
                if stored.metadata.resource_version == version or attempt + 1 == _TRIES:
                    raise
                _log.debug("PodGroup was changed by another writer, trying again", podGroup=str(wanted.key))
        raise AssertionError("the last attempt returns or raises")


def _digest(metadata: Metadata, rules: Rules) -> int:
    """Return a hash of everything from which the group is made. The owner's annotations may take 256 KiB."""
    parts = [*map(_compared_of_sub_group, metadata.sub_groups)]
    return hash(msgspec.msgpack.encode((rules, _compared_of_group(metadata), parts), enc_hook=vars))


def pod_group_for(metadata: Metadata, rules: Rules = OLDEST) -> PodGroup:
    """Return the pod group that ``metadata`` describes. Only fields of the release in ``rules`` are set.

    The largest annotations are left out if the API server would refuse the group because of their size.
    """
    annotations = dict(metadata.annotations or {})
    for key in excess(annotations):
        del annotations[key]
    group = PodGroup(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            labels=metadata.labels or None,
            annotations=annotations or None,
            owner_references=[metadata.owner],
        ),
        spec=PodGroupSpec(
            queue=metadata.queue or None,
            priority_class_name=metadata.priority_class_name or None,
            preemptibility=metadata.preemptibility or None,
            topology_constraint=_topology(metadata),
            sub_groups=[_sub_group(each, rules) for each in metadata.sub_groups] or None,
        ),
    )
    _require(group.spec, metadata, rules)
    if rules >= Rules.V0_17:
        group.spec.preemption_delay = metadata.preemption_delay
        group.spec.staleness_grace_period = metadata.staleness_grace_period
    return group


def why_left_out(metadata: Metadata) -> str:
    """Return the remark on the annotations that :func:`pod_group_for` leaves out, or an empty string."""
    if not (keys := excess(metadata.annotations or {})):
        return ""
    return (
        f"the PodGroup of {metadata.owner.kind} {metadata.owner.name} lacks the largest annotations, because all"
        f" together may have at most {names.ANNOTATIONS_MAX_SIZE} bytes: {', '.join(keys)}"
    )


def _sub_group(described: SubGroupMetadata, rules: Rules) -> SubGroup:
    group = SubGroup(name=described.name, parent=described.parent)
    if described.topology_constraints is not None:
        group.topology_constraint = _topology(described.topology_constraints)
    _require(group, described, rules)
    return group


def _require(part: PodGroupSpec | SubGroup, described: Metadata | SubGroupMetadata, rules: Rules) -> None:
    """Set the required number of pods or subgroups to a number that the API server accepts.

    Only releases after v0.17 accept a group that requires nothing; with the others, it requires one pod. A subgroup may
    require nothing, but by the rules of v0.13, its field is not set then.
    """
    is_group = isinstance(part, PodGroupSpec)
    least = 1 if is_group and rules < Rules.V0_18 else 0
    if rules is not Rules.V0_13 and described.min_sub_group is not None and described.min_sub_group >= least:
        part.min_sub_group = described.min_sub_group
    else:
        part.min_member = max(least, described.min_available)
        if rules is Rules.V0_13 and not part.min_member:
            part.min_member = None


def _topology(described: Metadata | TopologyConstraintMetadata) -> TopologyConstraint:
    return TopologyConstraint(
        preferred_topology_level=described.preferred_topology_level or None,
        required_topology_level=described.required_topology_level or None,
        topology=described.topology or None,
    )
