# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The hub: from the kind of a top owner to the grouper of its pods. One row a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from pkg.apis.machinery.gvk import GVK
from pkg.ctrl import client

from .plugins import Grouper, Reads
from .plugins.defaultgrouper import DefaultGrouper, GrouperOptions

ENTRY_POINT_GROUP: Final = "kai.scheduler.podgrouper.plugins"
ANY_VERSION: Final = "*"
"""The version of a row for every version of a kind that has no row of its own."""

Table = dict[GVK, Grouper]
RowsFactory = Callable[[DefaultGrouper, client.Reader | None], Mapping[GVK, Grouper]]
"""What an entry point loads: given the default grouper and a reader, it returns rows of the table."""


class GrouperLoadError(Exception):
    """Groupers of others cannot be had; the text names the entry point and what holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """What an operator sets about groupers."""

    grouper: GrouperOptions = field(default_factory=GrouperOptions)
    search_legacy_pod_groups: bool = True
    knative_gang_schedule: bool = True


class PluginsHub:
    """Finds groupers."""

    def __init__(self, default: DefaultGrouper, table: Mapping[GVK, Grouper]) -> None:
        self.default = default
        self._table = table

    def grouper_for(self, kind: GVK) -> Grouper:
        """Return the grouper of ``kind``: its own row's, the row's for any version, or the default one."""
        found = self._table.get(kind) or self._table.get(kind._replace(version=ANY_VERSION))
        return found or self.default

    def reads(self, kind: GVK) -> Reads:
        """Return how much of an owner of ``kind`` is looked at: what its grouper says, or all of it."""
        found = self._table.get(kind) or self._table.get(kind._replace(version=ANY_VERSION))
        return found.reads if found is not None else Reads.OBJECT


def new_plugins_hub(
    reader: client.Reader | None,
    options: HubOptions | None = None,
    *,
    found: Iterable[EntryPoint] | None = None,
) -> PluginsHub:
    """Return the hub of our groupers and of those that ``found`` (default: the installed entry points) brings.

    Raises:
        GrouperLoadError: an entry point does not load, fails, or brings a kind that has a row.
    """
    options = options or HubOptions()
    default = DefaultGrouper(reader, options.grouper)
    table = _table(default, reader, options)
    if found is None:
        found = entry_points(group=ENTRY_POINT_GROUP)
    for entry in sorted(found, key=lambda entry: entry.name):
        for kind, grouper in _load(entry, default, reader).items():
            if kind in table:
                raise GrouperLoadError(f"grouper {entry.name} ({entry.value}): {kind} has a grouper")
            table[kind] = grouper
    return PluginsHub(default, table)


def _table(default: DefaultGrouper, reader: client.Reader | None, options: HubOptions) -> Table:
    del reader, options
    return {
        GVK("apps", "v1", "ReplicaSet"): default,
        GVK("apps", "v1", "StatefulSet"): default,
        GVK("kubeflow.org", "v1alpha1", "ScheduledWorkflow"): default,
        GVK("kubevirt.io", "v1", "VirtualMachineInstance"): default,
        GVK("machinelearning.seldon.io", "v1", "SeldonDeployment"): default,
        GVK("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment"): default,
        GVK("tekton.dev", "v1", "PipelineRun"): default,
        GVK("tekton.dev", "v1", "TaskRun"): default,
        GVK("workspace.devfile.io", "v1alpha2", "DevWorkspace"): default,
    }


def _load(entry: EntryPoint, default: DefaultGrouper, reader: client.Reader | None) -> Mapping[GVK, Grouper]:
    """Return an entry point's rows. It is other people's code, and may fail with anything."""
    try:
        factory: RowsFactory = entry.load()
        rows = factory(default, reader)
    except Exception as error:
        raise GrouperLoadError(f"grouper {entry.name} ({entry.value}): {error}") from error
    if not isinstance(rows, Mapping) or not all(isinstance(each, Grouper) for each in rows.values()):
        raise GrouperLoadError(f"grouper {entry.name} ({entry.value}): not rows of groupers by kind")
    return rows
