# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer's pod set and container, which the plugins of frameworks change."""

from __future__ import annotations

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.runtime import Container, Info, PodSet


def with_count(info: Info, train_job: TrainJob) -> PodSet | None:
    """Return the trainer's pod set, if the template has one, after its count is set to the TrainJob's ``numNodes``."""
    pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
    trainer = train_job.spec.trainer
    if pod_set is not None and trainer is not None and trainer.num_nodes is not None:
        pod_set.count = trainer.num_nodes
    return pod_set


def container(info: Info) -> Container | None:
    """Return the container ``node`` of the trainer, if the template has one."""
    return info.find_container_by_pod_set_ancestor_container_name(constants.ANCESTOR_TRAINER, constants.NODE)
