# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainingRuntime controller, and the base that it shares with the ClusterTrainingRuntime controller.

A runtime that TrainJobs refer to is protected from deletion. The runtime gets the finalizer
``trainer.kubeflow.org/resource-in-use`` when the first TrainJob refers to it. The finalizer is removed when the runtime
is being deleted and no TrainJob refers to it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import controller_runtime as ctrl
from controller_runtime import client, event, handler, log, predicate
from controller_runtime.cache import CacheError
from controller_runtime.controller import controllerutil
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import indexer
from pkg.util import trainjob

if TYPE_CHECKING:
    from controller_runtime import controller

NAME: Final = "trainingruntime_controller"

_FINALIZER: Final = constants.RESOURCE_IN_USE_FINALIZER
_REFERENCES_CHANGE: Final = predicate.Funcs[TrainJob](
    # Every runtime is reconciled once at the start, after all TrainJobs are indexed.
    create=lambda evt: not evt.is_in_initial_list,
    # The generations are known without decoding, which for a large TrainJob takes long.
    update=lambda evt: (
        evt.old_metadata.generation != evt.new_metadata.generation
        and evt.old.spec.runtime_ref != evt.new.spec.runtime_ref
    ),
)


class RuntimeReconciler:
    """Protects the runtimes of one kind. The subclass names the kind.

    In the second generation, TrainJobs keep a snapshot of their runtime. Runtimes therefore need no protection, and the
    finalizer is removed.

    The controller watches TrainJobs itself, so it works in a manager that runs no TrainJob controller.
    """

    kind: type[TrainingRuntime | ClusterTrainingRuntime]
    name: str
    refers: Callable[[trainjob.Reference], bool]
    """Returns True if a reference names this kind."""

    def __init__(self, client: client.Client, cfg: Configuration | None = None) -> None:
        self._client = client
        self._protects = not (cfg is not None and cfg.second_generation)

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        """Add or remove the finalizer of one runtime."""
        try:
            runtime = (await client.peek(self._client, self.kind, request)).object
        except NotFoundError:
            return ctrl.Result()
        log.logger_from().debug("Reconciling runtime")
        deleted = runtime.metadata.deletion_timestamp is not None
        guarded = _FINALIZER in (runtime.metadata.finalizers or ())
        wanted = False
        if self._protects:
            if guarded is not deleted:
                return ctrl.Result()  # correct with and without references
            fields = {indexer.TRAIN_JOBS_OF[self.kind]: request.name}
            jobs = await self._client.list(TrainJob, namespace=request.namespace, fields=fields, limit=1)
            wanted = bool(jobs)
        if wanted is not guarded:
            changed = runtime.deep_copy()
            (controllerutil.add_finalizer if wanted else controllerutil.remove_finalizer)(changed, _FINALIZER)
            await self._client.patch(changed, client.merge_from(runtime, optimistic_lock=True))
        return ctrl.Result()

    def setup_with_manager(self, mgr: ctrl.Manager, options: controller.Options) -> None:
        """Register the controller. It watches the runtimes of its kind and, if it protects them, TrainJobs."""
        builder = ctrl.new_controller_managed_by(mgr).named(self.name).for_(self.kind).with_options(options)
        if self._protects:
            builder = builder.watches(
                TrainJob,
                handler.enqueue_requests_from_map_func(self.runtime_of, reads=indexer.TrainJobReference),
                predicates=[predicate.NotOwnWrite(), _REFERENCES_CHANGE, self.references()],
            )
        builder.complete(self)

    def references(self) -> predicate.Predicate[TrainJob]:
        """Return a predicate for TrainJobs that refer, or referred, to a runtime of this kind.

        For other TrainJobs, :meth:`runtime_of` would return nothing. Without the predicate, each of their events would
        wake a task just to call that method.
        """

        def refer(evt: event.Event[TrainJob]) -> bool:
            return any(self.refers(job.spec.runtime_ref) for job in evt.views(indexer.TrainJobReference))

        return predicate.Funcs(create=refer, update=refer, delete=refer, generic=refer)

    async def runtime_of(self, train_job: TrainJob | indexer.TrainJobReference) -> list[ctrl.Request]:
        """Return the runtime that ``train_job`` refers to, if that runtime is of this kind and not protected yet."""
        if not self.refers(train_job.spec.runtime_ref):
            return []
        namespaced = self.kind.resource is not None and self.kind.resource.namespaced
        namespace = (train_job.metadata.namespace or "") if namespaced else ""
        request = ctrl.Request(namespace, train_job.spec.runtime_ref.name)
        try:
            runtime = (await client.peek(self._client, self.kind, request)).object
        except (StatusError, RestError, CacheError):
            return [request]  # the reconcile gets the same error and reports it
        guarded = _FINALIZER in (runtime.metadata.finalizers or ())
        return [] if guarded and runtime.metadata.deletion_timestamp is None else [request]


# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes,verbs=get;list;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes/finalizers,verbs=get;update;patch


class TrainingRuntimeReconciler(RuntimeReconciler):
    """Protects the TrainingRuntimes that TrainJobs of their namespace refer to."""

    kind = TrainingRuntime
    name = NAME
    refers = staticmethod(trainjob.runtime_ref_is_training_runtime)
