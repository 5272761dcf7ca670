# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A custom plugin: sets the network fabric of collectives in the environment of the trainer's containers.

A TrainJob selects a fabric by the annotation ``interconnect.example.com/fabric`` in ``spec.annotations``. A runtime may
set it for all its TrainJobs in the metadata of its template. Variables in ``spec.trainer.env`` take precedence.
"""

from __future__ import annotations

from typing import Final

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import EnvVar
from controller_runtime.client import FieldIndexer
from controller_runtime.machinery import field

from pkg import apply
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import Info
from pkg.runtime.framework import CustomValidationPlugin, EnforceMLPolicyPlugin

FABRIC: Final = "interconnect.example.com/fabric"
ENVIRONMENTS: Final = {
    "efa": {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_PROTO": "simple"},
    "infiniband": {"NCCL_IB_HCA": "mlx5", "NCCL_IB_GID_INDEX": "3"},
}


async def new(_client: ctrl.Reader, _indexer: FieldIndexer) -> Interconnect:
    """Return the plugin. A plugin that reads the cluster keeps the client."""
    return Interconnect()


class Interconnect(EnforceMLPolicyPlugin, CustomValidationPlugin):
    """Configures TrainJobs that name a fabric."""

    name = "Interconnect"

    def why_skipped(self, info: Info, train_job: TrainJob) -> str | None:
        """Return the reason to skip the TrainJob: it names no fabric."""
        del train_job
        return None if FABRIC in info.annotations else f"there is no annotation {FABRIC}"

    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Reject an unknown fabric."""
        del old, new
        errors = field.ErrorList()
        fabric = info.annotations.get(FABRIC)
        if fabric is not None and fabric not in ENVIRONMENTS:
            path = field.Path("spec").child("annotations").key(FABRIC)
            errors.append(field.not_supported(path, fabric, sorted(ENVIRONMENTS)))
        return [], errors

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set the fabric's environment in the containers of the trainer."""
        del train_job
        wanted = ENVIRONMENTS.get(info.annotations.get(FABRIC, ""), {})
        trainer = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
        for container in trainer.containers if trainer is not None else ():
            present = {env.name for env in container.env or ()}
            missing = [
                EnvVar(name=name, value=value) for name, value in wanted.items() if name not in present
            ]
            container.env = apply.upsert_env_vars(container.env, missing)
