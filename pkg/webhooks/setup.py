# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Registers the webhooks with a manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import controller_runtime as ctrl
from controller_runtime.webhook import CustomValidator

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import Runtime

from .clustertrainingruntime_webhook import ClusterTrainingRuntimeWebhook
from .trainingruntime_webhook import TrainingRuntimeWebhook
from .trainjob_defaulter import TrainJobDefaulter
from .trainjob_webhook import TrainJobWebhook


def setup(mgr: ctrl.Manager, runtimes: Mapping[str, Runtime], cfg: Configuration | None = None) -> None:
    """Serve the validating webhooks of the three kinds, and the mutating webhook of TrainJobs."""
    for kind, validator in validators(runtimes, cfg).items():
        builder = ctrl.new_webhook_managed_by(mgr, kind).with_validator(validator)
        if kind is TrainJob:
            builder = builder.with_mutator(TrainJobDefaulter(cfg))
        builder.complete()


def validators(
    runtimes: Mapping[str, Runtime], cfg: Configuration | None = None
) -> dict[type[Any], CustomValidator[Any]]:
    """Return the webhooks' validators, for callers without a server."""
    return {
        ClusterTrainingRuntime: ClusterTrainingRuntimeWebhook(cfg),
        TrainingRuntime: TrainingRuntimeWebhook(cfg),
        TrainJob: TrainJobWebhook(runtimes, cfg),
    }
