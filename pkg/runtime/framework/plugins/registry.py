# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The registry: every plugin by its name, in the order in which the stages run them.

Third-party plugins use the entry-point group ``trainer.kubeflow.org.plugins``: the entry's name is the plugin's name,
and its value is a ``PluginFactory``. Third-party plugins run after the built-in plugins, in the order of their names.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from controller_runtime.client import FieldIndexer, Reader
from controller_runtime.machinery import raised
from controller_runtime.manager import ManagerError

from pkg import features
from pkg.runtime.framework.interface import Plugin, PluginFactory

from .coscheduling import CoScheduling
from .flux import Flux
from .jax import JAX
from .jobset import JobSetPlugin
from .mpi import MPI
from .plainml import PlainML
from .torch import Torch
from .volcano import Volcano
from .workload import Published, Served, Workload
from .xgboost import XGBoost

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP: Final = "trainer.kubeflow.org.plugins"

Registry = dict[str, PluginFactory]


class PluginLoadError(ManagerError):
    """A third-party plugin cannot be loaded. The text names the entry point and the reason."""


def new_registry(
    found: Iterable[EntryPoint] | None = None,
    gates: features.Gates | None = None,
    published: Published | None = None,
) -> Registry:
    """Return the built-in plugins and the plugins of the entry points ``found``.

    If ``found`` is None, all installed entry points are used. A plugin that belongs to a feature is included only if
    ``gates`` enable the feature. ``published`` returns the schemas that the API server publishes.

    Raises:
        PluginLoadError: an entry point does not load, is not a factory, or has a duplicate name.
    """
    registry: Registry = {
        PlainML.name: _factory(lambda _client: PlainML()),
        Torch.name: _factory(lambda _client: Torch()),
        MPI.name: _factory(MPI),
        JAX.name: _factory(lambda _client: JAX()),
        XGBoost.name: _factory(lambda _client: XGBoost()),
        Flux.name: _factory(Flux),
        CoScheduling.name: _factory(CoScheduling),
        Volcano.name: _factory(Volcano),
        Workload.name: _factory(lambda client: Workload(client, Served(published))),
        JobSetPlugin.name: _factory(JobSetPlugin),
    }
    if gates is not None and gates.enabled(features.TRAIN_JOB_STATUS):
        from .trainjobstatus import Status  # loads the status server and its libraries

        registry[Status.name] = _factory(Status)
    if found is None:
        found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    for entry in sorted(found, key=lambda entry: entry.name):
        if entry.name in registry:
            raise PluginLoadError(f"plugin {entry.name} ({entry.value}): the name is taken")
        registry[entry.name] = _load(entry)
    return registry


def _factory(plugin: Callable[[Reader], Plugin]) -> PluginFactory:
    async def made(client: Reader, _indexer: FieldIndexer) -> Plugin:
        return plugin(client)

    return made


def _load(entry: EntryPoint) -> PluginFactory:
    """Return an entry point's factory. Third-party code may raise anything, even SystemExit."""
    where = f"plugin {entry.name} ({entry.value})"
    try:
        factory: PluginFactory = entry.load()
    except (Exception, SystemExit) as error:
        raise PluginLoadError(f"{where}: {_reason(error)}") from error
    if not callable(factory):
        raise PluginLoadError(f"{where}: not a factory of plugins")

    async def made(reader: Reader, indexer: FieldIndexer) -> Plugin:
        try:
            plugin = await factory(reader, indexer)
        except (Exception, SystemExit) as error:
            raise PluginLoadError(f"{where}: {_reason(error)}") from error
        if not isinstance(plugin, Plugin):
            raise PluginLoadError(f"{where}: not a factory of plugins")
        return plugin

    return made


def _reason(error: BaseException) -> str:
    """Return the text of an ImportError, or the type and text of another error."""
    if isinstance(error, ImportError | AttributeError):
        return raised.text(error)
    return f"{raised.name(error)}: {raised.text(error)}"
