# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The times at which TrainJobs arrived by their watch, until their children exist.

The creation timestamp has whole seconds, and a TrainJob's children are applied in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from controller_runtime import predicate
from controller_runtime.event import CreateEvent
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.meta import parse_time

from pkg.apis.trainer.v1alpha1 import TrainJob


class Arrivals(predicate.Funcs[TrainJob]):
    """A predicate of the TrainJobs' watch that passes every event and notes creations.

    A TrainJob of the first list was created before: its age counts from its creation timestamp.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(create=self._note)
        self._now = now
        self._arrived: dict[NamespacedName, datetime] = {}

    def __len__(self) -> int:
        return len(self._arrived)

    def take(self, train_job: TrainJob) -> float:
        """Return the seconds since the arrival, and forget it."""
        since, created = self._arrived.pop(train_job.key, None), train_job.metadata.creation_timestamp
        if since is None and created:
            since = parse_time(created)
        return max(0.0, (self._now() - since).total_seconds()) if since is not None else 0.0

    def forget(self, key: NamespacedName) -> None:
        """Forget a TrainJob that gets no children."""
        self._arrived.pop(key, None)

    def _note(self, evt: CreateEvent[TrainJob]) -> bool:
        if not evt.is_in_initial_list:
            self._arrived[evt.key] = self._now()
        return True
