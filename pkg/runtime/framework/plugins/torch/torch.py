# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Torch: the number of processes that torchrun starts on every node, and their rendezvous.

A trainer with the command ``tune run`` is TorchTune's (``torchtune.py``): its arguments are recipe, configuration
and ``--rdzv_endpoint``. As upstream, a TrainJob without ``trainer`` keeps the runtime's environment.
"""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.core.v1 import (
    ContainerPort,
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    ResourceRequirements,
)
from controller_runtime.apis.machinery import field, quantity
from controller_runtime.apis.machinery.intstr import IntOrString
from controller_runtime.client import FieldIndexer, Reader

from pkg import apply
from pkg.apis.trainer.v1alpha1 import TorchMLPolicySource, Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import runtime
from pkg.runtime.framework.interface import CustomValidationPlugin, EnforceMLPolicyPlugin

from . import torchtune

NAME: Final = "Torch"

_AUTO: Final = "auto"
_CPU: Final = "cpu"
_WORDS: Final = (_AUTO, _CPU, "gpu")
_TRAINER: Final = field.Path("spec").child("trainer")


async def new(_client: Reader, _indexer: FieldIndexer) -> Torch:
    """Return the plugin."""
    return Torch()


class Torch(EnforceMLPolicyPlugin, CustomValidationPlugin):
    """Serves runtimes with a torch policy."""

    name = NAME

    def stands_aside(self, info: runtime.Info, train_job: TrainJob) -> str | None:
        """Return a reason if the torch policy or the TrainJob's trainer is missing."""
        if _policy(info) is None:
            return "the runtime has no mlPolicy.torch"
        return "the TrainJob has no spec.trainer" if train_job.spec.trainer is None else None

    async def validate(
        self, info: runtime.Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Check the number of processes, reserved environment variables, and TorchTune's limits."""
        errors = field.ErrorList()
        trainer = new.spec.trainer
        if _policy(info) is None or trainer is None or trainer.num_proc_per_node is None:
            return [], errors
        wanted = trainer.num_proc_per_node
        if isinstance(wanted, str) and wanted not in _WORDS:
            path = _TRAINER.child("numProcPerNode")
            errors.append(field.invalid(path, wanted, f"must have an int value or [{' '.join(_WORDS)}]"))
        reserved = {env.name for env in trainer.env or ()} & constants.TORCH_RUN_RESERVED_ENV_NAMES
        if reserved:
            detail = f"must not have reserved envs, invalid envs configured: [{' '.join(sorted(reserved))}]"
            errors.append(field.invalid(_TRAINER.child("env"), trainer.env, detail))
        if torchtune.is_torchtune(trainer):
            gpus = runtime.get_num_gpu_per_node(_resources_per_node(info, trainer))
            errors += torchtune.validate(new, trainer, wanted, gpus)
        return [], errors

    def enforce_ml_policy(self, info: runtime.Info, train_job: TrainJob) -> None:
        """Set the number of nodes, torchrun's environment and the port of its rendezvous."""
        policy = _policy(info)
        if policy is None:
            return
        trainer = train_job.spec.trainer
        pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
        if pod_set is not None and trainer is not None and trainer.num_nodes is not None:
            pod_set.count = trainer.num_nodes
        container = info.find_container_by_pod_set_ancestor_container_name(
            constants.ANCESTOR_TRAINER, constants.NODE
        )
        if trainer is None or pod_set is None or container is None:
            return
        resources = _resources_per_node(info, trainer)
        processes = _num_proc_per_node(policy, trainer, resources)
        env = apply.upsert_env_vars(container.env, apply.env_vars(trainer.env))
        env = apply.upsert_env_vars(env, _node_env(pod_set.count, processes))
        if torchtune.is_torchtune(trainer):
            gpus = runtime.get_num_gpu_per_node(resources)
            info.trainer_command = torchtune.command(info, train_job, trainer, pod_set.count, processes, gpus)
        else:
            env = apply.upsert_env_vars(env, _master_env(train_job.name))
        container.env = env
        container.ports = apply.upsert_port(
            container.ports, [ContainerPort(container_port=constants.CONTAINER_TRAINER_PORT)]
        )


def _policy(info: runtime.Info) -> TorchMLPolicySource | None:
    policy = info.runtime_policy.ml_policy_source
    return policy.torch if policy is not None else None


def _resources_per_node(info: runtime.Info, trainer: Trainer) -> ResourceRequirements | None:
    if trainer.resources_per_node is not None:
        return trainer.resources_per_node
    return runtime.extract_resource_per_node_from_runtime(info)


def _num_proc_per_node(
    policy: TorchMLPolicySource, trainer: Trainer, resources: ResourceRequirements | None
) -> IntOrString:
    """Return the number of processes, or the word that torchrun resolves on the node."""
    wanted = trainer.num_proc_per_node
    if wanted is None:
        wanted = policy.num_proc_per_node if policy.num_proc_per_node is not None else _AUTO
    if wanted == _CPU or (wanted == _AUTO and runtime.get_num_gpu_per_node(resources) == 0):
        return max(1, _num_cpu_per_node(resources))
    return wanted


def _num_cpu_per_node(resources: ResourceRequirements | None) -> int:
    """Return the CPUs requested, else the limit, rounded up."""
    if resources is None:
        return 0
    requested = quantity.value((resources.requests or {}).get("cpu", "0"))
    return requested or quantity.value((resources.limits or {}).get("cpu", "0"))


def _node_env(nodes: int, processes: IntOrString) -> list[EnvVar]:
    """Return the environment with the number of nodes and processes and the node's rank."""
    rank = ObjectFieldSelector(field_path=constants.JOB_COMPLETION_INDEX_FIELD_PATH)
    return [
        EnvVar(name=constants.TORCH_ENV_NUM_NODES, value=str(nodes)),
        EnvVar(name=constants.TORCH_ENV_NUM_PROC_PER_NODE, value=str(processes)),
        EnvVar(name=constants.TORCH_ENV_NODE_RANK, value_from=EnvVarSource(field_ref=rank)),
    ]


def _master_env(job: str) -> list[EnvVar]:
    """Return the environment with the rendezvous address and port."""
    return [
        EnvVar(name=constants.TORCH_ENV_MASTER_ADDR, value=f"{job}-{constants.NODE}-0-0.{job}"),
        EnvVar(name=constants.TORCH_ENV_MASTER_PORT, value=str(constants.CONTAINER_TRAINER_PORT)),
    ]
