# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs of TrainJobs: replacing an immutable gang, and reporting one that waits or is unavailable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller_runtime import client, log
from controller_runtime.machinery import GVK, NamespacedName, Object
from controller_runtime.machinery.errors import ConflictError, InvalidError, NotFoundError
from controller_runtime.machinery.printable import printable_line
from controller_runtime.recorder import EventRecorder

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime
from pkg.util import trainjob

from . import drift
from .deletions import BeingDeletedError
from .drift import Wire
from .jobsetrule import JobSetRule
from .pending import UNTIL_DELETED, PendingError

WAITING_REASON: Final = "GangWaiting"

_GANGS: Final[frozenset[GVK]] = frozenset(
    {v1alpha1.Workload.gvk, v1alpha2.PodGroup.gvk, v1beta1.PodGroup.gvk}
)
_MESSAGE_LIMIT: Final = 1000


def refuses(error: InvalidError) -> bool:
    """Return True if the error refuses a gang."""
    return f".{v1beta1.PodGroup.gvk.group} " in str(error)


async def make_way(
    writer: client.Client, job_set: JobSet | None, siblings: Iterable[Object], *, refused: bool = False
) -> None:
    """Delete a gang whose immutable fields differ from the desired ones, while none of its pods runs.

    With ``refused``, the server has refused a change: only it knows the fields that an apply would remove.

    Raises:
        PendingError: the gang is being deleted, or the Jobs of the suspended JobSet are stopping.
        ChildConflictError: the TrainJob does not control the gang.
        StatusError: the API server refused.
        TransportError: the API server was unreachable.
    """
    if job_set is not None and not job_set.spec.suspend:
        return  # it is suspended first
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
        await _delete(writer, live)
        raise PendingError(f"{where}: it is built again with other immutable fields")


async def _delete(writer: client.Client, gang: Object) -> None:
    judged = {"uid": gang.metadata.uid, "resourceVersion": gang.metadata.resource_version}
    preconditions = {name: value for name, value in judged.items() if value}
    log.logger_from().info("Replacing the gang", gang=str(gang.key))
    try:
        await writer.delete(gang, propagation="Background", preconditions=preconditions)
    except (NotFoundError, ConflictError) as error:
        raise PendingError(f"{gang.gvk.kind} {gang.key}: it changed meanwhile") from error


def _fixed(gang: Object) -> Wire:
    """Return the immutable part of a gang: since v1beta1, minCount may change."""
    spec: Wire = dict(gang.to_dict().get("spec") or {})
    if gang.gvk == v1beta1.PodGroup.gvk:
        policy = dict(spec.get("schedulingPolicy") or {})
        policy["gang"] = drift.without(policy.get("gang") or {}, {"minCount"})
        spec["schedulingPolicy"] = policy
    return spec


class GangReports:
    """Reports with an event why a gang waits, once for each reason."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported: dict[NamespacedName, tuple[str, str]] = {}

    async def report(self, runtime: Runtime, train_job: TrainJob) -> None:
        """Record an event if the TrainJob's gang waits for another reason than before."""
        waiting = None if train_job.spec.suspend else await runtime.why_waiting(train_job)
        if waiting is None:
            self._reported.pop(train_job.key, None)
        elif self._reported.get(train_job.key) != (report := (train_job.metadata.uid or "", waiting.reason)):
            self._reported[train_job.key] = report
            message = printable_line(f"{waiting.reason}: {waiting.message}")[:_MESSAGE_LIMIT]
            self._recorder.event(train_job, "Warning", WAITING_REASON, message)

    def forget(self, owner: NamespacedName) -> None:
        """Forget the reports of a TrainJob."""
        self._reported.pop(owner, None)
