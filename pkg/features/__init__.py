# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Feature gates: features that an operator enables or disables by name."""

from .features import EXECUTION_ATTEMPTS as EXECUTION_ATTEMPTS
from .features import FAILURE_EVIDENCE as FAILURE_EVIDENCE
from .features import MUTABLE_NUM_NODES as MUTABLE_NUM_NODES
from .features import TRAIN_JOB_STATUS as TRAIN_JOB_STATUS
from .features import TTL_AFTER_FINISHED as TTL_AFTER_FINISHED
from .features import Gates as Gates
from .features import UnknownFeatureGateError as UnknownFeatureGateError
from .features import known as known
from .features import resolve as resolve
