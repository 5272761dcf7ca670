# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of runtimes we serve, and which of them another is made with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from controller_runtime.client import FieldIndexer, Reader

from pkg.runtime.interface import Runtime

from .clustertrainingruntime import CLUSTER_TRAINING_RUNTIME_GROUP_KIND, new_cluster_training_runtime
from .trainingruntime import TRAINING_RUNTIME_GROUP_KIND, new_training_runtime

RuntimeFactory = Callable[[Reader, FieldIndexer, Mapping[str, Runtime]], Awaitable[Runtime]]
"""Makes a runtime, given those made before it."""


@dataclass(frozen=True, slots=True)
class RuntimeRegistrar:
    """How a runtime is made, and the keys of those that must be there first."""

    factory: RuntimeFactory
    dependencies: tuple[str, ...] = ()


Registry = Mapping[str, RuntimeRegistrar]
"""By group and kind, as ``runtime_ref_to_runtime_registry_key`` writes them."""


def new_runtime_registry() -> Registry:
    """Return the kinds of this project."""
    return {
        TRAINING_RUNTIME_GROUP_KIND: RuntimeRegistrar(new_training_runtime),
        CLUSTER_TRAINING_RUNTIME_GROUP_KIND: RuntimeRegistrar(
            new_cluster_training_runtime, dependencies=(TRAINING_RUNTIME_GROUP_KIND,)
        ),
    }
