# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainJobs that were suspended since their JobSets started.

A TrainJob may be suspended, changed and resumed before it is reconciled, as Kueue does when it moves one whose pods are
not reported yet. A reconcile reads the last state alone, in which TrainJob and JobSet both run.
"""

from __future__ import annotations

from typing import NamedTuple

from controller_runtime import predicate
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.event import UpdateEvent

from pkg.apis.trainer.v1alpha1 import TrainJob


class _Note(NamedTuple):
    uid: str | None
    generation: int


class Suspensions(predicate.Funcs[TrainJob]):
    """A predicate of the TrainJobs' watch that passes every event and notes suspensions.

    They are lost with the process, and where the watch was interrupted for so long that it starts with a list.
    """

    def __init__(self) -> None:
        super().__init__(update=self._note)
        self._suspended: dict[NamespacedName, _Note] = {}

    def __len__(self) -> int:
        return len(self._suspended)

    def owed(self, train_job: TrainJob) -> bool:
        """Return True if this TrainJob was suspended, and :meth:`settle` was not called since."""
        note = self._suspended.get(train_job.key)
        return note is not None and note.uid == train_job.metadata.uid

    def settle(self, train_job: TrainJob) -> None:
        """Forget suspensions up to this state of a TrainJob; a later one may be noted already."""
        note = self._suspended.get(train_job.key)
        if note is not None and note.generation <= (train_job.metadata.generation or 0):
            del self._suspended[train_job.key]

    def forget(self, key: NamespacedName) -> None:
        """Forget a TrainJob that needs no children."""
        self._suspended.pop(key, None)

    def _note(self, evt: UpdateEvent[TrainJob]) -> bool:
        # A suspension is a change of the spec; most events are of the status.
        metadata = evt.new_metadata
        if metadata.generation != evt.old_metadata.generation and evt.new.spec.suspend:
            self._suspended[evt.key] = _Note(metadata.uid, metadata.generation or 0)
        return True
