# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Torch: sets the number of processes that torchrun starts on each node, and the address at which the processes meet.

A trainer with the command ``tune run`` uses TorchTune (``torchtune.py``) and gets the recipe, the configuration and
``--rdzv_endpoint`` as arguments. As in the Go plugin, the trainer's container receives torchrun's variables only if the
TrainJob has a ``trainer``. The additional containers of ``envInjection`` always receive them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller_runtime.apis.core.v1 import EnvVar, ResourceRequirements
from controller_runtime.machinery import field, quantity
from controller_runtime.machinery.gojson import quote
from controller_runtime.machinery.quantity import IntOrString

from pkg import apply
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import EnvInjectionTarget, TorchMLPolicySource, Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import runtime
from pkg.runtime.framework.interface import CustomValidationPlugin, EnforceMLPolicyPlugin, PluginError
from pkg.runtime.framework.plugins import trainernodes

from . import torchtune

_AUTO: Final = "auto"
_CPU: Final = "cpu"
_WORDS: Final = (_AUTO, _CPU, "gpu")
_TRAINER: Final = field.Path("spec").child("trainer")
_RUNTIME_REF: Final = field.Path("spec").child("runtimeRef")
_NODE_RANK: Final = EnvVar(name=constants.TORCH_ENV_NODE_RANK, value_from=trainernodes.NODE_INDEX)
_MASTER_PORT: Final = EnvVar(
    name=constants.TORCH_ENV_MASTER_PORT, value=str(constants.CONTAINER_TRAINER_PORT)
)
"""These two variables are the same in all JobSets, and are not changed."""


class Torch(EnforceMLPolicyPlugin, CustomValidationPlugin):
    """Serves runtimes with a torch policy."""

    name = "Torch"
    serves = "mlPolicy.torch"

    def __init__(self) -> None:
        self._second_generation = False

    def configure(self, cfg: Configuration) -> None:
        """Set the generation.

        In the second generation, the plugin also checks TrainJobs without ``numProcPerNode``, and merges resources.
        """
        self._second_generation = cfg.second_generation

    def why_skipped(self, info: runtime.Info, train_job: TrainJob) -> str | None:
        """Return a reason without the torch policy, or with neither a trainer nor targets of ``envInjection``."""
        policy = info.ml_policy.torch
        if policy is None:
            return "the runtime has no mlPolicy.torch"
        if train_job.spec.trainer is None and next(_targets(policy), None) is None:
            return "the TrainJob has no spec.trainer"
        return None

    async def validate(
        self, info: runtime.Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Check the targets of ``envInjection``, ``numProcPerNode``, reserved variables and TorchTune's limits."""
        errors = field.ErrorList()
        trainer, policy = new.spec.trainer, info.ml_policy.torch
        if policy is None:
            return [], errors
        for target, name in _targets(policy):
            if info.find_container_by_pod_set_name(target.job_name, name) is None:
                errors.append(field.invalid(_RUNTIME_REF, target, _no_target(target, name)))
        if trainer is None or (trainer.num_proc_per_node is None and not self._second_generation):
            return [], errors
        wanted = _AUTO if trainer.num_proc_per_node is None else trainer.num_proc_per_node
        if isinstance(wanted, str) and wanted not in _WORDS:
            path = _TRAINER.child("numProcPerNode")
            errors.append(field.invalid(path, wanted, f"must have an int value or [{' '.join(_WORDS)}]"))
        reserved = {env.name for env in trainer.env or ()} & constants.TORCH_RUN_RESERVED_ENV_NAMES
        if reserved:
            detail = f"must not have reserved envs, invalid envs configured: [{' '.join(sorted(reserved))}]"
            errors.append(field.invalid(_TRAINER.child("env"), trainer.env, detail))
        if torchtune.is_torchtune(trainer):
            resources = runtime.resources_per_node(info, new, merged=self._second_generation)
            gpus = runtime.get_num_gpu_per_node(resources)
            errors += torchtune.validate(
                new, trainer, wanted, gpus, second_generation=self._second_generation
            )
        return [], errors

    def enforce_ml_policy(self, info: runtime.Info, train_job: TrainJob) -> None:
        """Set the number of nodes, torchrun's environment and the port of its rendezvous.

        Raises:
            PluginError: ``envInjection`` names a container that the template does not have.
        """
        policy = info.ml_policy.torch
        if policy is None:
            return
        trainer = train_job.spec.trainer
        pod_set, container = trainernodes.with_count(info, train_job), trainernodes.container(info)
        resources = runtime.resources_per_node(info, train_job, merged=self._second_generation)
        nodes = 1 if pod_set is None else pod_set.count
        processes = _num_proc_per_node(policy, trainer, resources)
        master = trainernodes.first_host(info, train_job)
        node_env = [
            EnvVar(name=constants.TORCH_ENV_NUM_NODES, value=str(nodes)),
            EnvVar(name=constants.TORCH_ENV_NUM_PROC_PER_NODE, value=str(processes)),
            _NODE_RANK,
        ]
        master_env = [
            EnvVar(name=constants.TORCH_ENV_MASTER_ADDR, value=master),
            _MASTER_PORT,
        ]
        for target, name in _targets(policy):
            found = info.find_container_by_pod_set_name(target.job_name, name)
            if found is None:
                raise PluginError(_no_target(target, name))
            found.env = apply.upsert_env_vars(found.env, [*node_env, *master_env])
        if trainer is None or container is None:
            return
        env = [*apply.env_vars(trainer.env), *node_env]
        if torchtune.is_torchtune(trainer):
            run = torchtune.plan(
                train_job,
                nodes,
                processes,
                runtime.get_num_gpu_per_node(resources),
                second_generation=self._second_generation,
            )
            info.trainer_command = torchtune.command(info, master, run)
        else:
            env += master_env
        container.env = apply.upsert_env_vars(container.env, env)
        container.ports = apply.upsert_port(container.ports, [trainernodes.PORT])


def _targets(policy: TorchMLPolicySource) -> Iterator[tuple[EnvInjectionTarget, str]]:
    """Yield the target and the name of each additional container that receives torchrun's variables."""
    injection = policy.env_injection
    for target in (injection.targets if injection is not None else None) or ():
        for name in target.container_names or ():
            yield target, name


def _no_target(target: EnvInjectionTarget, name: str) -> str:
    names = f"podSet {quote(target.job_name)} container {quote(name)}"
    return f"envInjection target {names} not found in runtime template"


def _num_proc_per_node(
    policy: TorchMLPolicySource, trainer: Trainer | None, resources: ResourceRequirements | None
) -> IntOrString:
    """Return the number of processes, or a word such as ``gpu``, which torchrun resolves on the node."""
    wanted = trainer.num_proc_per_node if trainer is not None else None
    if wanted is None:
        wanted = policy.num_proc_per_node if policy.num_proc_per_node is not None else _AUTO
    if wanted == _CPU or (wanted == _AUTO and runtime.get_num_gpu_per_node(resources) == 0):
        return max(1, _num_cpu_per_node(resources))
    return wanted


def _num_cpu_per_node(resources: ResourceRequirements | None) -> int:
    """Return the number of requested CPUs, rounded up. If no CPU is requested, return the limit."""
    if resources is None:
        return 0
    requested = quantity.value((resources.requests or {}).get("cpu", "0"))
    return requested or quantity.value((resources.limits or {}).get("cpu", "0"))
