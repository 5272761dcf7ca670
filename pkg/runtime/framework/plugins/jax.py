# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JAX: sets the number of processes (one for each node), the id of each process, and the coordinator's address.

Unlike upstream, a TrainJob without ``trainer`` gets these variables, too.
"""

from __future__ import annotations

from controller_runtime.apis.core.v1 import EnvVar

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.framework.interface import EnforceMLPolicyPlugin
from pkg.runtime.runtime import Info

from . import trainernodes


class JAX(EnforceMLPolicyPlugin):
    """Serves runtimes with a jax policy."""

    name = "JAX"
    serves = "mlPolicy.jax"

    def why_skipped(self, info: Info, train_job: TrainJob) -> str | None:
        """Return a reason if the jax policy is missing."""
        del train_job
        return "the runtime has no mlPolicy.jax" if info.ml_policy.jax is None else None

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set the number of nodes, and the environment and port with which the nodes find the coordinator."""
        if not self.why_skipped(info, train_job):
            coordinator = f"{trainernodes.first_host(info, train_job)}:{constants.CONTAINER_TRAINER_PORT}"
            trainernodes.set_rendezvous(info, train_job, lambda nodes: _environment(coordinator, nodes))


def _environment(coordinator: str, nodes: int) -> list[EnvVar]:
    return [
        EnvVar(name="JAX_NUM_PROCESSES", value=str(nodes)),
        EnvVar(name="JAX_PROCESS_ID", value_from=trainernodes.NODE_INDEX),
        EnvVar(name="JAX_COORDINATOR_ADDRESS", value=coordinator),
    ]
