# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The feature gates of this project.

As in Kubernetes, there is also a gate for each stage, such as ``AllAlpha``. It applies to a feature of the stage if the
feature's own gate is not set.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

EXECUTION_ATTEMPTS: Final = "ExecutionAttempts"
"""The count of a TrainJob's starts, in its status and in the environment of its containers."""
MUTABLE_NUM_NODES: Final = "MutableNumNodes"
"""Changes of ``spec.trainer.numNodes`` of suspended TrainJobs, which Trainer v2.3 refuses."""
TRAIN_JOB_STATUS: Final = "TrainJobStatus"
"""The status server, to which the pods of a TrainJob report its progress."""
FAILURE_EVIDENCE: Final = "FailureEvidence"
"""Events on TrainJobs about failed containers. The events remain when the pods are deleted."""
TTL_AFTER_FINISHED: Final = "TTLAfterFinished"
"""The deletion of finished TrainJobs after ``ttlSecondsAfterFinished``."""


class Stage(enum.StrEnum):
    """The maturity of a feature. The value is the name of the gate for all features of the stage."""

    ALPHA = "AllAlpha"
    BETA = "AllBeta"


_STAGES: Final = {
    EXECUTION_ATTEMPTS: Stage.ALPHA,
    FAILURE_EVIDENCE: Stage.ALPHA,
    MUTABLE_NUM_NODES: Stage.ALPHA,
    TRAIN_JOB_STATUS: Stage.ALPHA,
    TTL_AFTER_FINISHED: Stage.ALPHA,
}
"""The stage of each feature. All features are disabled by default."""


class UnknownFeatureGateError(ValueError):
    """No feature gate has this name. The text names the gate."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unrecognized feature gate: {name}; the gates are {', '.join(known())}")


class Gates(msgspec.Struct, frozen=True):
    """The state of every feature. Without settings, no feature is enabled."""

    settings: Mapping[str, bool]

    def enabled(self, feature: str) -> bool:
        """Return True if ``feature`` is enabled.

        The feature's own gate decides. If that gate is not set, the gate of the feature's stage decides.
        """
        return self.settings.get(feature, self.settings.get(_STAGES[feature], False))


def known() -> list[str]:
    """Return the names of all gates."""
    return [*(stage.value for stage in Stage), *_STAGES]


def resolve(settings: Mapping[str, bool]) -> Gates:
    """Return the gates with these settings.

    Raises:
        UnknownFeatureGateError: a setting names an unknown gate.
    """
    for name in settings:
        if name not in known():
            raise UnknownFeatureGateError(name)
    return Gates(settings)
