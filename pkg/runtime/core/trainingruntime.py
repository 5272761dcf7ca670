# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingRuntime: the namespaced runtime, and the pipeline of both kinds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec
from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import FieldIndexer, Reader, peek
from controller_runtime.machinery import NamespacedName, Object, equality, field
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.lru import LRU
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.machinery.raised import ExpectedError
from controller_runtime.rest import RestError

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.volcano.v1beta1 import QUEUE_NAME_ANNOTATION_KEY
from pkg.constants import trainer as constants
from pkg.runtime import framework, interface, remarks, runtime
from pkg.runtime import indexer as index
from pkg.runtime.framework import Observer, PluginError
from pkg.runtime.framework.plugins.jobset import builder, job_set
from pkg.util import generations, offload, podtemplate, resources, trainingruntime, trainjob

from .overrides import (
    DeniedPatchError,
    RuntimePatchError,
    deny_security_context,
    with_overrides,
)
from .snapshot import SnapshotCreationError, SnapshotError, Snapshots

AnyRuntime = trainer.TrainingRuntime | trainer.ClusterTrainingRuntime
_MOST_CHECKED: Final = 256
"""Maximum number of TrainJobs for which remarks and mistakes in pod templates are remembered."""

_FREE_TEXTS: Final[dict[str, Any]] = {
    "trainer": {"command": True, "args": True, "env": {"__all__": {"value"}}}
}
"""The fields of a TrainJob's spec whose values every API server accepts."""

TRAINING_RUNTIME_GROUP_KIND: Final = str(trainer.TrainingRuntime.gvk.group_kind)


class _Findings(msgspec.Struct):
    """What reviews have found in TrainJobs that differ only in their names and in the texts of their programs."""

    remarks: list[str] | None = None
    """The remarks about a new TrainJob, if they were made already."""
    violations: list[podtemplate.Violation] | None = None
    """The mistakes in the pod templates, if they were looked for already."""


class RuntimeNotFoundError(ExpectedError):
    """A TrainJob's runtime could not be read, or its snapshot could not be read or created. The cause is chained."""


class PredecessorSnapshotError(RuntimeNotFoundError, trainjob.PredecessorError):
    """The snapshot belongs to an earlier TrainJob of the same name. The garbage collector deletes that snapshot."""


class ForeignSnapshotError(RuntimeNotFoundError, trainjob.ChildConflictError):
    """The snapshot's name is used by an object that the TrainJob does not control.

    The deletion of that object does not enqueue the TrainJob.
    """


async def index_runtime_references(indexer: FieldIndexer) -> None:
    """Add the index of TrainJobs by TrainingRuntime, and that by ClusterTrainingRuntime."""
    for key, names in (
        (index.TRAIN_JOB_RUNTIME_REF_KEY, index.index_train_job_training_runtime),
        (index.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY, index.index_train_job_cluster_training_runtime),
    ):
        await indexer.index_field(trainer.TrainJob, key, names, reads=index.TrainJobReference)


class TrainingRuntime(interface.Runtime):
    """Serves TrainJobs that refer to a TrainingRuntime. The class of the cluster-scoped kind inherits from it."""

    kind: ClassVar[type[AnyRuntime]] = trainer.TrainingRuntime
    not_found: ClassVar[str] = "TrainingRuntime specified in TrainJob is not found: {}"
    not_created: ClassVar[str] = (
        "{}: specified trainingRuntime must be created before the TrainJob is created"
    )
    path: ClassVar[field.Path] = field.Path("spec", "runtimeRef")
    """The field that a TrainJob whose runtime cannot be read is refused for."""
    reads: ClassVar[str] = "unable to get"
    """The verb with which the texts of errors of snapshots begin."""

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
        self._denies_security_context = self.cfg.denies_security_context
        self._merges_resources = self.cfg.second_generation
        self._snapshots = snapshots
        self._findings: LRU[tuple[str, str, int, bytes], _Findings] = LRU(_MOST_CHECKED)

    def observe(self, observer: Observer | None) -> None:
        """Set the observer of all later passes. It also observes the passes of the cluster-scoped kind."""
        self.framework.observer = observer

    async def new_objects(self, train_job: trainer.TrainJob) -> list[Object]:
        """Return the objects to apply."""
        return (await self.objects_and_state(train_job))[0]

    async def objects_and_state(self, train_job: trainer.TrainJob) -> tuple[list[Object], int | None]:
        """Return the objects to apply and, if no plugin builds more than a JobSet, the hash of TrainJob and runtime."""
        found, state = await self._runtime_and_state(train_job)
        with offload.object_size(found.decoded_size):
            info, changed = await self._prepared(found.spec, train_job)
            objects = await self.framework.run_component_builder_plugins(info, changed)
        siblings = self.framework.sibling_policies
        return objects, None if "" in siblings or siblings & info.policies else state

    async def require(self, train_job: trainer.TrainJob) -> int | None:
        """Return the hash of TrainJob and runtime. Raise RuntimeNotFoundError if the runtime cannot be read."""
        return (await self._runtime_and_state(train_job))[1]

    async def _live(self, train_job: trainer.TrainJob) -> AnyRuntime:
        """Return the runtime from the cache.

        Raises:
            RuntimeNotFoundError: the runtime could not be read.
        """
        namespaced = self.kind is trainer.TrainingRuntime
        key = NamespacedName(train_job.namespace if namespaced else "", train_job.spec.runtime_ref.name)
        try:
            return await offload.decoded(await peek(self.client, self.kind, key))
        except (StatusError, RestError) as error:
            raise RuntimeNotFoundError(self.not_found.format(error)) from error

    async def _runtime_and_state(self, train_job: trainer.TrainJob) -> tuple[AnyRuntime, int | None]:
        """Return the TrainJob's runtime, from its snapshot or from the cache, and a hash of both.

        Raises:
            RuntimeNotFoundError: the runtime could not be read, or its snapshot could not be created.
            ForbiddenError: the namespace is being terminated.
        """
        digest: bytes | None = None
        try:
            if self._snapshots is None:
                found = await self._live(train_job)
            else:
                live = functools.partial(self._live, train_job)
                found = await self._snapshots.runtime_of(train_job, self.kind, live)
                digest = self._snapshots.digest_of(train_job, found)
        except SnapshotError as error:
            verb = "creating" if isinstance(error, SnapshotCreationError) else self.reads
            text, cause = f"{verb} runtime snapshot: {error}", error.__cause__
            if isinstance(cause, trainjob.PredecessorError):
                raise PredecessorSnapshotError(text, cause.live) from error
            foreign = isinstance(cause, trainjob.ChildConflictError)
            raise (ForeignSnapshotError if foreign else RuntimeNotFoundError)(text) from error
        except StatusError as error:
            if error.has_cause("NamespaceTerminating"):
                raise  # the caller waits until the namespace is gone
            raise RuntimeNotFoundError(f"{self.reads} runtime snapshot: {error}") from error
        uid, version = found.metadata.uid, found.metadata.resource_version
        if digest is None and not (uid and version):
            return found, None
        metadata = train_job.metadata
        labels, annotations = metadata.labels or {}, metadata.annotations or {}
        texts = frozenset(labels.items()), frozenset(annotations.items())
        return found, hash((digest or (uid, version), metadata.uid, metadata.generation, *texts))

    async def objects_from(
        self, spec: trainer.TrainingRuntimeSpec, train_job: trainer.TrainJob
    ) -> list[Object]:
        """Return the objects that are built for a TrainJob from a runtime's spec. Neither argument is changed."""
        info, changed = await self._prepared(spec, train_job)
        return await self.framework.run_component_builder_plugins(info, changed)

    async def _prepared(
        self, spec: trainer.TrainingRuntimeSpec, train_job: trainer.TrainJob
    ) -> tuple[runtime.Info, trainer.TrainJob]:
        """Return the Info and the TrainJob from which the plugins build the objects."""
        train_job = generations.with_word(train_job)
        if self._denies_security_context:
            deny_security_context(train_job.spec)
        if spec.pod_group_policy is not None:
            await self.framework.prepare_pod_group_policy_plugins(spec.pod_group_policy)
        return await offload.run(train_job, self._info, train_job, spec), train_job

    def _info(self, train_job: trainer.TrainJob, spec: trainer.TrainingRuntimeSpec) -> runtime.Info:
        return self.runtime_info(train_job, spec.template, spec.ml_policy, spec.pod_group_policy)

    def runtime_info(
        self,
        train_job: trainer.TrainJob,
        template: object,
        ml_policy: trainer.MLPolicy | None,
        pod_group_policy: trainer.PodGroupPolicy | None,
    ) -> runtime.Info:
        """Return the Info after all stages that precede the building of objects."""
        if not isinstance(template, trainer.JobSetTemplateSpec):
            raise interface.UnsupportedTemplateError("unsupported runtimeTemplateSpec")
        parts, observer = (template, ml_policy, pod_group_policy), self.framework.observer
        info = new_runtime_info(train_job, *parts, observer, merges_resources=self._merges_resources)
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
        """Reject a TrainJob whose runtime cannot be read. Otherwise run the plugins' validation.

        The TrainJob's snapshot is used if the runtime does not exist any more, or if an update does not fit it: since
        the objects are built from the snapshot, the TrainJob can still be suspended and resumed.
        """
        warnings, errors, _, _ = await self._validated(old, new)
        return warnings, errors

    async def review(
        self, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList, list[podtemplate.Violation]]:
        """Validate as :meth:`validate_objects` does. Unless there are errors, also return the template violations."""
        warnings, errors, live, known = await self._validated(old, new)
        if errors or live is None:
            return warnings, errors, []
        return warnings, errors, await self._violations(live, new, known)

    async def _validated(
        self, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList, AnyRuntime | None, _Findings]:
        """Return the warnings, the errors, the runtime if it exists, and what is known about such TrainJobs."""
        found: AnyRuntime | None = None
        live: AnyRuntime | None = None
        try:
            found = live = await self._live(new)
        except RuntimeNotFoundError as error:
            cause = error.__cause__
            if old is not None and self._snapshots is not None and isinstance(cause, NotFoundError):
                found = await self._snapshots.existing(old, self.kind)
            if found is None:
                invalid = field.invalid(self.path, new.spec.runtime_ref, self.not_created.format(cause))
                return [], field.ErrorList([invalid]), None, _Findings()
        known = _Findings() if live is None else self._known(live, new)
        with offload.object_size(found.decoded_size):
            warnings, errors = await self.validate_against(found.spec, old, new, known)
        if errors and old is not None and self._snapshots is not None:
            # The runtime may have been edited since the snapshot was taken, from which the objects are built.
            kept = await self._snapshots.existing(old, self.kind)
            if kept is not None:
                warnings, errors = await self.validate_against(kept.spec, old, new)
        return [*self.warnings_about(found), *warnings], errors, live, known

    async def template_violations(self, train_job: trainer.TrainJob) -> list[podtemplate.Violation]:
        """Return the mistakes in the pod templates that are built from the runtime as it is now."""
        try:
            found = await self._live(train_job)
        except RuntimeNotFoundError:
            return []  # the TrainJob is refused
        return await self._violations(found, train_job, self._known(found, train_job))

    async def _violations(
        self, found: AnyRuntime, train_job: trainer.TrainJob, known: _Findings
    ) -> list[podtemplate.Violation]:
        if known.violations is None:
            train_job = generations.with_word(train_job)
            try:
                with offload.object_size(found.decoded_size):
                    known.violations = await offload.run(
                        train_job, self._template_violations, train_job, found.spec
                    )
            except (StrategicMergeError, PluginError):
                return []  # the TrainJob is refused, or its event has the reason
        return known.violations

    def _known(self, found: AnyRuntime, train_job: trainer.TrainJob) -> _Findings:
        """Return what earlier reviews of such TrainJobs have found, to which the caller adds what it finds.

        It is remembered by the version of the runtime, the length of the TrainJob's name, and its spec without the
        texts that every API server accepts. So TrainJobs that run different programs are checked once. Nothing is
        remembered of large TrainJobs.
        """
        uid, version = found.metadata.uid, found.metadata.resource_version
        if not uid or not version or offload.is_large(train_job.decoded_size):
            return _Findings()
        key = (uid, version, len(train_job.name), _checked_part(generations.with_word(train_job)))
        known = self._findings.use(key)
        if known is None:
            self._findings[key] = known = _Findings()
        return known

    def _template_violations(
        self, train_job: trainer.TrainJob, spec: trainer.TrainingRuntimeSpec
    ) -> list[podtemplate.Violation]:
        info = self._info(train_job, spec)
        if (made := job_set(info, train_job)) is None:
            return []
        for job, pod_set in zip(made.spec.replicated_jobs or (), info.template_spec.pod_sets, strict=True):
            # The builder sets it to the same number. A negative one is reported elsewhere.
            job.template.spec.completions = pod_set.count if pod_set.count > 0 else None
        return podtemplate.violations(made.to_dict())

    def warnings_about(self, found: AnyRuntime) -> list[str]:
        """Return the warnings about the runtime itself."""
        del found
        return []

    async def validate_against(
        self,
        spec: trainer.TrainingRuntimeSpec,
        old: trainer.TrainJob | None,
        new: trainer.TrainJob,
        known: _Findings | None = None,
    ) -> tuple[list[str], field.ErrorList]:
        """Run the plugins' validation, and return the warnings and errors.

        A runtime patch that cannot be merged into the template is an additional error. If an override cannot be merged,
        no plugin is called, and this is the only error. A suspension is not refused because of unchanged overrides, and
        no update is refused because of unchanged patches.
        """
        old, new = old and generations.with_word(old), generations.with_word(new)
        misfits, merged = field.ErrorList(), new
        same = old is not None and equality.deep_equal(old.spec.runtime_patches, new.spec.runtime_patches)
        while True:
            try:
                if self._denies_security_context and not same:
                    deny_security_context(merged.spec)
                info = await info_for_validation(spec, merged)
                break
            except RuntimePatchError as error:
                path, patches = field.Path("spec", "runtimePatches"), field.Quoted(new.spec.runtime_patches)
                if isinstance(error, DeniedPatchError):
                    misfits += error.errors
                elif not same:
                    misfits += [field.invalid(path, patches, detail) for detail in error.details]
                merged = _without(merged, runtime_patches=None)
            except StrategicMergeError as error:
                if not generations.suspends_with_same_overrides(old, new):
                    path = field.Path("spec", "podTemplateOverrides")
                    return [], field.ErrorList(
                        [field.invalid(path, new.spec.pod_template_overrides, str(error))]
                    )
                others = generations.runtime_patches(merged.spec)  # without the mirror of the overrides
                merged = _without(merged, pod_template_overrides=None, runtime_patches=others)
        warnings, errors = await self.framework.run_custom_validation_plugins(info, old, new)
        errors += misfits
        if not errors and remarks.are_due(old, new):
            known = _Findings() if known is None else known
            if known.remarks is None:
                patched = merged.spec.pod_template_overrides or generations.runtime_patches(merged.spec)
                jobs = info.replicated_jobs if patched else None
                merges = self.cfg.second_generation
                about = remarks.about_train_job(new, spec, jobs, merges_resources=merges)
                known.remarks = [str(each) for each in about]
            warnings = [*warnings, *known.remarks]
        if old is None and trainingruntime.names_no_scheduler(spec.pod_group_policy):
            path = field.Path("spec", "runtimeRef")
            warnings = [
                *warnings,
                trainingruntime.NO_SCHEDULER.format(f"{path}: podGroupPolicy of the runtime"),
            ]
        return warnings, errors


def _without(train_job: trainer.TrainJob, **changes: object) -> trainer.TrainJob:
    changed = train_job.shallow_copy()
    changed.spec = train_job.spec.model_copy(update=changes)
    return changed


def _checked_part(train_job: trainer.TrainJob) -> bytes:
    """Return the digest of what reviews may remark: all but the name and the texts of the program and environment."""
    spec, own = train_job.spec, train_job.spec.trainer
    facts = [QUEUE_NAME_ANNOTATION_KEY in train_job.annotations]
    if own is not None:
        for words in (own.command, own.args):
            facts += (words is None, bool(words))
        facts += [bool(each.value) for each in own.env or ()]
    text = spec.__pydantic_serializer__.to_json(spec, exclude=_FREE_TEXTS, exclude_none=True)
    return hashlib.blake2b(text + bytes(facts), digest_size=16).digest()


def new_runtime_info(
    train_job: trainer.TrainJob,
    template: trainer.JobSetTemplateSpec,
    ml_policy: trainer.MLPolicy | None,
    pod_group_policy: trainer.PodGroupPolicy | None,
    observer: Observer | None = None,
    *,
    merges_resources: bool | None = False,
) -> runtime.Info:
    """Return the Info with which the first stage begins: it has the template with the TrainJob's changes.

    The count of the trainer's pod set is the ``numNodes`` of the mlPolicy, if there is an mlPolicy. Any other count is
    the job's parallelism. A missing number counts as 1.

    Trainer v2.1 and v2.3 apply the TrainJob's ``resourcesPerNode`` differently. If ``merges_resources`` is False
    (v2.1), the TrainJob's resources replace the resources in the template, but the requests of the pod sets stay as
    they were. If ``merges_resources`` is True (v2.3), the TrainJob's resources are merged into the resources in the
    template, and the requests of the pod sets include them. In v2.3, they are ignored if the runtime has no mlPolicy.
    If it is None, they are not applied.

    Raises:
        StrategicMergeError: a change cannot be merged into the template.
        PluginError: the resources would be applied to too many containers.
    """
    wanted, patches = train_job.spec, generations.runtime_patches(train_job.spec)
    overrides = wanted.pod_template_overrides or ()
    spec = with_overrides(template.spec, overrides, patches, None if observer is None else observer.template)
    labels, annotations = _labels_and_annotations(template.metadata, wanted, patches)
    if merges_resources and ml_policy is not None:
        _apply_resources(spec, train_job, ml_policy, merge=True)
    pod_sets: list[runtime.PodSet] = []
    for job in spec.replicated_jobs or ():
        ancestor, count = runtime.ancestor_of(job), job.template.spec.parallelism
        if ancestor == constants.ANCESTOR_TRAINER and ml_policy is not None:
            count = ml_policy.num_nodes
        pod = job.template.spec.template.spec
        pod_sets.append(runtime.new_pod_set(job.name, ancestor, 1 if count is None else count, pod))
    info = runtime.new_info(
        labels=labels,
        annotations=annotations,
        ml_policy=ml_policy,
        pod_group_policy=pod_group_policy,
        template_spec_obj_apply=spec,
        pod_sets=pod_sets,
    )
    if merges_resources is False:
        _apply_resources(spec, train_job, ml_policy, merge=False)
    if observer is not None:
        observer.begin(info)
    return info


async def info_for_validation(spec: trainer.TrainingRuntimeSpec, train_job: trainer.TrainJob) -> runtime.Info:
    """Return the Info for a validation, without the TrainJob's resources.

    If the TrainJob is large or has overrides or patches, the template is built immediately. Otherwise it is built when
    a plugin reads it.

    Raises:
        StrategicMergeError: a change cannot be merged into the template.
    """
    wanted = train_job.spec

    def build() -> runtime.Info:
        return new_runtime_info(
            train_job, spec.template, spec.ml_policy, spec.pod_group_policy, merges_resources=None
        )

    patches = generations.runtime_patches(wanted)
    if wanted.pod_template_overrides or patches or offload.is_large(train_job.decoded_size):
        return await offload.run(train_job, build)
    labels, annotations = _labels_and_annotations(spec.template.metadata, wanted, patches)
    info = runtime.new_info(
        labels=labels,
        annotations=annotations,
        ml_policy=spec.ml_policy,
        pod_group_policy=spec.pod_group_policy,
    )
    info.template = lambda: build().template_spec
    return info


def _labels_and_annotations(
    metadata: ObjectMeta | None, wanted: trainer.TrainJobSpec, patches: Sequence[trainer.RuntimePatch]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the JobSet's labels and annotations.

    A value of the TrainJob replaces the runtime's value with the same key, and a value of a patch replaces both.
    """
    labels = {**((metadata and metadata.labels) or {}), **(wanted.labels or {})}
    annotations = {**((metadata and metadata.annotations) or {}), **(wanted.annotations or {})}
    for patch in patches:
        template = patch.training_runtime_spec.template if patch.training_runtime_spec is not None else None
        if template is not None and template.metadata is not None:
            labels |= template.metadata.labels or {}
            annotations |= template.metadata.annotations or {}
    return labels, annotations


def _apply_resources(
    spec: JobSetSpec, train_job: trainer.TrainJob, ml_policy: trainer.MLPolicy | None, *, merge: bool
) -> None:
    """Apply the TrainJob's resources to the trainer's containers.

    If ``merge`` is True, the TrainJob's resources are merged into the containers' resources. Otherwise they replace the
    containers' resources, but only if the TrainJob sets limits or requests. An empty map counts as set. As upstream,
    claims are dropped.
    """
    own = train_job.spec.trainer
    wanted = own.resources_per_node if own is not None else None
    if wanted is None or (not merge and wanted.limits is None and wanted.requests is None):
        return
    containers = list(runtime.trainers(spec.replicated_jobs or (), ml_policy or trainer.MLPolicy()))
    builder.require_room(containers, wanted)
    for container in containers:
        if merge:
            container.resources = resources.merged(container.resources, wanted)
        else:
            container.resources = ResourceRequirements(limits=wanted.limits, requests=wanted.requests)
