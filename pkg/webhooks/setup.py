# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Registers the validating webhooks with a manager."""

from __future__ import annotations

from collections.abc import Mapping

from pkg import ctrl
from pkg.runtime import Runtime

from .clustertrainingruntime_webhook import setup_webhook_for_cluster_training_runtime
from .trainingruntime_webhook import setup_webhook_for_training_runtime
from .trainjob_webhook import setup_webhook_for_train_job


def setup(mgr: ctrl.Manager, runtimes: Mapping[str, Runtime]) -> None:
    """Serve the webhooks of the three kinds."""
    setup_webhook_for_cluster_training_runtime(mgr)
    setup_webhook_for_training_runtime(mgr)
    setup_webhook_for_train_job(mgr, runtimes)
