# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer's pod set and container, which the plugins of frameworks change, and the host name of the first node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller_runtime.apis.core.v1 import ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector

from pkg import apply
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.runtime import Container, Info, PodSet, template_spec_apply

# Plugins put these into the lists of many objects. Items of such lists are replaced, never changed.
PORT: Final = ContainerPort(container_port=constants.CONTAINER_TRAINER_PORT)
"""The port at which the nodes find each other."""
NODE_INDEX: Final = EnvVarSource(
    field_ref=ObjectFieldSelector(field_path=constants.JOB_COMPLETION_INDEX_FIELD_PATH)
)
"""The value of a variable with the index of the node."""


def with_count(info: Info, train_job: TrainJob) -> PodSet | None:
    """Set the count of the trainer's pod set to the TrainJob's ``numNodes``. Return the pod set, if there is one."""
    pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
    trainer = train_job.spec.trainer
    if pod_set is not None and trainer is not None and trainer.num_nodes is not None:
        pod_set.count = trainer.num_nodes
    return pod_set


def container(info: Info) -> Container | None:
    """Return the container ``node`` of the trainer, if the template has one."""
    return info.find_container_by_pod_set_ancestor_container_name(constants.ANCESTOR_TRAINER, constants.NODE)


def subdomain(info: Info, train_job: TrainJob) -> str:
    """Return the name of the Service in whose domain the JobSet controller gives the pods their host names."""
    spec = template_spec_apply(info, JobSetSpec)
    network = spec.network if spec is not None else None
    return (network.subdomain if network is not None else None) or train_job.name


def first_host(info: Info, train_job: TrainJob) -> str:
    """Return the host name of the trainer's first pod, at which all nodes meet.

    Unlike upstream, the name has the trainer's own job and the subdomain of the template. If no job has the trainer's
    label, it has the job name ``node``, as upstream's.
    """
    pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
    job = constants.NODE if pod_set is None else pod_set.name
    return f"{train_job.name}-{job}-0-0.{subdomain(info, train_job)}"


def set_rendezvous(info: Info, train_job: TrainJob, environment: Callable[[int], list[EnvVar]]) -> None:
    """Set the number of nodes, and the port and environment with which the nodes find each other.

    All nodes connect to the first node.

    ``environment`` returns the variables for the given number of nodes.
    """
    pod_set, node = with_count(info, train_job), container(info)
    if pod_set is None or node is None:
        return
    node.env = apply.upsert_env_vars(node.env, environment(pod_set.count))
    node.ports = apply.upsert_port(node.ports, [PORT])
