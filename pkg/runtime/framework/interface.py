# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The extension points; a plugin inherits those it serves.

The framework runs each stage in turn: EnforceMLPolicy → EnforcePodGroupPolicy → PodNetwork → ComponentBuilder for the
objects; CustomValidation for admission; TrainJobStatus for the status; WatchExtension when the controller is set up.
Within a stage the order of plugins must not matter. A plugin that a runtime's policies do not concern does nothing.
Plugins cannot write to the cluster: their client only reads. They keep nothing about single TrainJobs; for a large
one the first three stages run in a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from controller_runtime.apis.machinery import field
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client import FieldIndexer, Reader

from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.runtime.interface import ReconcilerBuilder
from pkg.runtime.runtime import Info


class PluginError(Exception):
    """A plugin cannot serve a TrainJob under its runtime; the text tells the user why."""


class Plugin(ABC):
    """A plugin, known by its name."""

    name: ClassVar[str]

    def stands_aside(self, info: Info, train_job: TrainJob) -> str | None:
        """Say, for people, why this plugin has nothing to do with a TrainJob under its runtime; None if it has.

        Whoever says why changes nothing and builds nothing.
        """
        del info, train_job
        return None


PluginFactory = Callable[[Reader, FieldIndexer], Awaitable[Plugin]]
"""Makes a plugin; may register the cache indices it needs."""


class CustomValidationPlugin(Plugin):
    """Has a say in the admission of a TrainJob."""

    @abstractmethod
    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Return warnings and errors; ``old`` is None on creation."""


class WatchExtensionPlugin(Plugin):
    """Has the TrainJob controller watch more kinds."""

    @abstractmethod
    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Return what adds the watches."""


class EnforceMLPolicyPlugin(Plugin):
    """Carries out the runtime's mlPolicy."""

    @abstractmethod
    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Change ``info`` as the policy and the TrainJob's trainer call for."""


class EnforcePodGroupPolicyPlugin(Plugin):
    """Carries out the runtime's podGroupPolicy."""

    @abstractmethod
    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        """Change ``info`` as the policy calls for."""


class PodNetworkPlugin(Plugin):
    """Knows the pods' host names."""

    @abstractmethod
    def identify_pod_network(self, info: Info, train_job: TrainJob) -> None:
        """Set the pod sets' endpoints."""


class ComponentBuilderPlugin(Plugin):
    """Builds objects."""

    @abstractmethod
    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the objects to apply, none that must be left alone.

        Raises:
            StatusError: a read failed for a reason other than absence.
        """


class TrainJobStatusPlugin(Plugin):
    """Knows how a TrainJob fares. At most one plugin does."""

    @abstractmethod
    async def status(self, train_job: TrainJob) -> TrainJobStatus | None:
        """Return the new status; the TrainJob is not changed."""


class Observer(ABC):
    """Looks on while a TrainJob passes the stages (``trainerctl explain``). It must change nothing of what it sees.

    What it is shown changes afterwards: it copies what it wants to keep.
    """

    @abstractmethod
    def template(self, spec: dict[str, JSON], override: int | None) -> None:
        """See the JSON of the template's spec: as the runtime has it, then after each override, by its index."""

    @abstractmethod
    def begin(self, info: Info) -> None:
        """See what the stages start from."""

    @abstractmethod
    def ran(self, stage: type[Plugin], plugin: Plugin, info: Info, objects: Sequence[Object]) -> None:
        """See what a plugin left in its stage, and the objects that it built."""
