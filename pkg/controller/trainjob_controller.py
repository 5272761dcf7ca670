# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainJob controller: applies a TrainJob's children and writes its status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import controller_runtime as ctrl
from controller_runtime import client, log, predicate
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.machinery import cancellation, raised
from controller_runtime.machinery.errors import InvalidError, NotFoundError
from controller_runtime.recorder import EventRecorder

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.constants import trainer as constants
from pkg.runtime import Runtime, runtime_ref_to_runtime_registry_key
from pkg.util import trainjob
from pkg.util.trainjob import ChildConflictError

from . import deadline, jobconditions, patches, wake
from .applier import Applier, Outcome
from .arrivals import Arrivals
from .children import Children
from .gangs import GangReports
from .lifecycle import Lifecycle, log_created, log_outcome
from .pending import PendingError
from .unbuilt import unbuilt_first

if TYPE_CHECKING:
    from controller_runtime import controller

NAME: Final = "trainjob_controller"
EVENT_SOURCE: Final = "trainer-trainjob-controller"

_MANAGED_BY_US: Final = (None, "", constants.TRAIN_JOB_CONTROLLER_NAME)
_EVENT_REASON: Final = "TrainJobResourcesCreationFailed"
_EVENT_MESSAGE: Final = "TrainJob resources reconciliation failed: {}"
_EVENT_ERROR_LIMIT: Final = 950
_WHILE_A_NAME_IS_TAKEN: Final = timedelta(seconds=60)
"""The longest time between two attempts: the end of a foreign object does not enqueue the TrainJob."""


# +kubebuilder:rbac:groups="",resources=events,verbs=create;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get;list;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/status,verbs=get;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/finalizers,verbs=get;update;patch


class TrainJobReconciler:
    """Applies the children of TrainJobs and keeps their status up to date.

    TrainJobs that are being deleted or are managed by another controller are skipped. The children of a Complete or
    Failed TrainJob are never built again, even if they are deleted.
    """

    def __init__(
        self,
        client: client.Client,
        recorder: EventRecorder,
        runtimes: Mapping[str, Runtime],
        *,
        reader: client.Reader | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._runtimes = runtimes
        self._now = now
        applier = Applier(client, reader)
        self.claims = applier.claims
        self._children = Children(client, applier, recorder, now)
        self._gangs = GangReports(recorder)
        self._lifecycle = lifecycle or Lifecycle()
        self.alarms = deadline.Alarms()
        self.arrivals = Arrivals(now)

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        """Bring one TrainJob's children and status up to date.

        Raises:
            ExceptionGroup: several steps failed; the status of the other steps is written first.
            Exception: the one step that failed.
        """
        try:
            stored = await self._get(request)
        except NotFoundError:
            self._children.forget(request)
            self._gangs.forget(request)
            self._lifecycle.forget(request)
            self.arrivals.forget(request)
            return ctrl.Result()
        if stored.metadata.deletion_timestamp is not None or stored.spec.managed_by not in _MANAGED_BY_US:
            self._lifecycle.skip(request)
            self.arrivals.forget(request)
            return ctrl.Result()
        log.logger_from().debug("Reconciling TrainJob")
        self._lifecycle.observe(stored, failing=True)  # until this reconcile has ended
        try:
            job_set = await self._children.job_set(stored)
        except (PendingError, ChildConflictError) as error:
            return await self._stand_back(stored, error)
        orphan = job_set is not None and trainjob.controller_of(job_set) is None

        train_job = _with_own_status(stored)
        left = None if trainjob.is_finished(stored) else deadline.time_left(stored, self._now())
        expired = deadline.has_passed(left)
        errors = await self._advance(
            train_job, orphan=orphan, expired=expired, builds=not expired or job_set is not None
        )
        await _attempt(errors, self._write_status(stored, train_job, job_set))
        if trainjob.deadline_exceeded(train_job):
            await _attempt(errors, self._children.delete(train_job))
        return self._concluded(train_job, errors, left)

    def _concluded(self, train_job: TrainJob, errors: list[Exception], left: timedelta | None) -> ctrl.Result:
        """Return when the TrainJob is reconciled again, at the latest after ``left``; raise the errors."""
        request = ctrl.Request.for_object(train_job)
        self._lifecycle.observe(train_job, failing=any(not isinstance(each, PendingError) for each in errors))
        if trainjob.is_finished(train_job):
            self._children.forget(request)
            self._gangs.forget(request)
            self.arrivals.forget(request)
            left = None
        if errors and left is not None:
            self.alarms.set(request, left)
        if any(isinstance(each, ChildConflictError) for each in errors) and not trainjob.is_finished(
            train_job
        ):
            self.alarms.set(request, _WHILE_A_NAME_IS_TAKEN)
        return _result(errors, left)

    async def _advance(
        self, train_job: TrainJob, *, orphan: bool, expired: bool, builds: bool
    ) -> list[Exception]:
        """Bring the children and the status of ``train_job`` up to date, and return the errors.

        The status of an orphan is not used before it is adopted. An expired TrainJob fails, unless its JobSet has ended
        before.
        """
        errors: list[Exception] = []
        key = runtime_ref_to_runtime_registry_key(train_job.spec.runtime_ref)
        runtime, finished = self._runtimes.get(key), trainjob.is_finished(train_job)
        if runtime is None:
            if not finished:
                jobconditions.set_unsupported(train_job, key, self._now)
            return errors
        if not finished:
            jobconditions.clear_unsupported(train_job)
            if builds:
                await _attempt(errors, self._reconcile_objects(runtime, train_job))
            for error in errors:
                if not isinstance(error, PendingError):
                    self._report(train_job, error)
            jobconditions.set_unavailable(train_job, errors, self._now)
            await _attempt(errors, self._gangs.report(runtime, train_job))
        jobconditions.set_suspended(train_job, self._now)
        if not orphan or not (finished or errors):
            pending = any(isinstance(error, PendingError) for error in errors)
            may_be_gone = finished or expired or pending
            await _attempt(errors, self._set_status(runtime, train_job, may_be_gone=may_be_gone))
        if expired and not trainjob.is_finished(train_job):
            jobconditions.set_deadline_exceeded(train_job, self._now)
        return errors

    async def _stand_back(self, stored: TrainJob, error: PendingError | ChildConflictError) -> ctrl.Result:
        """Ignore a JobSet that this TrainJob does not control; its status must not become the TrainJob's.

        The JobSet of a deleted TrainJob of the same name is awaited: the garbage collector deletes it. Meanwhile the
        condition Suspended and the deadline hold as for any other TrainJob.

        Raises:
            ChildConflictError: the JobSet will not be deleted.
            ExceptionGroup: nor could the status be written.
        """
        if trainjob.is_finished(stored):
            self._lifecycle.observe(stored, failing=not isinstance(error, PendingError))
            return ctrl.Result()
        if not isinstance(error, PendingError):
            self._report(stored, error)
        train_job = _with_own_status(stored)
        errors: list[Exception] = [error]
        del error  # see _result
        left = deadline.time_left(stored, self._now())
        jobconditions.set_suspended(train_job, self._now)
        if deadline.has_passed(left):
            jobconditions.set_deadline_exceeded(train_job, self._now)
        await _attempt(errors, self._write_status(stored, train_job, None))
        return self._concluded(train_job, errors, left)

    async def _reconcile_objects(self, runtime: Runtime, train_job: TrainJob) -> None:
        for obj, outcome in await self._children.reconcile(runtime, train_job):
            if outcome is Outcome.HEALED:
                metrics.DRIFT_HEALED.labels(obj.gvk.kind).inc()
            elif outcome is Outcome.CREATED and isinstance(obj, JobSet):
                metrics.TIME_TO_CHILDREN.observe(self.arrivals.take(train_job))
                log_created(train_job, self._now())

    async def _get(self, request: ctrl.Request) -> TrainJob:
        """Return the TrainJob; record an event if it is undecodable or too large to decode."""
        try:
            return await self._client.get(TrainJob, request)
        except UndecodableObjectError as error:
            metadata = ObjectMeta(namespace=request.namespace, name=request.name, uid=error.uid)
            self._report(TrainJob(metadata=metadata), error)
            raise

    def _report(self, train_job: TrainJob, error: Exception) -> None:
        text = raised.text(error)
        message = _EVENT_MESSAGE.format(text[:_EVENT_ERROR_LIMIT])
        if len(text) > _EVENT_ERROR_LIMIT:
            message += " ..."
        self._recorder.event(train_job, "Warning", _EVENT_REASON, message)

    async def _set_status(self, runtime: Runtime, train_job: TrainJob, *, may_be_gone: bool) -> None:
        """Set the conditions and counts from the TrainJob's children."""
        try:
            status = await runtime.train_job_status(train_job)
        except (NotFoundError, CacheDegradedError):
            if not may_be_gone:
                raise
            return  # a finished TrainJob keeps its status when its children are deleted
        if status is not None:
            jobconditions.keep_end(train_job, status)
            train_job.status = status

    async def _write_status(self, stored: TrainJob, train_job: TrainJob, job_set: JobSet | None) -> None:
        old, new = _wire(stored.status), _wire(train_job.status)
        if old == new:
            return
        try:
            patch = patches.replace_status(stored, stored.status.to_dict(), new)
            await client.patch_lazily(self._client.status, train_job, patch)
        except NotFoundError as error:
            if not error.names_object:
                raise
            return  # it was deleted meanwhile
        except InvalidError as error:
            if not patches.is_stale(error):
                raise
            raise PendingError("another writer changed the conditions meanwhile") from error
        log_outcome(stored, train_job, job_set, self._now())

    def setup_with_manager(self, mgr: ctrl.Manager, options: controller.Options) -> None:
        """Register the controller with the watches of TrainJobs, of the runtimes' plugins and of obstacles."""
        builder = ctrl.new_controller_managed_by(mgr).named(NAME).with_options(options)
        # A reconcile that writes a status has finished all other work before.
        builder = builder.for_(TrainJob, predicates=[predicate.NotOwnWrite(), self.arrivals])
        for runtime in self._runtimes.values():
            for registrar in runtime.event_handler_registrars():
                builder = registrar(builder, mgr.client, mgr.cache)
        builder = wake.watch_obstacles(builder, mgr.client)
        builder.watches_raw_source(self.alarms).watches_raw_source(unbuilt_first(mgr.cache)).complete(self)


def _with_own_status(stored: TrainJob) -> TrainJob:
    """Return a copy of a TrainJob whose status may be changed; only the status is written."""
    train_job = stored.shallow_copy()
    # An assignment would mark an absent status as set.
    train_job.put("status", stored.status.deep_copy())
    return train_job


def _wire(status: TrainJobStatus) -> dict[str, object]:
    return {key: value for key, value in status.to_dict().items() if value != []}


async def _attempt(errors: list[Exception], step: Awaitable[None]) -> None:
    """Await ``step`` and collect its error, so that the following steps still run.

    Plugins are third-party code and may raise anything. :func:`_result` raises the collected errors.
    """
    try:
        await step
    except cancellation.FAILURES as error:
        errors.append(cancellation.as_error(error))
    finally:
        del (
            errors
        )  # the error's traceback has this frame: neither would be freed before the next garbage collection


def _result(errors: list[Exception], left: timedelta | None = None) -> ctrl.Result:
    """Return the time of the next reconcile, at the latest after ``left``; raise the errors but PendingErrors.

    ``errors`` is empty if one is raised: its traceback refers to the frames, and they to ``errors``.
    """
    failed = [error for error in errors if not isinstance(error, PendingError)]
    if len(failed) == 1:
        errors.clear()
        raise failed.pop()
    if failed:
        raise ExceptionGroup("\n".join(dict.fromkeys(map(raised.text, failed))), failed)
    for pending in errors:
        if isinstance(pending, PendingError):
            log.logger_from().debug("Waiting", reason=str(pending))
            return ctrl.Result(requeue_after=pending.after if left is None else min(pending.after, left))
    return ctrl.Result(requeue_after=left)
