# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingRuntime: the namespaced runtime, and the pipeline of both kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from controller_runtime.client import Client, FieldIndexer, Reader, peek
from controller_runtime.machinery import NamespacedName, Object, equality, field
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.rest import RestError

from pkg import features
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.runtime import indexer as index
from pkg.runtime import interface, runtime
from pkg.runtime.framework import Observer
from pkg.runtime.framework import core as framework
from pkg.runtime.framework.plugins import registry as plugins
from pkg.runtime.framework.plugins.workload import Published
from pkg.util import generations, offload, trainingruntime, trainjob

from .runtimeinfo import info_for_validation, new_runtime_info
from .runtimepatches import DeniedPatchError, RuntimePatchError, deny_security_context
from .snapshot import SnapshotCreationError, SnapshotError, Snapshots

T = TypeVar("T", trainer.TrainingRuntime, trainer.ClusterTrainingRuntime)

TRAINING_RUNTIME_GROUP_KIND: Final = str(trainer.TrainingRuntime.gvk.group_kind)


class RuntimeNotFoundError(Exception):
    """A TrainJob's runtime could not be read, or its snapshot could not be read or created. The cause is chained."""


class PredecessorSnapshotError(RuntimeNotFoundError, trainjob.PredecessorError):
    """The snapshot belongs to an earlier TrainJob of the same name. The garbage collector deletes that snapshot."""


class ForeignSnapshotError(RuntimeNotFoundError, trainjob.ChildConflictError):
    """The snapshot's name is used by an object that the TrainJob does not control.

    The deletion of that object does not enqueue the TrainJob.
    """


async def new_training_runtime(
    client: Reader,
    indexer: FieldIndexer,
    _built: Mapping[str, interface.Runtime],
    *,
    cfg: Configuration | None = None,
    store: Client | None = None,
    reader: Reader | None = None,
    published: Published | None = None,
) -> TrainingRuntime:
    """Create the runtime and its plugins, and register their cache indices. ``store`` holds the snapshots."""
    cfg = defaulted() if cfg is None else cfg
    await index_runtime_references(indexer)
    gates = features.resolve(cfg.feature_gates or {})
    registry = plugins.new_registry(gates=gates, published=published)
    snapshots = None if store is None else Snapshots(store, reader, creates=cfg.second_generation)
    return TrainingRuntime(await framework.new(client, registry, indexer, cfg), client, cfg, snapshots)


async def index_runtime_references(indexer: FieldIndexer) -> None:
    """Index TrainJobs by the TrainingRuntime or ClusterTrainingRuntime to which they refer."""
    await indexer.index_field(
        trainer.TrainJob,
        index.TRAIN_JOB_RUNTIME_REF_KEY,
        index.index_train_job_training_runtime,
        reads=index.TrainJobReference,
    )
    await indexer.index_field(
        trainer.TrainJob,
        index.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY,
        index.index_train_job_cluster_training_runtime,
        reads=index.TrainJobReference,
    )


class TrainingRuntime(interface.Runtime):
    """Serves TrainJobs that refer to a TrainingRuntime; its pipeline serves the cluster-scoped kind too."""

    def __init__(
        self,
        fwk: framework.Framework,
        client: Reader,
        cfg: Configuration | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.framework = fwk
        self.client = client
        self.cfg = defaulted() if cfg is None else cfg
        self._snapshots = snapshots

    def observe(self, observer: Observer | None) -> None:
        """Set the observer of all later passes. It also observes the passes of the cluster-scoped kind."""
        self.framework.observer = observer

    async def new_objects(self, train_job: trainer.TrainJob) -> list[Object]:
        """Return the objects to apply."""
        found = await self._found(train_job)
        with offload.object_size(found.decoded_size):
            return await self.objects_from(found.spec, train_job)

    async def require(self, train_job: trainer.TrainJob) -> None:
        """Raise RuntimeNotFoundError if the runtime cannot be read."""
        await self._found(train_job)

    async def _found(self, train_job: trainer.TrainJob) -> trainer.TrainingRuntime:
        key = NamespacedName(train_job.namespace, train_job.spec.runtime_ref.name)

        async def live() -> trainer.TrainingRuntime:
            try:
                return (await peek(self.client, trainer.TrainingRuntime, key)).object
            except (StatusError, RestError) as error:
                text = f"TrainingRuntime specified in TrainJob is not found: {error}"
                raise RuntimeNotFoundError(text) from error

        return await self.runtime_of(train_job, trainer.TrainingRuntime, live, "unable to get")

    async def runtime_of(
        self, train_job: trainer.TrainJob, kind: type[T], live: Callable[[], Awaitable[T]], reads: str
    ) -> T:
        """Return the TrainJob's runtime, from its snapshot or from ``live``.

        If the snapshot cannot be read, the text of the error begins with ``reads``, for example "unable to get".

        Raises:
            RuntimeNotFoundError: the runtime could not be read, or its snapshot could not be created.
            ForbiddenError: the namespace is being terminated.
        """
        if self._snapshots is None:
            return await live()
        try:
            return await self._snapshots.runtime_of(train_job, kind, live)
        except SnapshotError as error:
            verb = "creating" if isinstance(error, SnapshotCreationError) else reads
            text, cause = f"{verb} runtime snapshot: {error}", error.__cause__
            if isinstance(cause, trainjob.PredecessorError):
                raise PredecessorSnapshotError(text, cause.live) from error
            foreign = isinstance(cause, trainjob.ChildConflictError)
            raise (ForeignSnapshotError if foreign else RuntimeNotFoundError)(text) from error
        except StatusError as error:
            if error.has_cause("NamespaceTerminating"):
                raise  # the caller waits until the namespace is gone
            raise RuntimeNotFoundError(f"{reads} runtime snapshot: {error}") from error

    async def objects_from(
        self, spec: trainer.TrainingRuntimeSpec, train_job: trainer.TrainJob
    ) -> list[Object]:
        """Return the objects that are built for a TrainJob from a runtime's spec. Neither argument is changed."""
        train_job = generations.with_word(train_job)
        if self.cfg.denies_security_context:
            deny_security_context(train_job.spec)
        if spec.pod_group_policy is not None:
            await self.framework.prepare_pod_group_policy_plugins(spec.pod_group_policy)
        info = await offload.run(
            train_job, self.runtime_info, train_job, spec.template, spec.ml_policy, spec.pod_group_policy
        )
        return await self.framework.run_component_builder_plugins(info, train_job)

    def runtime_info(
        self,
        train_job: trainer.TrainJob,
        runtime_template_spec: object,
        ml_policy: trainer.MLPolicy | None,
        pod_group_policy: trainer.PodGroupPolicy | None,
    ) -> runtime.Info:
        """Run all stages that precede the building of objects, and return the resulting Info."""
        if not isinstance(runtime_template_spec, trainer.JobSetTemplateSpec):
            raise TypeError("unsupported runtimeTemplateSpec")
        info = new_runtime_info(
            train_job,
            runtime_template_spec,
            ml_policy,
            pod_group_policy,
            self.framework.observer,
            merges_resources=self.cfg.second_generation,
        )
        self.framework.run_enforce_ml_policy_plugins(info, train_job)
        self.framework.run_enforce_pod_group_policy_plugins(info, train_job)
        self.framework.run_pod_network_plugins(info, train_job)
        return info

    async def train_job_status(self, train_job: trainer.TrainJob) -> trainer.TrainJobStatus | None:
        """Return the TrainJob's status, derived from its objects."""
        return await self.framework.run_train_job_status_plugin(train_job)

    async def why_waiting(self, train_job: trainer.TrainJob) -> interface.Waiting | None:
        """Return why the TrainJob's gang is not scheduled."""
        return await self.framework.why_waiting(train_job)

    def event_handler_registrars(self) -> list[interface.ReconcilerBuilder]:
        """Return the functions that watch snapshots and the objects of the plugins."""
        watches = [] if self._snapshots is None else [self._snapshots.watch]
        return [*watches, *self.framework.reconciler_builders()]

    async def validate_objects(
        self, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Reject a TrainJob whose runtime cannot be read. Otherwise run the plugins' validation."""
        key = NamespacedName(new.namespace, new.spec.runtime_ref.name)
        try:
            found = (await peek(self.client, trainer.TrainingRuntime, key)).object
        except (StatusError, RestError) as error:
            snapshot = await self.runtime_from_snapshot(error, old, trainer.TrainingRuntime)
            if snapshot is None:
                detail = f"{error}: specified trainingRuntime must be created before the TrainJob is created"
                path = field.Path("spec", "runtimeRef")
                return [], field.ErrorList([field.invalid(path, new.spec.runtime_ref, detail)])
            found = snapshot
        with offload.object_size(found.decoded_size):
            return await self.validate_against(found.spec, old, new)

    async def runtime_from_snapshot(
        self, error: Exception, old: trainer.TrainJob | None, kind: type[T]
    ) -> T | None:
        """Return the runtime of a TrainJob's snapshot if ``error`` says that the live runtime does not exist.

        Since the TrainJob's objects are built from its snapshot, the TrainJob can still be suspended and resumed.
        """
        if old is None or self._snapshots is None or not isinstance(error, NotFoundError):
            return None
        return await self._snapshots.existing(old, kind)

    async def validate_against(
        self, spec: trainer.TrainingRuntimeSpec, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Run the plugins' validation, and return the warnings and errors.

        A runtime patch that cannot be merged into the template is an additional error. If an override cannot be merged,
        no plugin is called, and this is the only error.
        """
        old, new = old and generations.with_word(old), generations.with_word(new)
        misfits, merges = field.ErrorList(), self.cfg.second_generation
        try:
            try:
                if self.cfg.denies_security_context and not _has_patches_of(old, new):
                    deny_security_context(new.spec)
                info = await info_for_validation(spec, new, merges_resources=merges)
            except RuntimePatchError as error:
                path, patches = field.Path("spec", "runtimePatches"), field.Quoted(new.spec.runtime_patches)
                if isinstance(error, DeniedPatchError):
                    misfits += error.errors
                else:
                    misfits += [field.invalid(path, patches, detail) for detail in error.details]
                unpatched = new.shallow_copy()
                unpatched.spec = new.spec.model_copy(update={"runtime_patches": None})
                info = await info_for_validation(spec, unpatched, merges_resources=merges)
        except StrategicMergeError as error:
            path = field.Path("spec", "podTemplateOverrides")
            return [], field.ErrorList([field.invalid(path, new.spec.pod_template_overrides, str(error))])
        warnings, errors = await self.framework.run_custom_validation_plugins(info, old, new)
        errors += misfits
        if old is None and trainingruntime.names_no_scheduler(spec.pod_group_policy):
            path = field.Path("spec", "runtimeRef")
            warnings = [
                *warnings,
                trainingruntime.NO_SCHEDULER.format(f"{path}: podGroupPolicy of the runtime"),
            ]
        return warnings, errors


def _has_patches_of(old: trainer.TrainJob | None, new: trainer.TrainJob) -> bool:
    """Return True if an update does not change the runtime patches.

    Such an update must not be refused because of the patches.
    """
    return old is not None and equality.deep_equal(old.spec.runtime_patches, new.spec.runtime_patches)
