# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reports objects that pods of a running JobSet need, and that would not fit it if they were created now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller_runtime import client
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.recorder import EventRecorder

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

_EVENT_REASON: Final = "ChildNotRecreated"


class MissingSiblings:
    """Remembers which missing siblings were reported."""

    def __init__(self, reader: client.Reader, recorder: EventRecorder) -> None:
        self._reader = reader
        self._recorder = recorder
        self._reported: dict[NamespacedName, set[str]] = {}
        """By TrainJob, the kinds and names of siblings, and the uid of the JobSet that lacks them."""

    def forget(self, owner: NamespacedName) -> None:
        """Forget the siblings of ``owner``."""
        self._reported.pop(owner, None)

    async def report(self, train_job: TrainJob, live: JobSet, wanted: Iterable[Object]) -> None:
        """Record an event about each of the ``wanted`` siblings that does not exist, unless it has one.

        Raises:
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        reported = self._reported.get(train_job.key, set())
        missing = set()
        for each in wanted:
            try:
                await client.peek(self._reader, type(each), each.key)
            except NotFoundError:
                missing.add(sibling := f"{each.gvk.kind} {each.key} {live.metadata.uid}")
                if sibling not in reported:
                    self._record(train_job, live, each)
        if missing:
            self._reported[train_job.key] = missing
        else:
            self.forget(train_job.key)

    def _record(self, train_job: TrainJob, live: JobSet, missing: Object) -> None:
        message = (
            f"{missing.gvk.kind} {missing.key} is missing. The TrainJob or its runtime has changed since JobSet "
            f"{live.key} started, so a new one would not fit it: suspend the TrainJob and resume it"
        )
        self._recorder.event(train_job, "Warning", _EVENT_REASON, message)
