# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TorchTune: the recipe and configuration for ``tune run``.

Both depend on the model in the runtime's name, on the number of nodes and devices, and on the kind of tuning that the
TrainJob's arguments select. Their names are defined by torchtune: for example, the recipe
``lora_finetune_single_device`` and the configuration ``llama3_2/1B_qlora_single_device``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from controller_runtime.machinery import field
from controller_runtime.machinery.quantity import IntOrString

from pkg.apis.trainer.v1alpha1 import Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import runtime

ENTRYPOINT: Final = ["tune", "run"]
"""A trainer with exactly this command runs TorchTune."""

_LLAMA_1B: Final = "llama3_2/1B"
_LLAMA_3B: Final = "llama3_2/3B"
_LLAMA_70B: Final = "llama3_3/70B"
_QWEN: Final = "qwen2_5/1.5B"
_MODELS: Final = (_LLAMA_1B, _LLAMA_3B, _LLAMA_70B, _QWEN)

_RUNTIME_KEYS: Final = (
    "output_dir",
    "tokenizer.path",
    "checkpointer.checkpoint_dir",
    "tokenizer.merges_file",
)
"""Keys of a configuration whose values are paths in the runtime's volumes. A TrainJob cannot change them."""

_NO_ADAPTERS: Final = "LoRA fine-tuning is not supported for multi-node training in TorchTune"
_RUNTIME_NAME: Final = field.Path("spec").child("runtimeRef").child("name")
_TRAINER: Final = field.Path("spec").child("trainer")


class Tuning(StrEnum):
    """The kind of tuning, by its name in configurations."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"


class Plan(msgspec.Struct, frozen=True):
    """One run of TorchTune."""

    model: str
    tuning: Tuning
    single_device: bool
    multi_node: bool
    rendezvous: bool
    """True if there are several nodes or processes, which must find each other."""

    @property
    def recipe(self) -> str:
        """The name of the recipe. QLoRA uses the recipe of LoRA with another configuration."""
        method = "full" if self.tuning is Tuning.FULL else "lora"
        return f"{method}_finetune_{'single_device' if self.single_device else 'distributed'}"

    @property
    def config(self) -> str:
        """The name of the configuration, which is a part of torchtune."""
        size = "_single_device" if self.single_device else "_multinode" if self.multi_node else ""
        return f"{self.model}_{self.tuning}{size}"


def is_torchtune(trainer: Trainer) -> bool:
    """Return True if a trainer runs TorchTune."""
    return trainer.command == ENTRYPOINT


def plan(
    train_job: TrainJob, nodes: int, processes: IntOrString, gpus: int, *, second_generation: bool = False
) -> Plan:
    """Return the plan for the model, nodes and devices. On several nodes, the tuning is always full.

    In the second generation, ``model.quantize_base`` and ``model.use_dora`` in the arguments count only if they are
    ``true``.
    """
    trainer = train_job.spec.trainer
    args = (trainer.args if trainer is not None else None) or ()
    return Plan(
        model=_model(train_job),
        tuning=_tuning(args, second_generation=second_generation) if nodes == 1 else Tuning.FULL,
        single_device=nodes == 1 and (processes == 1 or gpus == 1),
        multi_node=nodes > 1,
        rendezvous=nodes > 1 or (processes if isinstance(processes, int) else gpus) > 1,
    )


def command(info: runtime.Info, master: str, run: Plan) -> list[str]:
    """Return the trainer's command: ``tune run``, the rendezvous if it is needed, recipe, configuration and paths.

    All nodes meet at the host ``master``.
    """
    rendezvous: list[str] = []
    if run.rendezvous:
        rendezvous = [f"--rdzv_endpoint={master}:{constants.CONTAINER_TRAINER_PORT}"]
    return [*ENTRYPOINT, *rendezvous, run.recipe, "--config", run.config, *_path_arguments(info)]


def validate(
    train_job: TrainJob, trainer: Trainer, processes: IntOrString, gpus: int, *, second_generation: bool
) -> Iterator[field.FieldError]:
    """Yield an error if torchtune has no recipe or configuration for the TrainJob.

    In the second generation, also yield an error if an adapter would be ignored, or if an argument sets a path of the
    runtime.
    """
    name, nodes = train_job.spec.runtime_ref.name, trainer.num_nodes
    model = _model(train_job)
    if model not in _MODELS:
        detail = f"must have a supported pretrained model, invalid model configured: {model}"
        yield field.invalid(_RUNTIME_NAME, name, detail)
    if nodes is None and second_generation:
        nodes = 1
    elif nodes is None:
        # Upstream panics here. The number in the runtime cannot be used: it does not determine the recipe.
        detail = "must be set along with numProcPerNode for a TorchTune TrainJob"
        yield field.required(_TRAINER.child("numNodes"), detail)
        return
    if nodes > 1 and model != _LLAMA_70B:
        yield field.invalid(_TRAINER.child("numNodes"), nodes, f"must be 1 for {model} model")
    run = plan(train_job, nodes, processes, gpus, second_generation=second_generation)
    if run.tuning is Tuning.QLORA:
        yield from _validate_qlora(train_job, trainer, run, processes)
    if second_generation:
        if nodes > 1 and _tuning(trainer.args or (), second_generation=True) is not Tuning.FULL:
            yield field.invalid(_TRAINER.child("numNodes"), nodes, _NO_ADAPTERS)
        yield from _validate_args(trainer)


def _validate_args(trainer: Trainer) -> Iterator[field.FieldError]:
    """Yield an error for each argument that sets a path of the runtime."""
    for index, argument in enumerate(trainer.args or ()):
        key = argument.partition("=")[0]
        if key in _RUNTIME_KEYS:
            detail = f'must not set immutable config "{key}" in trainer args; it is managed by the runtime'
            yield field.invalid(_TRAINER.child("args").index(index), argument, detail)


def _validate_qlora(
    train_job: TrainJob, trainer: Trainer, run: Plan, processes: IntOrString
) -> Iterator[field.FieldError]:
    """Yield an error if QLoRA does not support the model, or if a small model does not run on one device."""
    model = run.model
    if model == _QWEN:
        name = train_job.spec.runtime_ref.name
        yield field.invalid(_RUNTIME_NAME, name, f"QLoRA is not supported for {model} model")
    if model in (_LLAMA_1B, _LLAMA_3B) and not run.single_device:
        detail = f"must be auto or 1 for {model} model when using QLoRA"
        yield field.invalid(_TRAINER.child("numProcPerNode"), processes, detail)
        detail = f"must have gpu resource with value 1 for {model} model when using QLoRA"
        yield field.invalid(_TRAINER.child("resourcesPerNode"), trainer.resources_per_node, detail)


def _model(train_job: TrainJob) -> str:
    """Return the model in a runtime's name like ``torchtune-llama3.2-1b``, or an empty string for other names."""
    parts = train_job.spec.runtime_ref.name.split("-")
    if len(parts) != 3:
        return ""
    _, family, size = parts
    return f"{family.replace('.', '_')}/{size.upper()}"


def _tuning(args: Sequence[str], *, second_generation: bool) -> Tuning:
    """Return the kind of tuning. DoRA counts as LoRA even with a quantized base: torchtune does not quantize DoRA."""

    def mentions(key: str) -> bool:
        return any(key in arg for arg in args)

    def enables(key: str) -> bool:
        named = (arg.partition("=") for arg in args)
        return any(key in name and value.strip().lower() == "true" for name, _, value in named)

    has = enables if second_generation else mentions
    if has("model.quantize_base") and not has("model.use_dora"):
        return Tuning.QLORA
    return Tuning.LORA if mentions("model.lora_attn_modules") else Tuning.FULL


def _path_arguments(info: runtime.Info) -> list[str]:
    """Return the arguments of the runtime's command that set paths."""
    return [
        argument
        for job in info.replicated_jobs
        if runtime.ancestor_of(job) == constants.ANCESTOR_TRAINER
        for container in runtime.containers_of(job, constants.NODE)
        for argument in container.command or ()
        if argument.partition("=")[0] in _RUNTIME_KEYS
    ]
