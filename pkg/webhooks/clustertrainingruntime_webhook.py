# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission of ClusterTrainingRuntimes."""

from __future__ import annotations

from controller_runtime.webhook import CustomValidator

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from pkg.util import trainingruntime

from .trainingruntime_webhook import check_runtime, check_update

# +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=clustertrainingruntimes,verbs=create;update,versions=v1alpha1,name=validator.clustertrainingruntime.trainer.kubeflow.org,admissionReviewVersions=v1


class ClusterTrainingRuntimeWebhook(CustomValidator[ClusterTrainingRuntime]):
    """Validates ClusterTrainingRuntimes, and warns of deprecated ones when they are created."""

    protects_go_clients = True

    def __init__(self, cfg: Configuration | None = None) -> None:
        self._cfg = defaulted() if cfg is None else cfg

    async def validate_create(self, obj: ClusterTrainingRuntime) -> list[str]:
        """Return the warning for a deprecated runtime. Raises like the webhook of TrainingRuntimes."""
        warnings = trainingruntime.deprecation_warnings(obj, self._cfg)
        return await check_runtime(None, obj, self._cfg, warnings=warnings)

    async def validate_update(self, old: ClusterTrainingRuntime, new: ClusterTrainingRuntime) -> list[str]:
        """Check a changed spec, see :func:`.trainingruntime_webhook.check_update`."""
        return await check_update(old, new, self._cfg)

    async def validate_delete(self, obj: ClusterTrainingRuntime) -> list[str]:
        """Allow the deletion: the finalizer protects a runtime in use."""
        del obj
        return []
