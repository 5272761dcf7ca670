# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Registers the webhooks with a manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import controller_runtime as ctrl
from controller_runtime.machinery import Object
from controller_runtime.webhook import CustomValidator

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import Runtime

from .clustertrainingruntime_webhook import (
    ClusterTrainingRuntimeWebhook,
    setup_webhook_for_cluster_training_runtime,
)
from .trainingruntime_webhook import TrainingRuntimeWebhook, setup_webhook_for_training_runtime
from .trainjob_webhook import TrainJobWebhook, setup_webhook_for_train_job


def setup(mgr: ctrl.Manager, runtimes: Mapping[str, Runtime], cfg: Configuration | None = None) -> None:
    """Serve the webhooks of the three kinds."""
    setup_webhook_for_cluster_training_runtime(mgr, cfg)
    setup_webhook_for_training_runtime(mgr, cfg)
    setup_webhook_for_train_job(mgr, runtimes, cfg)


def validators(
    runtimes: Mapping[str, Runtime], cfg: Configuration | None = None
) -> dict[type[Object], CustomValidator[Any]]:
    """Return the webhooks' validators, for callers without a server."""
    return {
        ClusterTrainingRuntime: ClusterTrainingRuntimeWebhook(cfg),
        TrainingRuntime: TrainingRuntimeWebhook(cfg),
        TrainJob: TrainJobWebhook(runtimes, cfg),
    }
