# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The extension points of the framework. A plugin is a class that inherits from one or more of them.

To build the objects, the framework runs the stages EnforceMLPolicy → EnforcePodGroupPolicy → PodNetwork →
ComponentBuilder. CustomValidation runs at admission, TrainJobStatus when the status is computed, and WatchExtension
when the controller is set up. Within a stage, the order of plugins must not matter. If the runtime's policies do not
use a plugin, that plugin does nothing. Plugins cannot write to the cluster: their client only reads. Plugins keep no
state about single TrainJobs. For a large TrainJob, all stages before ComponentBuilder run in a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from controller_runtime.client import FieldIndexer, Reader
from controller_runtime.machinery import JSON, Object, field
from controller_runtime.machinery.raised import ExpectedError

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import PodGroupPolicy, TrainJob, TrainJobStatus
from pkg.runtime.interface import ReconcilerBuilder, Waiting
from pkg.runtime.runtime import Info


class PluginError(ExpectedError):
    """A plugin cannot serve a TrainJob with its runtime. The text explains the reason to the user."""


class UnavailableError(PluginError):
    """The cluster lacks a feature that the runtime's policies require. The TrainJob's condition gets the ``reason``."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class InvalidFieldError(PluginError):
    """A field has a value with which no pod can run, although Trainer admits it. The TrainJob gets a condition."""


class Plugin(ABC):
    """A plugin, which is identified by its name."""

    name: ClassVar[str]
    serves: ClassVar[str] = ""
    """The field of a runtime's policies that this plugin serves, such as ``mlPolicy.torch``; empty: every runtime.

    The validation and the stages that build the objects skip a plugin if the runtime does not set this field.
    """

    def configure(self, cfg: Configuration) -> None:
        """Receive the manager's Configuration before the first stage. The plugin must not change the Configuration."""
        del cfg

    def why_skipped(self, info: Info, train_job: TrainJob) -> str | None:
        """Return why this plugin does nothing for a TrainJob with this runtime, or None if it does something.

        A plugin that returns a reason changes nothing and builds nothing. By default, the reason is that the runtime
        does not set the field that the plugin ``serves``.
        """
        del train_job
        return (
            f"the runtime has no {self.serves}" if self.serves and self.serves not in info.policies else None
        )


PluginFactory = Callable[[Reader, FieldIndexer], Awaitable[Plugin]]
"""Creates a plugin; may register cache indices."""


class CustomValidationPlugin(Plugin):
    """Validates TrainJobs at admission."""

    @abstractmethod
    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Return warnings and errors; ``old`` is None on creation."""


class WatchExtensionPlugin(Plugin):
    """Adds watches to the TrainJob controller."""

    @abstractmethod
    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Return the functions that add the watches."""


class EnforceMLPolicyPlugin(Plugin):
    """Applies the runtime's mlPolicy."""

    @abstractmethod
    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Apply the policy and the TrainJob's trainer to ``info``."""


class EnforcePodGroupPolicyPlugin(Plugin):
    """Applies the runtime's podGroupPolicy."""

    async def prepare(self, pod_group_policy: PodGroupPolicy) -> None:
        """Read the state of the cluster that this stage needs. The framework does this before the first stage."""
        del pod_group_policy

    async def why_waiting(self, train_job: TrainJob) -> Waiting | None:
        """Return why the gang of a TrainJob is not scheduled, or None.

        Implementations read only the cache and send no request.
        """
        del train_job
        return None

    @abstractmethod
    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        """Apply the policy to ``info``."""


class PodNetworkPlugin(Plugin):
    """Sets the pods' host names."""

    @abstractmethod
    def identify_pod_network(self, info: Info, train_job: TrainJob) -> None:
        """Set the pod sets' endpoints."""


class ComponentBuilderPlugin(Plugin):
    """Builds objects."""

    builds_siblings: ClassVar[bool] = True
    """False if the plugin builds nothing besides the JobSet. If this is so for all plugins that serve a runtime, the
    stages do not run again for a running JobSet until the TrainJob or its runtime changes."""

    def sync_parallel_count(self, info: Info) -> None:
        """Write the pod sets' counts into the template. All plugins are called before the first plugin builds objects.

        See ``ComponentBuilderPlugin.SyncParallelCount`` of Trainer v2.3.
        """
        del info

    @abstractmethod
    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the objects to apply. Existing objects that must not be changed are left out.

        Raises:
            StatusError: an object could not be read. A missing object is not an error.
        """


class TrainJobStatusPlugin(Plugin):
    """Reports the status of TrainJobs. At most one plugin may report the status."""

    @abstractmethod
    async def status(self, train_job: TrainJob) -> TrainJobStatus | None:
        """Return the new status; the TrainJob is not changed."""


class Observer(ABC):
    """Observes how the stages change a TrainJob's Info, for ``trainerctl explain``.

    An observer must not change its arguments. Later stages change the arguments, so an observer must copy the values
    that it keeps.
    """

    @abstractmethod
    def template(self, spec: dict[str, JSON], change: str) -> None:
        """Observe the JSON of the template's spec.

        The first call has the original template and an empty ``change``. A call follows for each change, with its
        description.
        """

    @abstractmethod
    def begin(self, info: Info) -> None:
        """Observe the Info before the first stage."""

    @abstractmethod
    def ran(self, stage: type[Plugin], plugin: Plugin, info: Info, objects: Sequence[Object]) -> None:
        """Observe the Info after ``plugin`` has run in ``stage``, and the objects that the plugin built."""
