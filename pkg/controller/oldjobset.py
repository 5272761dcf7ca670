# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A JobSet that is too old for a runtime: its CRD drops the claims of pods, and the pods then lack their volumes."""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.machinery.object import Object
from controller_runtime.recorder import WARNING, EventRecorder

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

REASON: Final = "JobSetTooOld"
MESSAGE: Final = (
    "the installed JobSet CRD drops spec.volumeClaimPolicies, without which no PersistentVolumeClaims are created: "
    "install JobSet v0.11 or newer"
)


class DroppedClaims:
    """Compares JobSets with the answers to their applies, which costs no request."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._dropped = False

    def observe(self, desired: Object, stored: Object) -> None:
        """Note whether the server has kept the claims of a JobSet."""
        if isinstance(desired, JobSet) and isinstance(stored, JobSet) and desired.spec.volume_claim_policies:
            self._dropped = not stored.spec.volume_claim_policies

    def report(self, train_job: TrainJob, job_set: JobSet) -> None:
        """Record an event for the TrainJob of a JobSet that has just lost its claims."""
        if self._dropped and job_set.spec.volume_claim_policies:
            self._recorder.event(train_job, WARNING, REASON, MESSAGE)

    def remark(self) -> str | None:
        """Return the problem for the readiness endpoint, which stays ready: other TrainJobs run."""
        return MESSAGE if self._dropped else None
