# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""XGBoost: sets the address of the tracker, the number of workers and the id of each node.

A node has one worker for each GPU, but at least one worker. Unlike upstream, a TrainJob without ``trainer`` gets the
variables, too.
"""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.core.v1 import EnvVar
from controller_runtime.machinery import field

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import runtime
from pkg.runtime.framework.interface import CustomValidationPlugin, EnforceMLPolicyPlugin

from . import trainernodes

_ENV: Final = field.Path("spec").child("trainer").child("env")


class XGBoost(EnforceMLPolicyPlugin, CustomValidationPlugin):
    """Serves runtimes with an xgboost policy."""

    name = "XGBoost"
    serves = "mlPolicy.xgboost"

    def why_skipped(self, info: runtime.Info, train_job: TrainJob) -> str | None:
        """Return a reason if the xgboost policy is missing."""
        del train_job
        return "the runtime has no mlPolicy.xgboost" if info.ml_policy.xgboost is None else None

    async def validate(
        self, info: runtime.Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Check that the TrainJob does not set the environment variables that this plugin sets."""
        del old
        errors = field.ErrorList()
        trainer = new.spec.trainer
        if self.why_skipped(info, new) or trainer is None:
            return [], errors
        for index, env in enumerate(trainer.env or ()):
            if env.name in constants.XGBOOST_RESERVED_ENV_NAMES:
                detail = f"{env.name} is reserved for the XGBoost runtime"
                errors.append(field.forbidden(_ENV.index(index), detail))
        return [], errors

    def enforce_ml_policy(self, info: runtime.Info, train_job: TrainJob) -> None:
        """Set the number of nodes, and the environment and port with which the nodes' workers find the tracker."""
        if self.why_skipped(info, train_job):
            return

        def environment(nodes: int) -> list[EnvVar]:
            gpus = runtime.get_num_gpu_per_node(runtime.resources_per_node(info, train_job, merged=True))
            return _environment(trainernodes.first_host(info, train_job), nodes * max(gpus, 1))

        trainernodes.set_rendezvous(info, train_job, environment)


def _environment(tracker: str, workers: int) -> list[EnvVar]:
    return [
        EnvVar(name=constants.XGBOOST_ENV_TRACKER_URI, value=tracker),
        EnvVar(name=constants.XGBOOST_ENV_TRACKER_PORT, value=str(constants.CONTAINER_TRAINER_PORT)),
        EnvVar(name=constants.XGBOOST_ENV_TASK_ID, value_from=trainernodes.NODE_INDEX),
        EnvVar(name=constants.XGBOOST_ENV_NUM_WORKER, value=str(workers)),
    ]
