# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deletes JobSets, and reports children whose deletion takes long, once each: finalizers keep them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from controller_runtime import log
from controller_runtime.client import Writer
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import ConflictError, NotFoundError
from controller_runtime.machinery.meta import parse_time
from controller_runtime.recorder import EventRecorder

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

from .pending import UNTIL_DELETED, PendingError

LONG: Final = timedelta(seconds=60)
"""A deletion that takes longer is reported: pods have 30 seconds by default."""
_EVENT_REASON: Final = "WaitingForDeletion"


class BeingDeletedError(PendingError):
    """A child is being deleted; the next object of its name is built afterwards."""

    def __init__(self, live: Object) -> None:
        super().__init__(f"{live.gvk.kind.lower()} {live.key}: it is being deleted", UNTIL_DELETED)
        self.live = live


async def being_deleted(read: Callable[[Object], Awaitable[Object]], child: Object) -> PendingError:
    """Return the error about a child that was found being deleted; it may be deleted by now."""
    try:
        return BeingDeletedError(await read(child))
    except NotFoundError:
        return PendingError(f"{child.gvk.kind.lower()} {child.key}: it was deleted")


async def delete(client: Writer, job_set: JobSet) -> None:
    """Delete a JobSet. Its Jobs are deleted with it.

    Raises:
        StatusError: the API server refused.
        TransportError: the API server was unreachable.
    """
    if job_set.metadata.deletion_timestamp is not None:
        return
    preconditions = {"uid": job_set.metadata.uid} if job_set.metadata.uid else {}
    log.logger_from().debug("Deleting the JobSet", jobSet=str(job_set.key))
    try:
        await client.delete(job_set, propagation="Background", preconditions=preconditions)
    except ConflictError:
        return  # this JobSet is deleted
    except NotFoundError as error:
        if not error.names_object:
            raise


class Deletions:
    """Remembers which deletions were reported."""

    def __init__(self, recorder: EventRecorder, now: Callable[[], datetime]) -> None:
        self._recorder = recorder
        self._now = now
        self._reported: dict[NamespacedName, set[str]] = {}
        """By TrainJob, the uids of children."""

    def forget(self, owner: NamespacedName) -> None:
        """Forget the children of ``owner``."""
        self._reported.pop(owner, None)

    def report(self, train_job: TrainJob, live: Object) -> None:
        """Record an event about a deletion that takes long, unless it has one.

        A child of an earlier TrainJob of the same name may not have been deleted yet: this TrainJob has waited for it
        since its creation.
        """
        uid = live.metadata.uid or ""
        since = live.metadata.deletion_timestamp or train_job.metadata.creation_timestamp
        if since is None or self._now() - parse_time(since) < LONG:
            return
        reported = self._reported.setdefault(train_job.key, set())
        if uid not in reported:
            reported.add(uid)
            message = f"Waiting for the deletion of {live.gvk.kind} {live.key}"
            if live.metadata.deletion_timestamp is None:
                message += " of an earlier TrainJob of this name: the garbage collector has not deleted it"
            else:
                message += f"; its finalizers: {', '.join(live.metadata.finalizers or ()) or 'none'}"
            self._recorder.event(train_job, "Warning", _EVENT_REASON, message)
