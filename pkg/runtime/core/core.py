# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the runtimes of both kinds, which share their plugins and snapshots."""

from __future__ import annotations

from controller_runtime.client import Client, FieldIndexer, Reader, read_only

from pkg import features
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.runtime import framework
from pkg.runtime.framework.plugins import registry
from pkg.runtime.framework.plugins.workload import Published
from pkg.runtime.interface import Runtime

from .clustertrainingruntime import CLUSTER_TRAINING_RUNTIME_GROUP_KIND, ClusterTrainingRuntime
from .snapshot import Snapshots
from .trainingruntime import TRAINING_RUNTIME_GROUP_KIND, TrainingRuntime, index_runtime_references


# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes,verbs=get;list;watch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=clustertrainingruntimes,verbs=get;list;watch
async def new(
    client: Reader,
    indexer: FieldIndexer,
    *,
    cfg: Configuration | None = None,
    store: Client | None = None,
    reader: Reader | None = None,
    published: Published | None = None,
) -> dict[str, Runtime]:
    """Return the runtimes by their kinds. The runtimes and their plugins cannot write through ``client``.

    Args:
        client: the client that reads runtimes and children.
        indexer: the indexer to which the cache indices are added.
        cfg: the manager's Configuration; by default all its fields have their defaults.
        store: the client that creates snapshots of runtimes and reads the metadata of snapshots; if it is None, there
            are no snapshots.
        reader: the client that reads the content of snapshots; it must not use a cache; by default ``store``.
        published: the function that returns the schema that the API server publishes for a kind; if it is None, the
            newest gang API counts as served.
    """
    cfg = defaulted() if cfg is None else cfg
    client = read_only(client)
    await index_runtime_references(indexer)
    gates = features.resolve(cfg.feature_gates or {})
    plugins = registry.new_registry(gates=gates, published=published)
    pipeline = await framework.new(client, plugins, indexer, cfg)
    snapshots = None if store is None else Snapshots(store, reader, creates=cfg.second_generation)
    return {
        TRAINING_RUNTIME_GROUP_KIND: TrainingRuntime(pipeline, client, cfg, snapshots),
        CLUSTER_TRAINING_RUNTIME_GROUP_KIND: ClusterTrainingRuntime(pipeline, client, cfg, snapshots),
    }
