# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runtime: the interface of a kind of training runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.machinery import Object, field
from controller_runtime.machinery.raised import ExpectedError

from pkg.apis.trainer.v1alpha1 import MLPolicy, PodGroupPolicy, RuntimeRef, TrainJob, TrainJobStatus

from .runtime import Info, runtime_ref_to_runtime_registry_key

if TYPE_CHECKING:
    from controller_runtime.builder import Builder
    from controller_runtime.cache import Cache
    from controller_runtime.client import Client

    from pkg.util import podtemplate

    ReconcilerBuilder = Callable[[Builder, Client, Cache], Builder]
    """Adds a plugin's watches to the TrainJob controller."""
else:
    ReconcilerBuilder = Callable[..., object]


class UnsupportedRuntimeError(ExpectedError):
    """A TrainJob refers to a kind of runtime that is not registered."""


class UnsupportedTemplateError(ExpectedError):
    """A runtime cannot build objects from a template of this type."""


class GeneratedSecret(Secret):
    """A Secret with random content. It is created once, and an existing Secret is never replaced.

    A plugin returns a GeneratedSecret as long as it finds no Secret of that name. Such a Secret may nevertheless exist:
    the cache may lag, or the response to an earlier request may have been lost. A mutable GeneratedSecret is therefore
    sent with a create request, which fails if the Secret exists. An immutable one can be applied, because the server
    refuses to change the content of an immutable Secret.
    """


class IndependentConfigMap(ConfigMap):
    """A ConfigMap whose content depends on neither the TrainJob's spec nor its runtime.

    Every JobSet of the TrainJob can use the same content. The ConfigMap is therefore updated while a JobSet runs, even
    if the TrainJob has been edited.
    """


class Waiting(msgspec.Struct, frozen=True):
    """Why a gang is not scheduled: a reason of one word, and the scheduler's message."""

    reason: str
    message: str


class Runtime(ABC):
    """A kind of training runtime. Implementations keep no state about single TrainJobs."""

    @abstractmethod
    async def new_objects(self, train_job: TrainJob) -> list[Object]:
        """Return the objects to apply for ``train_job``. Existing objects that must not be changed are left out.

        The objects are new at each call, because the caller may change them.

        Raises:
            RuntimeNotFoundError: the runtime that ``train_job`` refers to could not be read.
            StatusError: another read failed.
        """

    @abstractmethod
    def runtime_info(
        self,
        train_job: TrainJob,
        template: object,
        ml_policy: MLPolicy | None,
        pod_group_policy: PodGroupPolicy | None,
    ) -> Info:
        """Return the Info from which the objects of ``train_job`` are built with this template and these policies.

        Raises:
            UnsupportedTemplateError: the template is not of the type that this runtime uses.
            StrategicMergeError: a change of ``train_job`` cannot be merged into the template.
            PluginError: a plugin refuses the combination.
        """

    async def objects_and_state(self, train_job: TrainJob) -> tuple[list[Object], int | None]:
        """Return the same objects as :meth:`new_objects`, and a hash of the TrainJob and of its runtime.

        The hash is None if the runtime's content cannot be identified, or if more than a JobSet may be built from it.
        Otherwise nothing else is built, and building does not fail, until the hash changes.
        """
        return await self.new_objects(train_job), None

    async def require(self, train_job: TrainJob) -> int | None:
        """Return the hash of the TrainJob and of its runtime, or None if the runtime's content cannot be identified.

        If the runtime cannot be read, raise the same error as :meth:`new_objects`. Implementations need not build the
        objects.
        """
        await self.new_objects(train_job)
        return None

    @abstractmethod
    async def train_job_status(self, train_job: TrainJob) -> TrainJobStatus | None:
        """Return the TrainJob's status, derived from its objects, or None if no plugin reports a status.

        Raises:
            NotFoundError: the TrainJob's objects do not exist (yet).
        """

    async def why_waiting(self, train_job: TrainJob) -> Waiting | None:
        """Return why the TrainJob's gang is not scheduled; None if it is scheduled or the reason is unknown."""
        del train_job
        return None

    @abstractmethod
    def event_handler_registrars(self) -> list[ReconcilerBuilder]:
        """Return the functions that add the plugins' watches to the controller."""

    @abstractmethod
    async def validate_objects(
        self, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Validate ``new``, and return the warnings and errors. On creation, ``old`` is None."""

    async def review(
        self, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList, list[podtemplate.Violation]]:
        """Return the results of :meth:`validate_objects` and, without errors, of :meth:`template_violations`."""
        warnings, errors = await self.validate_objects(old, new)
        return warnings, errors, [] if errors else await self.template_violations(new)

    async def template_violations(self, train_job: TrainJob) -> list[podtemplate.Violation]:
        """Return the mistakes in the pod templates of ``train_job``, for which the API server will refuse its Jobs.

        Nothing is written. If the templates cannot be built, return nothing.
        """
        del train_job
        return []


def runtime_for(runtimes: Mapping[str, Runtime], ref: RuntimeRef) -> Runtime:
    """Return the runtime for ``ref``.

    Raises:
        UnsupportedRuntimeError: no runtime is registered for the kind that ``ref`` names.
    """
    key = runtime_ref_to_runtime_registry_key(ref)
    try:
        return runtimes[key]
    except KeyError:
        raise UnsupportedRuntimeError(f"unsupported runtime: {key}") from None
