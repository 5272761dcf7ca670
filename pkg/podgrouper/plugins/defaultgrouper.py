# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The default grouper: one group for all pods of a top owner; other groupers start from its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from controller_runtime import client, log
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.machinery import Object, Unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError, StatusError
from controller_runtime.machinery.goduration import format_duration, parse_duration

from pkg.apis.kai.v2alpha2 import parse_preemptibility
from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata
from pkg.podgrouper.settings import Settings
from pkg.podgrouper.topowner import top_owner_metadata

from .defaults import Defaults, DefaultsError, WorkloadDefaults, parse_defaults
from .errors import UNREADABLE
from .grouper import Grouper, Reads, inputs

_log: Final = log.logger_from("podgrouper")

_UNUSABLE: Final = (*UNREADABLE, DefaultsError)
"""If reading the ConfigMap raises one of these errors, no defaults apply, as in upstream."""


def _note_unread(named: str, error: Exception) -> None:
    """Note that an object cannot be read: it may exist."""
    refused = isinstance(error, ForbiddenError) or not isinstance(error, StatusError)
    if refused:
        inputs().unread.append(f"{named} cannot be read: {error}")


class DefaultGrouper(Grouper):
    """Makes a group for each top owner. The group requires one pod."""

    name: ClassVar[str] = "Default Grouper"
    reads: ClassVar[Reads] = Reads.METADATA

    def __init__(self, reader: client.Reader, options: Settings | None = None) -> None:
        self.reader = reader
        self.options = options or Settings()

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group named after ``top_owner``.

        If PriorityClasses cannot be read, none counts as existing, as in upstream: see :attr:`.Inputs.unread`.
        """
        owners: Sequence[Object] = other_owners or (top_owner,)
        priority_class, defaults = await self._priority_class(owners, pod, kai.TRAIN_PRIORITY_CLASS)
        annotations = top_owner.annotations
        gvk = type(top_owner).gvk
        return Metadata(
            owner=OwnerReference(
                api_version=gvk.api_version,
                kind=gvk.kind,
                name=top_owner.name,
                uid=top_owner.metadata.uid or "",
            ),
            namespace=pod.namespace,
            name=self.calc_pod_group_name(top_owner),
            annotations=self.calc_pod_group_annotations(top_owner, pod),
            labels=self.calc_pod_group_labels(top_owner, pod),
            queue=self.calc_pod_group_queue(top_owner, pod),
            priority_class_name=priority_class,
            preemptibility=await self._preemptibility(owners, pod, defaults),
            preemption_delay=_duration(kai.PREEMPTION_DELAY_KEY, preemption_delay, (*owners, pod)),
            staleness_grace_period=_duration(kai.STALENESS_GRACE_PERIOD_KEY, parse_duration, (*owners, pod)),
            min_available=1,
            preferred_topology_level=annotations.get(kai.TOPOLOGY_PREFERRED_PLACEMENT_KEY, ""),
            required_topology_level=annotations.get(kai.TOPOLOGY_REQUIRED_PLACEMENT_KEY, ""),
            topology=annotations.get(kai.TOPOLOGY_KEY, ""),
        )

    def calc_pod_group_name(self, top_owner: Object) -> str:
        """Return ``pg-<name>-<uid>``."""
        return f"{kai.POD_GROUP_NAME_PREFIX}-{top_owner.name}-{top_owner.metadata.uid or ''}"

    def calc_pod_group_annotations(self, top_owner: Object, pod: Pod) -> dict[str, str]:
        """Return the owner's annotations.

        The pod's user and the top-owner annotation are added, unless the owner sets them.
        """
        annotations = {}
        if (user := pod.annotations.get(kai.USER_LABEL_KEY)) is not None:
            annotations[kai.USER_LABEL_KEY] = user
        annotations[kai.TOP_OWNER_METADATA_KEY] = top_owner_metadata(top_owner)
        annotations.update(top_owner.annotations)
        return annotations

    def calc_pod_group_labels(self, top_owner: Object, pod: Pod) -> dict[str, str]:
        """Return the owner's labels. If they do not include the user label, add the pod's."""
        labels = dict(top_owner.labels)
        if kai.USER_LABEL_KEY not in labels and (user := pod.labels.get(kai.USER_LABEL_KEY)) is not None:
            labels[kai.USER_LABEL_KEY] = user
        return labels

    def calc_pod_group_queue(self, top_owner: Object, pod: Pod) -> str:
        """Return the queue: from the queue label, else from the project label, else the default queue.

        Labels of the owner take precedence over the pod's.
        """
        for labels in (top_owner.labels, pod.labels):
            if (queue := labels.get(self.options.queue_label_key)) is not None:
                return queue
        project = top_owner.labels.get(kai.PROJECT_LABEL_KEY)
        if project is None:
            project = pod.labels.get(kai.PROJECT_LABEL_KEY)
        if not project:
            return kai.DEFAULT_QUEUE_NAME
        pool = pod.labels.get(self.options.node_pool_label_key)
        return project if pool is None else f"{project}-{pool}"

    async def calc_pod_group_priority_class(self, top_owner: Object, pod: Pod, default: str) -> str:
        """Return the priority class that the owner or the pod names, else the ConfigMap's, else ``default``.

        Classes from the first two sources are used only if they exist. ``default`` is not checked.
        """
        priority_class, _ = await self._priority_class((top_owner,), pod, default)
        return priority_class

    async def defaults_for(self, owner: Object) -> WorkloadDefaults:
        """Return the ConfigMap's defaults for the kind of ``owner``. Omit a priority class that does not exist."""
        try:
            found = (await self._defaults()).get(owner.gvk.group_kind)
        except _UNUSABLE as error:
            _log.debug("Unable to get the defaults of a kind", kind=owner.gvk.kind, error=error)
            return WorkloadDefaults()
        if found is None or await self.exists(found.priority_name):
            return found or WorkloadDefaults()
        return WorkloadDefaults("", found.preemptibility)

    async def _priority_class(
        self, owners: Sequence[Object], pod: Pod, default: str
    ) -> tuple[str, Defaults | None]:
        """Return the priority class, and the defaults if they were read."""
        for owner in owners:
            named = _named_priority_class(owner, pod)
            if await self.exists(named):
                return named, None
        try:
            defaults = await self._defaults()
        except _UNUSABLE as error:
            _log.error("Unable to get default values mapping for priority class", error=error)
            return default, None
        for owner in owners:
            found = defaults.get(owner.gvk.group_kind)
            if found is not None and await self.exists(found.priority_name):
                return found.priority_name, defaults
        return default, defaults

    async def _preemptibility(self, owners: Sequence[Object], pod: Pod, defaults: Defaults | None) -> str:
        for labelled in (*owners, pod):
            if (value := labelled.labels.get(kai.PREEMPTIBILITY_LABEL_KEY)) is None:
                continue
            try:
                return parse_preemptibility(value)
            except ValueError as error:
                _log.error("Invalid preemptibility label found", labelled=str(labelled.key), error=error)
        if not defaults:
            try:
                defaults = await self._defaults()
            except _UNUSABLE as error:
                _log.error("Unable to get default values mapping for preemptibility", error=error)
                return ""
        for owner in owners:
            found = defaults.get(owner.gvk.group_kind)
            if found is None or not found.preemptibility:
                continue
            try:
                return parse_preemptibility(found.preemptibility.lower())
            except ValueError as error:
                _log.error("Invalid preemptibility found in defaults configmap", error=error)
        return ""

    async def exists(self, priority_class: str) -> bool:
        """Return True if there is a PriorityClass of this name."""
        if not priority_class:
            return False
        try:
            await client.peek(self.reader, PriorityClass, ("", priority_class))
        except UNREADABLE as error:
            _log.debug("Failed to get priority class", priorityClassName=priority_class, error=error)
            if not isinstance(error, NotFoundError):
                _note_unread(f"PriorityClass {priority_class}", error)
            return False
        return True

    async def _defaults(self) -> Defaults:
        if self.options.default_priorities is None:
            return Defaults()
        try:
            config_map = await self.reader.get(ConfigMap, self.options.default_priorities)
        except UNREADABLE as error:
            _note_unread(f"ConfigMap {self.options.default_priorities}", error)
            raise
        return parse_defaults((config_map.data or {}).get(kai.DEFAULT_PRIORITIES_CONFIG_MAP_TYPES_KEY))


def preemption_delay(text: str) -> int:
    """Return the nanoseconds of a preemption delay.

    Raises:
        ValueError: the text is not a duration, or the duration is negative.
    """
    delay = parse_duration(text)
    if delay < 0:
        raise ValueError(f"preemption delay must be non-negative, got {text}")
    return delay


def _duration(key: str, parse: Callable[[str], int], annotated: Sequence[Object]) -> str | None:
    """Return the duration from the first object whose annotation ``key`` is valid, or None."""
    for obj in annotated:
        if (text := obj.annotations.get(key)) is None:
            continue
        try:
            return format_duration(parse(text))
        except ValueError as error:
            _log.error("Invalid annotation found", annotation=key, annotated=str(obj.key), error=error)
    return None


def _named_priority_class(owner: Object, pod: Pod) -> str:
    for labels in (owner.labels, pod.labels):
        if (name := labels.get(kai.PRIORITY_LABEL_KEY)) is not None:
            return name
    return pod.spec.priority_class_name or ""
