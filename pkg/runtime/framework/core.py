# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Framework: creates the registry's plugins and runs them stage by stage, in the registry's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from controller_runtime import client
from controller_runtime.machinery import Object, field
from controller_runtime.manager import ManagerError

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    PodGroupPolicy,
    TrainingRuntime,
    TrainJob,
    TrainJobStatus,
)
from pkg.runtime import indexer as index
from pkg.runtime.interface import ReconcilerBuilder, Waiting
from pkg.runtime.runtime import Info

from .interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
    EnforcePodGroupPolicyPlugin,
    Observer,
    Plugin,
    PluginFactory,
    PodNetworkPlugin,
    TrainJobStatusPlugin,
    WatchExtensionPlugin,
)

P = TypeVar("P", bound=Plugin)


class TooManyTrainJobStatusPluginsError(ManagerError):
    """More than one plugin reports a TrainJob's status."""


async def new(
    reader: client.Reader,
    registry: Mapping[str, PluginFactory],
    indexer: client.FieldIndexer,
    cfg: Configuration | None = None,
) -> Framework:
    """Create the registry's plugins and configure them, register the cache indices, and return the framework.

    Raises:
        TooManyTrainJobStatusPluginsError: more than one plugin reports the status.
    """
    keys: dict[type[TrainingRuntime | ClusterTrainingRuntime], str] = {
        TrainingRuntime: index.TRAINING_RUNTIME_CONTAINER_RUNTIME_CLASS_KEY,
        ClusterTrainingRuntime: index.CLUSTER_TRAINING_RUNTIME_CONTAINER_RUNTIME_CLASS_KEY,
    }
    for kind, key in keys.items():
        await indexer.index_field(kind, key, index.index_container_runtime_class)
    plugins = [await factory(reader, indexer) for factory in registry.values()]
    cfg = defaulted() if cfg is None else cfg
    for plugin in plugins:
        plugin.configure(cfg)
    return Framework(plugins)


class Framework:
    """The plugins, sorted into their stages."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.observer: Observer | None = None
        """Observes the result of each plugin in the stages that build the objects."""
        self.plugins = {plugin.name: plugin for plugin in plugins}
        every = list(self.plugins.values())
        self._enforce_ml_policy = [p for p in every if isinstance(p, EnforceMLPolicyPlugin)]
        self._enforce_pod_group_policy = [p for p in every if isinstance(p, EnforcePodGroupPolicyPlugin)]
        self._custom_validation = [p for p in every if isinstance(p, CustomValidationPlugin)]
        self._watch_extension = [p for p in every if isinstance(p, WatchExtensionPlugin)]
        self._pod_network = [p for p in every if isinstance(p, PodNetworkPlugin)]
        self._component_builder = [p for p in every if isinstance(p, ComponentBuilderPlugin)]
        self.sibling_policies = frozenset(p.serves for p in self._component_builder if p.builds_siblings)
        """The policies for which plugins may build other objects than the JobSet; an empty text means all policies."""
        inherited = ComponentBuilderPlugin.sync_parallel_count
        self._with_count = [
            p for p in self._component_builder if type(p).sync_parallel_count is not inherited
        ]
        waits = EnforcePodGroupPolicyPlugin.why_waiting
        self._know_why_waiting = [
            p for p in self._enforce_pod_group_policy if type(p).why_waiting is not waits
        ]
        reporters = [p for p in every if isinstance(p, TrainJobStatusPlugin)]
        if len(reporters) > 1:
            names = ", ".join(plugin.name for plugin in reporters)
            raise TooManyTrainJobStatusPluginsError(
                f"too many TrainJobStatus plugins are registered: {names}"
            )
        self._train_job_status = reporters[0] if reporters else None

    def run_enforce_ml_policy_plugins(self, info: Info, train_job: TrainJob) -> None:
        """Let the plugins apply the mlPolicy."""
        for plugin in self._serving(self._enforce_ml_policy, info):
            plugin.enforce_ml_policy(info, train_job)
            if self.observer is not None:
                self.observer.ran(EnforceMLPolicyPlugin, plugin, info, ())

    async def prepare_pod_group_policy_plugins(self, pod_group_policy: PodGroupPolicy) -> None:
        """Let the plugins read the state of the cluster that the podGroupPolicy depends on."""
        for plugin in self._enforce_pod_group_policy:
            await plugin.prepare(pod_group_policy)

    async def why_waiting(self, train_job: TrainJob) -> Waiting | None:
        """Return why the TrainJob's gang is not scheduled, from the first plugin that knows a reason.

        Return None if no plugin knows a reason.
        """
        for plugin in self._know_why_waiting:
            if (waiting := await plugin.why_waiting(train_job)) is not None:
                return waiting
        return None

    def run_enforce_pod_group_policy_plugins(self, info: Info, train_job: TrainJob) -> None:
        """Let the plugins apply the podGroupPolicy."""
        for plugin in self._serving(self._enforce_pod_group_policy, info):
            plugin.enforce_pod_group_policy(info, train_job)
            if self.observer is not None:
                self.observer.ran(EnforcePodGroupPolicyPlugin, plugin, info, ())

    def run_pod_network_plugins(self, info: Info, train_job: TrainJob) -> None:
        """Let the plugins set the pods' host names."""
        for plugin in self._serving(self._pod_network, info):
            plugin.identify_pod_network(info, train_job)
            if self.observer is not None:
                self.observer.ran(PodNetworkPlugin, plugin, info, ())

    async def run_component_builder_plugins(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the objects that the plugins build."""
        builders = self._serving(self._component_builder, info)
        for plugin in builders:
            if plugin in self._with_count:
                plugin.sync_parallel_count(info)
                if self.observer is not None:
                    self.observer.ran(ComponentBuilderPlugin, plugin, info, ())
        objects: list[Object] = []
        for plugin in builders:
            built = await plugin.build(info, train_job)
            objects += built
            if self.observer is not None:
                self.observer.ran(ComponentBuilderPlugin, plugin, info, built)
        return objects

    def _serving(self, plugins: list[P], info: Info) -> list[P]:
        """Return the plugins that serve the runtime's policies, or all if an observer shows why some do nothing."""
        if self.observer is not None:
            return plugins
        return [plugin for plugin in plugins if not plugin.serves or plugin.serves in info.policies]

    async def run_custom_validation_plugins(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Return the warnings and errors of the plugins that serve the runtime's policies."""
        warnings: list[str] = []
        errors = field.ErrorList()
        for plugin in self._serving(self._custom_validation, info):
            more_warnings, more_errors = await plugin.validate(info, old, new)
            warnings += more_warnings
            errors += more_errors
        return warnings, errors

    async def run_train_job_status_plugin(self, train_job: TrainJob) -> TrainJobStatus | None:
        """Return the status, or None if no plugin reports one."""
        return await self._train_job_status.status(train_job) if self._train_job_status is not None else None

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Return the functions that add the plugins' watches."""
        return [builder for plugin in self._watch_extension for builder in plugin.reconciler_builders()]
