# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The registry: every plugin by its name, in the order the stages run them.

Plugins of others come in through the entry-point group ``trainer.kubeflow.org.plugins``: the entry's name is the
plugin's, its value a ``PluginFactory``. They run after ours, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from pkg.runtime.framework.interface import PluginFactory

from . import coscheduling, jobset, mpi, plainml, torch, volcano

ENTRY_POINT_GROUP: Final = "trainer.kubeflow.org.plugins"

Registry = dict[str, PluginFactory]


class PluginLoadError(Exception):
    """A plugin of others cannot be had; the text names the entry point and what holds it."""


def new_registry(found: Iterable[EntryPoint] | None = None) -> Registry:
    """Return our plugins and those that ``found`` (default: the installed entry points) brings.

    Raises:
        PluginLoadError: an entry point does not load, is no factory, or takes a name that is taken.
    """
    registry: Registry = {
        plainml.NAME: plainml.new,
        torch.NAME: torch.new,
        mpi.NAME: mpi.new,
        coscheduling.NAME: coscheduling.new,
        volcano.NAME: volcano.new,
        jobset.NAME: jobset.new,
    }
    if found is None:
        found = entry_points(group=ENTRY_POINT_GROUP)
    for entry in sorted(found, key=lambda entry: entry.name):
        if entry.name in registry:
            raise PluginLoadError(f"plugin {entry.name} ({entry.value}): the name is taken")
        registry[entry.name] = _load(entry)
    return registry


def _load(entry: EntryPoint) -> PluginFactory:
    try:
        factory: PluginFactory = entry.load()
    except (ImportError, AttributeError) as error:
        raise PluginLoadError(f"plugin {entry.name} ({entry.value}): {error}") from error
    if not callable(factory):
        raise PluginLoadError(f"plugin {entry.name} ({entry.value}): not a factory of plugins")
    return factory
