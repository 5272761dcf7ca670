# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the runtimes of a registry, each after its dependencies."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from controller_runtime.client import Client, FieldIndexer, Reader, read_only

from pkg.apis.config.v1alpha1 import Configuration
from pkg.runtime.framework.plugins.workload import Published
from pkg.runtime.interface import Runtime

from .registry import Registry, new_runtime_registry


class RuntimeRegistryError(Exception):
    """The registry's runtimes cannot be created: a dependency is missing or circular."""


# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes,verbs=get;list;watch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=clustertrainingruntimes,verbs=get;list;watch
async def new(
    client: Reader,
    indexer: FieldIndexer,
    registry: Registry | None = None,
    *,
    cfg: Configuration | None = None,
    store: Client | None = None,
    reader: Reader | None = None,
    published: Published | None = None,
) -> dict[str, Runtime]:
    """Return the runtimes, by their keys in the registry. Runtimes and plugins cannot write through ``client``.

    Args:
        client: the client that reads runtimes and children.
        indexer: the indexer to which the cache indices are added.
        registry: the factories of the runtimes; by default those of this project, with ``cfg``.
        cfg: the manager's Configuration; by default all its fields have their defaults.
        store: the client that creates snapshots of runtimes and reads the metadata of snapshots; if it is None, there
            are no snapshots.
        reader: the client that reads the content of snapshots; it must not use a cache; by default ``store``.
        published: the function that returns the schema that the API server publishes for a kind; if it is None, the
            newest gang API counts as served.

    Raises:
        RuntimeRegistryError: a dependency is missing or circular.
    """
    registry = new_runtime_registry(cfg, store, reader, published) if registry is None else registry
    runtimes: dict[str, Runtime] = {}
    reader = read_only(client)
    for key in _in_order(registry):
        runtimes[key] = await registry[key].factory(reader, indexer, runtimes)
    return {key: runtimes[key] for key in registry}


def _in_order(registry: Registry) -> list[str]:
    for key, registrar in registry.items():
        for dependency in registrar.dependencies:
            if dependency not in registry:
                raise RuntimeRegistryError(f"runtime {key} depends on {dependency}, which is not registered")
    try:
        return list(
            TopologicalSorter({key: made.dependencies for key, made in registry.items()}).static_order()
        )
    except CycleError as error:
        raise RuntimeRegistryError(f"runtimes depend on each other: {' → '.join(error.args[1])}") from error
