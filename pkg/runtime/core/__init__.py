# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The supported runtimes: TrainingRuntime and ClusterTrainingRuntime."""

from .clustertrainingruntime import CLUSTER_TRAINING_RUNTIME_GROUP_KIND as CLUSTER_TRAINING_RUNTIME_GROUP_KIND
from .clustertrainingruntime import ClusterTrainingRuntime as ClusterTrainingRuntime
from .core import RuntimeRegistryError as RuntimeRegistryError
from .core import new as new
from .registry import Registry as Registry
from .registry import RuntimeFactory as RuntimeFactory
from .registry import RuntimeRegistrar as RuntimeRegistrar
from .registry import new_runtime_registry as new_runtime_registry
from .snapshot import snapshot_name as snapshot_name
from .trainingruntime import TRAINING_RUNTIME_GROUP_KIND as TRAINING_RUNTIME_GROUP_KIND
from .trainingruntime import RuntimeNotFoundError as RuntimeNotFoundError
from .trainingruntime import TrainingRuntime as TrainingRuntime
