# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""PlainML: serves runtimes without a framework. It applies only ``numNodes`` and ``env`` of the TrainJob's trainer."""

from __future__ import annotations

from typing import Final

from pkg import apply
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.framework.interface import EnforceMLPolicyPlugin
from pkg.runtime.runtime import Info

from . import trainernodes

_FRAMEWORKS: Final = ("torch", "mpi", "jax", "xgboost", "flux")


class PlainML(EnforceMLPolicyPlugin):
    """Serves runtimes whose mlPolicy names no framework."""

    name = "PlainML"

    def why_skipped(self, info: Info, train_job: TrainJob) -> str | None:
        """Return a reason if the mlPolicy names a framework, or the TrainJob has no trainer."""
        policy = info.ml_policy
        for name in _FRAMEWORKS:
            if getattr(policy, name) is not None:
                return f"the runtime's mlPolicy names {name}"
        return "the TrainJob has no spec.trainer" if train_job.spec.trainer is None else None

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set the trainer's count and environment from the TrainJob."""
        trainer = train_job.spec.trainer
        if trainer is None or self.why_skipped(info, train_job):
            return
        trainernodes.with_count(info, train_job)
        container = trainernodes.container(info)
        if container is not None:
            container.env = apply.upsert_env_vars(container.env, apply.env_vars(trainer.env))
