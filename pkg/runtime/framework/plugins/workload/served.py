# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The versions of the gang API, which of them is served, and whether JobSet's CRD keeps the field of gangs in pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import msgspec
from controller_runtime import log
from controller_runtime.apis.core.v1 import PodSchedulingGroup, PodSpec
from controller_runtime.machinery import JSON, Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.refreshed import Refreshed
from controller_runtime.rest import PublishedSchema, RestError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.scheduling.common import GangSchedulingPolicy, PodGroupSchedulingPolicy
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob

KINDS: Final[Mapping[str, type[Object]]] = {
    "v1beta1": v1beta1.PodGroup,
    "v1alpha2": v1alpha2.PodGroup,
    "v1alpha1": v1alpha1.Workload,
}
"""The kind that represents a gang in each version, newest version first."""
NEWEST: Final = "v1beta1"
POD_FIELD: Final[Mapping[str, str]] = {
    "v1beta1": "schedulingGroup",
    "v1alpha2": "schedulingGroup",
    "v1alpha1": "workloadRef",
}
"""The field of a pod's spec that names the gang, in each version."""
JOB_SET: Final[Mapping[str, str]] = {"v1beta1": "0.12", "v1alpha2": "0.12", "v1alpha1": "0.11"}
"""For each version, the oldest release of JobSet whose CRD has the field in :data:`POD_FIELD`."""

_POD_GROUP: Final = "gang"
"""The name of the only pod group in a Workload."""

API_NOT_SERVED: Final = "GangAPINotServed"
FIELD_DROPPED: Final = "GangFieldDropped"

_API_NOT_SERVED: Final = (
    "the API server serves no gangs of scheduling.k8s.io: Kubernetes 1.35 or newer serves them if the feature gate "
    "GenericWorkload and their API version are enabled"
)
_FIELD_DROPPED: Final = (
    "the installed JobSet CRD drops the field {} of pods, without which they are not scheduled as a gang: install "
    "JobSet {} or newer"
)

TTL: Final = 60.0
"""Seconds after which the served API is looked up again."""
MISSING_TTL: Final = 5.0
"""Seconds after which a missing API or field is looked up again."""

Published = Callable[[type[Object], PublishedSchema | None], Awaitable[PublishedSchema | None]]
"""Returns the schema that the API server publishes for a kind, or None.

The second argument is the schema that is already known. If the schema is unchanged, the known schema is returned.
"""

Interrupted = Callable[[type[Object]], float | None]
"""Returns the time at which the watch of a kind began to fail, on the clock of :class:`Served`, or None if it works."""

_PRESERVED: Final = "x-kubernetes-preserve-unknown-fields"
_TO_POD_SPEC: Final = ("replicatedJobs", "template", "spec", "template", "spec")


class Support(msgspec.Struct, frozen=True):
    """The version in which gangs are written. If it is empty, ``reason`` and ``message`` say why there is none."""

    version: str = ""
    reason: str = ""
    message: str = ""


class Served:
    """Reads which gang API is served, and remembers the result until it expires (see ``TTL``).

    The result also expires when the watch of the gangs is interrupted, because the server may have been restarted
    without the API. Such a server would drop the field in which pods name their gang. A JobSet may therefore start only
    if the API was read after the interruption. If ``published`` is None, the newest version counts as served.
    """

    def __init__(self, published: Published | None, clock: Callable[[], float] = anyio.current_time) -> None:
        self._published = published
        self._schemas: dict[type[Object], PublishedSchema | None] = {}
        self._keeps: dict[str, bool] = {}
        """For each field in which pods name their gang, True if the installed JobSet CRD keeps it."""
        self._support: Refreshed[Support] = Refreshed(self._read, clock)
        self._interrupted: Interrupted = lambda _kind: None

    @property
    def last(self) -> Support | None:
        """The result of the last read, or None before the first read."""
        return self._support.value

    def expire_after_interruption(self, interrupted: Interrupted) -> None:
        """Set the function that reports interruptions of the watch of the gangs."""
        self._interrupted = interrupted

    async def current(self) -> Support:
        """Return the served API.

        Raises:
            StatusError, RestError: the API cannot be read, and no read has succeeded since the last interruption.
        """
        return await self._support.current(self._is_certain)

    def _is_certain(self, support: Support) -> bool:
        """Return False if the watch of the gangs was interrupted after ``support`` was read."""
        since = self._interrupted(KINDS[support.version]) if support.version else None
        return since is None or since < self._support.read_at

    async def _read(self) -> tuple[Support, float]:
        before = self._support.value
        try:
            support = await self._look_up()
        except (StatusError, RestError) as error:
            if before is None or not self._is_certain(before):
                raise
            log.logger_from().debug("The served gang API cannot be read", error=error)
            support = before
        if support != before and self._published is not None:
            log.logger_from().info(
                "Gang API found" if support.version else "No gang API",
                version=support.version,
                reason=support.message,
            )
        return support, TTL if support.version else MISSING_TTL

    async def _look_up(self) -> Support:
        published = self._published
        if published is None:
            return Support(NEWEST)
        version = ""
        for each, kind in KINDS.items():
            if await self._fetch(published, kind) is not None:
                version = each
                break
        if not version:
            return Support(reason=API_NOT_SERVED, message=_API_NOT_SERVED)
        pod_field = POD_FIELD[version]
        if await self._fetch(published, JobSet) is not None and not self._keeps[pod_field]:
            message = _FIELD_DROPPED.format(pod_field, JOB_SET[version])
            return Support(reason=FIELD_DROPPED, message=message)
        return Support(version)

    async def _fetch(self, published: Published, kind: type[Object]) -> PublishedSchema | None:
        """Return a kind's schema without its properties, which are large. Record which fields JobSet's CRD keeps."""
        known = self._schemas.get(kind)
        found = await published(kind, known)
        if found is not None and found is not known:
            if kind is JobSet:
                self._keeps = {field: keeps(found.properties, field) for field in POD_FIELD.values()}
            found = PublishedSchema(found.revision, {})
        self._schemas[kind] = found
        return found


def keeps(properties: JSON, field: str) -> bool:
    """Return True if a JobSet CRD with these properties keeps ``field`` in the specs of its pods."""
    schema: JSON = {"properties": properties}
    for step in ("spec", *_TO_POD_SPEC):
        if not isinstance(schema, dict) or schema.get(_PRESERVED) or "properties" not in schema:
            return True
        schema = schema["properties"].get(step)
        if isinstance(schema, dict) and "items" in schema:
            schema = schema["items"]
    if not isinstance(schema, dict) or schema.get(_PRESERVED):
        return True
    return field in (schema.get("properties") or {})


def join(pod: PodSpec, version: str, name: str) -> None:
    """Make the pods of a template members of the gang ``name``."""
    if version == "v1alpha1":
        reference = {"name": name, "podGroup": _POD_GROUP}
        pod.set_unknown_fields({**pod.unknown_fields, POD_FIELD[version]: reference})
    else:
        pod.scheduling_group = PodSchedulingGroup(pod_group_name=name)


def new_gang(version: str, train_job: TrainJob, min_count: int, priority_class: str | None) -> Object:
    """Return the object that represents a TrainJob's gang.

    The PriorityClass is set only in v1beta1: in older versions, priorities of gangs need another feature gate.
    """
    metadata = trainjob.child_metadata(train_job)
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=min_count))
    if version == "v1alpha1":
        kind = TrainJob.gvk
        spec = v1alpha1.WorkloadSpec(
            controller_ref=v1alpha1.TypedLocalObjectReference(
                api_group=kind.group, kind=kind.kind, name=train_job.name
            ),
            pod_groups=[v1alpha1.PodGroup(name=_POD_GROUP, policy=policy)],
        )
        return v1alpha1.Workload(metadata=metadata, spec=spec)
    if version == "v1alpha2":
        return v1alpha2.PodGroup(metadata=metadata, spec=v1alpha2.PodGroupSpec(scheduling_policy=policy))
    newest = v1beta1.PodGroupSpec(scheduling_policy=policy)
    if priority_class:
        newest.priority_class_name = priority_class
    return v1beta1.PodGroup(metadata=metadata, spec=newest)
