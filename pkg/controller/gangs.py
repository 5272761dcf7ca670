# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Replaces Kubernetes' own gangs (Workloads and PodGroups), because some of their fields are immutable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller_runtime import client, log
from controller_runtime.machinery import GVK, Object
from controller_runtime.machinery.errors import ConflictError, InvalidError, NotFoundError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.util import trainjob

from . import drift, writes
from .drift import JobSetRule, Wire
from .writes import UNTIL_DELETED, BeingDeletedError, PendingError

_GANGS: Final[frozenset[GVK]] = frozenset(
    {v1alpha1.Workload.gvk, v1alpha2.PodGroup.gvk, v1beta1.PodGroup.gvk}
)


def is_about_gang(error: InvalidError) -> bool:
    """Return True if the error is about a gang and not about another object."""
    return error.details.get("group") == v1beta1.PodGroup.gvk.group


async def delete_outdated(
    writer: client.Client, job_set: JobSet | None, siblings: Iterable[Object], *, refused: bool = False
) -> None:
    """Delete a gang if its immutable fields differ from the desired ones and none of its pods runs.

    ``refused`` is True if the server has refused a change. The gang is then deleted even if no difference is found
    here, because only the server knows which fields an apply would remove.

    Raises:
        PendingError: the gang is being deleted, or the Jobs of the suspended JobSet are stopping.
        ChildConflictError: the TrainJob does not control the gang.
        StatusError: the API server refused.
        TransportError: the API server was unreachable.
    """
    if job_set is not None and not job_set.spec.suspend:
        return  # the JobSet is suspended first
    for desired in siblings:
        if desired.gvk not in _GANGS:
            continue
        try:
            live = (await client.peek(writer, type(desired), desired.key)).object
        except NotFoundError:
            continue
        trainjob.require_control(live, trainjob.controller_of(desired))
        where = f"{live.gvk.kind} {live.key}"
        if live.metadata.deletion_timestamp is not None:
            raise BeingDeletedError(live)
        if not refused and drift.covers(_fixed(live), _fixed(desired)):
            continue
        if job_set is not None and JobSetRule(job_set.to_dict()).active:
            raise PendingError(f"{where}: it is replaced when the Jobs have stopped", UNTIL_DELETED)
        log.logger_from().info("Replacing the gang", gang=str(live.key))
        try:
            await writes.delete(writer, live, "Background", unchanged=True)
        except (NotFoundError, ConflictError) as error:
            raise PendingError(f"{where}: it changed meanwhile") from error
        raise PendingError(f"{where}: it is built again with other immutable fields")


def _fixed(gang: Object) -> Wire:
    """Return the immutable fields of a gang. Since v1beta1, ``minCount`` is mutable."""
    spec: Wire = dict(gang.to_dict().get("spec") or {})
    if gang.gvk == v1beta1.PodGroup.gvk:
        policy = dict(spec.get("schedulingPolicy") or {})
        policy["gang"] = drift.without(policy.get("gang") or {}, {"minCount"})
        spec["schedulingPolicy"] = policy
    return spec
