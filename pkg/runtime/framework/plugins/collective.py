# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that find each other at the first of them: the common part of the frameworks with one coordinator."""

from __future__ import annotations

from collections.abc import Callable

from controller_runtime.apis.core.v1 import ContainerPort, EnvVar

from pkg import apply
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.runtime import Info

from . import trainernodes


def connect_nodes(info: Info, train_job: TrainJob, environment: Callable[[int], list[EnvVar]]) -> None:
    """Set the number of nodes, and the port and environment of the trainer's container.

    ``environment`` returns the variables for a number of nodes.
    """
    pod_set, container = trainernodes.with_count(info, train_job), trainernodes.container(info)
    if pod_set is None or container is None:
        return
    container.env = apply.upsert_env_vars(container.env, environment(pod_set.count))
    container.ports = apply.upsert_port(
        container.ports, [ContainerPort(container_port=constants.CONTAINER_TRAINER_PORT)]
    )
