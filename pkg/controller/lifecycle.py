# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The course of TrainJobs, as metrics, log lines and the reports of those that have not started show it."""

from __future__ import annotations

from controller_runtime.apis.machinery.gvk import NamespacedName

from pkg import metrics
from pkg.apis.trainer.v1alpha1 import TrainJob

from .starts import Starts


class Lifecycle:
    """Observes each reconciled TrainJob."""

    def __init__(self, starts: Starts | None = None) -> None:
        self._phases = metrics.TrainJobPhases()
        self._starts = starts

    def observe(self, train_job: TrainJob, *, failing: bool = False) -> None:
        """Note the state of a TrainJob after a reconcile, which has failed if ``failing``."""
        self._phases.observe(train_job)
        if self._starts is not None:
            self._starts.observe(train_job, failing=failing)

    def skip(self, key: NamespacedName) -> None:
        """Note that a TrainJob is not ours to start: it is being deleted, or another controller manages it."""
        if self._starts is not None:
            self._starts.forget(key)

    def forget(self, key: NamespacedName) -> None:
        """Note that a TrainJob was deleted."""
        self._phases.forget(key)
        self.skip(key)
