# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics of TrainJobs and of the pod grouper."""

from .metrics import (
    DRIFT_HEALED,
    KIND_DEGRADED,
    OWNERS_UNREADABLE,
    PODS_GROUPED,
    PODS_PUT_OFF,
    TIME_TO_CHILDREN,
    TRAIN_JOB_RECONCILES,
    TRAIN_JOBS,
    DegradedKinds,
    DegradedKindsExporter,
    Phase,
    TrainJobPhases,
)

__all__ = [
    "DRIFT_HEALED",
    "KIND_DEGRADED",
    "OWNERS_UNREADABLE",
    "PODS_GROUPED",
    "PODS_PUT_OFF",
    "TIME_TO_CHILDREN",
    "TRAIN_JOBS",
    "TRAIN_JOB_RECONCILES",
    "DegradedKinds",
    "DegradedKindsExporter",
    "Phase",
    "TrainJobPhases",
]
