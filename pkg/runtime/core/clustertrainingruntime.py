# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ClusterTrainingRuntime: the cluster-scoped runtime."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import field

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.runtime import interface
from pkg.util import trainingruntime

from .trainingruntime import AnyRuntime, TrainingRuntime

CLUSTER_TRAINING_RUNTIME_GROUP_KIND: Final = str(trainer.ClusterTrainingRuntime.gvk.group_kind)


class ClusterTrainingRuntime(TrainingRuntime):
    """Serves TrainJobs that refer to a ClusterTrainingRuntime, which is the default kind."""

    kind = trainer.ClusterTrainingRuntime
    not_found = "not found ClusterTrainingRuntime specified in TrainJob: {}"
    not_created = "{}: specified clusterTrainingRuntime must be created before the TrainJob is created"
    path = field.Path("spec", "RuntimeRef")
    reads = "getting"

    def event_handler_registrars(self) -> list[interface.ReconcilerBuilder]:
        """Return no watches: the namespaced kind adds the plugins' watches."""
        return []

    def warnings_about(self, found: AnyRuntime) -> list[str]:
        """Return a warning if the runtime is deprecated."""
        return [f"Referenced {each}" for each in trainingruntime.deprecation_warnings(found, self.cfg)]
