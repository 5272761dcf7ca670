# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The supported kinds of runtimes and their dependencies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec
from controller_runtime.client import Client, FieldIndexer, Reader

from pkg.apis.config.v1alpha1 import Configuration
from pkg.runtime.framework.plugins.workload import Published
from pkg.runtime.interface import Runtime

from .clustertrainingruntime import CLUSTER_TRAINING_RUNTIME_GROUP_KIND, new_cluster_training_runtime
from .trainingruntime import TRAINING_RUNTIME_GROUP_KIND, new_training_runtime

RuntimeFactory = Callable[[Reader, FieldIndexer, Mapping[str, Runtime]], Awaitable[Runtime]]
"""Creates a runtime. The last argument contains the runtimes that were created before."""


class RuntimeRegistrar(msgspec.Struct, frozen=True):
    """The factory of a runtime, and the keys of its dependencies."""

    factory: RuntimeFactory
    dependencies: tuple[str, ...] = ()


Registry = Mapping[str, RuntimeRegistrar]
"""Factories of runtimes. The keys are those that ``runtime_ref_to_runtime_registry_key`` returns."""


def new_runtime_registry(
    cfg: Configuration | None = None,
    store: Client | None = None,
    reader: Reader | None = None,
    published: Published | None = None,
) -> Registry:
    """Return the kinds of this project. If ``cfg`` is None, the default Configuration is used.

    Snapshots of runtimes are created in ``store`` and read by ``reader``; if ``store`` is None, there are no snapshots.
    ``published`` returns the schemas that the API server publishes; if it is None, the newest gang API counts as
    served.
    """
    return {
        TRAINING_RUNTIME_GROUP_KIND: RuntimeRegistrar(
            partial(new_training_runtime, cfg=cfg, store=store, reader=reader, published=published)
        ),
        CLUSTER_TRAINING_RUNTIME_GROUP_KIND: RuntimeRegistrar(
            new_cluster_training_runtime, dependencies=(TRAINING_RUNTIME_GROUP_KIND,)
        ),
    }
