# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The supported runtimes: TrainingRuntime and ClusterTrainingRuntime."""

from .clustertrainingruntime import CLUSTER_TRAINING_RUNTIME_GROUP_KIND as CLUSTER_TRAINING_RUNTIME_GROUP_KIND
from .clustertrainingruntime import ClusterTrainingRuntime as ClusterTrainingRuntime
from .core import new as new
from .snapshot import snapshot_name as snapshot_name
from .trainingruntime import TRAINING_RUNTIME_GROUP_KIND as TRAINING_RUNTIME_GROUP_KIND
from .trainingruntime import RuntimeNotFoundError as RuntimeNotFoundError
from .trainingruntime import TrainingRuntime as TrainingRuntime
from .trainingruntime import new_runtime_info as new_runtime_info
