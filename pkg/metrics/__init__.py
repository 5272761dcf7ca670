# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics of TrainJobs and of the pod grouper."""

from .metrics import DRIFT_HEALED as DRIFT_HEALED
from .metrics import KIND_DEGRADED as KIND_DEGRADED
from .metrics import OWNERS_UNREADABLE as OWNERS_UNREADABLE
from .metrics import PODS_GROUPED as PODS_GROUPED
from .metrics import PODS_PUT_OFF as PODS_PUT_OFF
from .metrics import TIME_TO_CHILDREN as TIME_TO_CHILDREN
from .metrics import TRAIN_JOB_RECONCILES as TRAIN_JOB_RECONCILES
from .metrics import TRAIN_JOBS as TRAIN_JOBS
from .metrics import TRAIN_JOBS_BY_RUNTIME as TRAIN_JOBS_BY_RUNTIME
from .metrics import DegradedKinds as DegradedKinds
from .metrics import DegradedKindsExporter as DegradedKindsExporter
from .metrics import Phase as Phase
from .metrics import TrainJobPhases as TrainJobPhases
