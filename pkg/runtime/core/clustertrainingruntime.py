# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ClusterTrainingRuntime: the cluster-scoped runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.client import FieldIndexer, Reader, peek
from controller_runtime.machinery import NamespacedName, Object, field
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.runtime import interface, runtime
from pkg.util import offload, trainingruntime

from .trainingruntime import TRAINING_RUNTIME_GROUP_KIND, RuntimeNotFoundError, TrainingRuntime

CLUSTER_TRAINING_RUNTIME_GROUP_KIND: Final = str(trainer.ClusterTrainingRuntime.gvk.group_kind)


async def new_cluster_training_runtime(
    client: Reader, _indexer: FieldIndexer, built: Mapping[str, interface.Runtime]
) -> ClusterTrainingRuntime:
    """Return the runtime. It shares the plugins of the namespaced runtime, so ``built`` must contain that runtime."""
    namespaced = built[TRAINING_RUNTIME_GROUP_KIND]
    if not isinstance(namespaced, TrainingRuntime):
        raise TypeError(f"{TRAINING_RUNTIME_GROUP_KIND} is served by a {type(namespaced).__name__}")
    return ClusterTrainingRuntime(namespaced, client)


class ClusterTrainingRuntime(interface.Runtime):
    """Serves TrainJobs that refer to a ClusterTrainingRuntime, which is the default kind."""

    def __init__(self, namespaced: TrainingRuntime, client: Reader) -> None:
        self._namespaced = namespaced
        self._client = client

    async def new_objects(self, train_job: trainer.TrainJob) -> list[Object]:
        """Return the objects to apply."""
        found = await self._found(train_job)
        with offload.object_size(found.decoded_size):
            return await self._namespaced.objects_from(found.spec, train_job)

    async def require(self, train_job: trainer.TrainJob) -> None:
        """Raise RuntimeNotFoundError if the runtime cannot be read."""
        await self._found(train_job)

    async def _found(self, train_job: trainer.TrainJob) -> trainer.ClusterTrainingRuntime:
        key = NamespacedName("", train_job.spec.runtime_ref.name)

        async def live() -> trainer.ClusterTrainingRuntime:
            try:
                return (await peek(self._client, trainer.ClusterTrainingRuntime, key)).object
            except (StatusError, RestError) as error:
                text = f"not found ClusterTrainingRuntime specified in TrainJob: {error}"
                raise RuntimeNotFoundError(text) from error

        return await self._namespaced.runtime_of(train_job, trainer.ClusterTrainingRuntime, live, "getting")

    def runtime_info(
        self,
        train_job: trainer.TrainJob,
        runtime_template_spec: object,
        ml_policy: trainer.MLPolicy | None,
        pod_group_policy: trainer.PodGroupPolicy | None,
    ) -> runtime.Info:
        """Delegate to the namespaced kind."""
        return self._namespaced.runtime_info(train_job, runtime_template_spec, ml_policy, pod_group_policy)

    async def train_job_status(self, train_job: trainer.TrainJob) -> trainer.TrainJobStatus | None:
        """Delegate to the namespaced kind."""
        return await self._namespaced.train_job_status(train_job)

    async def why_waiting(self, train_job: trainer.TrainJob) -> interface.Waiting | None:
        """Delegate to the namespaced kind."""
        return await self._namespaced.why_waiting(train_job)

    def event_handler_registrars(self) -> list[interface.ReconcilerBuilder]:
        """Return no watches: the namespaced kind adds the plugins' watches."""
        return []

    async def validate_objects(
        self, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Reject a TrainJob whose runtime cannot be read. Otherwise run the plugins' validation.

        If the runtime is deprecated, a warning is added.
        """
        try:
            found = (
                await peek(
                    self._client,
                    trainer.ClusterTrainingRuntime,
                    NamespacedName("", new.spec.runtime_ref.name),
                )
            ).object
        except (StatusError, RestError) as error:
            snapshot = await self._namespaced.runtime_from_snapshot(
                error, old, trainer.ClusterTrainingRuntime
            )
            if snapshot is None:
                detail = f"{error}: specified clusterTrainingRuntime must be created before the TrainJob is created"
                path = field.Path("spec", "RuntimeRef")
                return [], field.ErrorList([field.invalid(path, new.spec.runtime_ref, detail)])
            found = snapshot
        warnings: list[str] = []
        if trainingruntime.is_support_deprecated(found.labels):
            warnings.append(
                f'Referenced ClusterTrainingRuntime "{found.name}" is deprecated and will be removed in a future '
                "release of Kubeflow Trainer. See runtime deprecation policy: "
                f"{trainingruntime.deprecation_policy_url(self._namespaced.cfg)}"
            )
        with offload.object_size(found.decoded_size):
            more, errors = await self._namespaced.validate_against(found.spec, old, new)
        return warnings + more, errors
