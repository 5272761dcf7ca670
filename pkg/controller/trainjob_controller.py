# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainJob controller: applies a TrainJob's children and writes its status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import controller_runtime as ctrl
from controller_runtime import cache, client, event, handler, log, predicate, source
from controller_runtime.apis.meta.v1 import Condition, ObjectMeta
from controller_runtime.cache import CacheDegradedError, CacheError, UndecodableObjectError
from controller_runtime.machinery import NamespacedName, Object, conditions, raised
from controller_runtime.machinery.errors import ForbiddenError, InvalidError, NotFoundError, StatusError
from controller_runtime.machinery.meta import parse_time
from controller_runtime.recorder import EventRecorder
from controller_runtime.rest import AnswerError, RestError, TransportError

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.apply.drift import Wire
from pkg.constants import trainer as constants
from pkg.runtime import Runtime, indexer, runtime_ref_to_runtime_registry_key
from pkg.runtime.framework import InvalidFieldError, UnavailableError
from pkg.util import deadlines, trainjob
from pkg.util.trainjob import ChildConflictError

from . import reports
from .applier import Applier, Memories, Outcome, PendingError, raise_if_stale, replace_status
from .children import Applied, Children, JobSetState, state_of

if TYPE_CHECKING:
    from controller_runtime import controller

NAME: Final = "trainjob_controller"
EVENT_SOURCE: Final = "trainer-trainjob-controller"

_EVENT_REASON: Final = "TrainJobResourcesCreationFailed"
_EVENT_MESSAGE: Final = "TrainJob resources reconciliation failed: {}"
_EVENT_ERROR_LIMIT: Final = 950
_WHILE_A_NAME_IS_TAKEN: Final = timedelta(seconds=60)
"""Maximum time between two attempts while another object has the name of a child.

The deletion of that object may not enqueue the TrainJob.
"""

_APPEARED: Final = predicate.Funcs[Object](
    create=lambda evt: not evt.is_in_initial_list,  # every TrainJob is reconciled then
    update=lambda evt: evt.new_metadata.generation != evt.old_metadata.generation,
    delete=lambda _evt: False,
)
_GONE: Final = predicate.Funcs[JobSet](create=lambda _evt: False, update=lambda _evt: False)


# +kubebuilder:rbac:groups="",resources=events,verbs=create;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get;list;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/status,verbs=get;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/finalizers,verbs=get;update;patch


class TrainJobState(StrEnum):
    """The state of a TrainJob when it is reconciled. If several values apply, the state is the first of them."""

    DELETED = "Deleted"
    """It no longer exists."""
    FOREIGN = "Foreign"
    """It is being deleted, or ``managedBy`` names another controller."""
    FINISHED = "Finished"
    """It is Complete or Failed."""
    NAME_TAKEN = "NameTaken"
    """A JobSet with the TrainJob's name belongs to an earlier TrainJob or to another owner."""
    UNSUPPORTED = "Unsupported"
    """No runtime is registered for the kind that the TrainJob refers to."""
    EXPIRED = "Expired"
    """Its deadline has passed."""
    ACTIVE = "Active"
    """It has a JobSet or will get one, see :class:`.children.JobSetState`."""


_COUNTS: Final = {each: metrics.TRAIN_JOB_RECONCILES.labels(each) for each in (*TrainJobState, *JobSetState)}


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
        starts: reports.Starts | None = None,
        count_attempts: bool = False,
    ) -> None:
        """``count_attempts`` is the feature gate ExecutionAttempts."""
        self._client = client
        self._status_client = client.status
        self._recorder = recorder
        self._runtimes = runtimes
        self._now = now
        self._memories = Memories()
        applier = Applier(client, self._memories, reader)
        self._children = Children(
            client, applier, recorder, now, self._memories, count_attempts=count_attempts
        )
        self._starts = starts
        self._phases = metrics.TrainJobPhases()
        self.remark = applier.remark
        self.timer = Timer()

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:  # noqa: C901  # the life of a TrainJob, in order
        """Bring one TrainJob's children and status up to date. If a step fails, the next steps still run.

        Raises:
            ExceptionGroup: several steps failed. All other steps have run.
            Exception: one step failed. All other steps have run.
        """
        try:
            stored = await self._client.get(TrainJob, request)
        except NotFoundError:
            _count(TrainJobState.DELETED)
            self._phases.forget(request)
            self._forget(request)
            return ctrl.Result()
        except UndecodableObjectError as error:
            metadata = ObjectMeta(namespace=request.namespace, name=request.name, uid=error.uid)
            self._report(TrainJob(metadata=metadata), [error])
            raise
        if stored.metadata.deletion_timestamp is not None or not trainjob.is_ours(stored):
            _count(TrainJobState.FOREIGN)
            self._forget(request)
            return ctrl.Result()
        if self._starts is not None:
            self._starts.observe(stored, failing=True)  # until this reconcile has ended

        # The status is changed in a copy. An assignment would mark an absent status as set.
        train_job = stored.shallow_copy()
        train_job.set_unchecked("status", trainjob.own_status(stored.status))
        key = runtime_ref_to_runtime_registry_key(stored.spec.runtime_ref)
        runtime = self._runtimes.get(key)
        finished = trainjob.is_finished(stored)
        left = None if finished else trainjob.time_left(stored, self._now())
        expired = trainjob.has_passed(left)
        errors: list[Exception] = []
        job_set: JobSet | None = None
        name_taken = False
        try:
            job_set = await self._children.job_set(stored)
        except (ChildConflictError, PendingError) as error:
            name_taken = True
            if not finished:
                errors.append(error)
        except (StatusError, RestError, CacheError) as error:
            if not (finished or expired or runtime is None):  # otherwise no child is written
                errors.append(error)

        if finished:
            _count(TrainJobState.FINISHED)
            if runtime is not None and not name_taken:
                with _Collect(errors):
                    await self._read_status(runtime, train_job, job_set, errors)
        elif name_taken:
            # The status of that JobSet must not be copied to the TrainJob. If the JobSet belongs to an earlier TrainJob
            # of the same name, the garbage collector will delete it.
            _count(TrainJobState.NAME_TAKEN)
            self._report(stored, errors)
            set_suspended(train_job, self._now)
            if expired:
                set_deadline_exceeded(train_job, self._now)
        elif runtime is None:
            _count(TrainJobState.UNSUPPORTED)
            message = f"unsupported runtime: {key}"
            reason = trainer.TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON
            _set(train_job, trainer.TRAIN_JOB_FAILED, "True", reason, message, self._now)
        else:
            state = None if job_set is None else state_of(stored, job_set)
            _count(TrainJobState.EXPIRED if expired else state or TrainJobState.ACTIVE)
            if train_job.status.conditions:  # Failed with another reason would be finished
                conditions.remove(train_job.status.conditions, trainer.TRAIN_JOB_FAILED)
            if not errors and (job_set is not None or not expired):  # an expired TrainJob gets no JobSet
                with _Collect(errors):
                    applied = await self._children.reconcile(runtime, train_job, job_set, state)
                    self._record(train_job, applied)
            if errors:
                self._report(train_job, errors)
            if job_set is not None and train_job.spec.suspend and any(map(_may_last, errors)):
                with _Collect(errors):
                    await self._children.suspend(train_job)
            set_unavailable(train_job, errors, self._now)
            if job_set is not None:  # without pods, no gang waits
                with _Collect(errors):
                    await self._children.reports.gang(runtime, train_job)
            with _Collect(errors):
                # Even if the deadline has passed: the JobSet may have ended in time.
                await self._read_status(runtime, train_job, job_set, errors, may_be_missing=expired)
            if expired and not trainjob.is_finished(train_job):
                set_deadline_exceeded(train_job, self._now)
        with _Collect(errors):
            await self._write_status(stored, train_job, job_set)
        if (finished or expired) and trainjob.deadline_exceeded(train_job):  # an orphan was adopted before
            with _Collect(errors):
                await self._children.delete(train_job)
        return self._conclude(request, train_job, errors, left)

    def _conclude(
        self,
        request: ctrl.Request,
        train_job: TrainJob,
        errors: list[Exception],
        left: timedelta | None,
    ) -> ctrl.Result:
        """Raise all errors except PendingErrors; if there are none, return the delay until the next reconcile.

        The delay is at most ``left``, the time until the deadline.
        """
        failed: list[Exception] = []
        pending: PendingError | None = None
        if errors:
            failed = [error for error in errors if not isinstance(error, PendingError)]
            pending = next((error for error in errors if isinstance(error, PendingError)), None)
            errors.clear()  # the errors' tracebacks refer to the list
        self._phases.observe(train_job)
        if self._starts is not None:
            self._starts.observe(train_job, failing=bool(failed))
        if trainjob.is_finished(train_job):
            self._forget(request)
            left = None
        elif failed and any(isinstance(error, ChildConflictError) for error in failed):
            self.timer.set(request, _WHILE_A_NAME_IS_TAKEN)
        if left is not None and (failed or pending is not None or left > deadlines.LONGEST_WAIT):
            self.timer.set(request, min(left, deadlines.LONGEST_WAIT))
        if len(failed) == 1:
            raise failed.pop()
        if failed:
            raise ExceptionGroup("\n".join(dict.fromkeys(map(raised.text, failed))), failed)
        if pending is None:
            return ctrl.Result(requeue_after=left)
        log.logger_from().debug("Waiting", reason=str(pending))
        return ctrl.Result(requeue_after=pending.after if left is None else min(pending.after, left))

    def _record(self, train_job: TrainJob, applied: Applied) -> None:
        """Count and log what was applied. The time counts from the watch event or, after a restart, the creation."""
        memory = self._memories[train_job.key]
        for obj, outcome in applied:
            if outcome is Outcome.HEALED:
                metrics.DRIFT_HEALED.labels(obj.gvk.kind).inc()
            elif outcome is Outcome.CREATED and isinstance(obj, JobSet):
                since, memory.arrived = memory.arrived, None
                if since is None:
                    created = train_job.metadata.creation_timestamp
                    since = parse_time(created) if created else self._now()
                metrics.TIME_TO_CHILDREN.observe(max(0.0, (self._now() - since).total_seconds()))
                reports.log_created(train_job, self._now())

    async def _read_status(
        self,
        runtime: Runtime,
        train_job: TrainJob,
        job_set: JobSet | None,
        errors: list[Exception],
        *,
        may_be_missing: bool = False,
    ) -> None:
        """Set the conditions and counts from the children. An orphaned JobSet is used only after it was adopted."""
        finished = trainjob.is_finished(train_job)
        set_suspended(train_job, self._now)
        orphan = job_set is not None and trainjob.controller_of(job_set) is None
        if orphan and (finished or errors):
            return
        try:
            status = await runtime.train_job_status(train_job)
        except (NotFoundError, CacheDegradedError):
            waits = any(isinstance(error, PendingError) for error in errors)
            if not (finished or waits or may_be_missing):
                raise
            return  # a finished TrainJob keeps its status when its children are deleted
        if status is None:
            return
        old, ends = train_job.status.conditions, (trainer.TRAIN_JOB_COMPLETE, trainer.TRAIN_JOB_FAILED)
        if status.conditions and any(conditions.is_true(old, end) for end in ends):
            for end in ends:  # a TrainJob that is Complete does not become Failed, nor the other way round
                if not conditions.is_true(old, end):
                    conditions.remove(status.conditions, end)
        train_job.status = status

    async def _write_status(self, stored: TrainJob, train_job: TrainJob, job_set: JobSet | None) -> None:
        if train_job.status == stored.status:
            return
        old, new = stored.status.to_dict(), _without_empty_lists(train_job.status.to_dict())
        if _without_empty_lists(old) == new:
            return
        try:
            patch = replace_status(stored, old, new)
            await client.patch_lazily(self._status_client, train_job, patch)
        except NotFoundError as error:
            if not error.names_object:
                raise
            return  # it was deleted meanwhile
        except InvalidError as error:
            raise_if_stale(error, "another writer changed the conditions meanwhile")
            raise
        reports.log_outcome(stored, train_job, job_set, self._now())

    def _report(self, train_job: TrainJob, errors: list[Exception]) -> None:
        """Record an event for each error except PendingErrors."""
        for error in errors:
            if isinstance(error, PendingError):
                continue
            text = raised.text(error)
            message = _EVENT_MESSAGE.format(text[:_EVENT_ERROR_LIMIT])
            if len(text) > _EVENT_ERROR_LIMIT:
                message += " ..."
            self._recorder.event(train_job, "Warning", _EVENT_REASON, message)

    def _forget(self, request: ctrl.Request) -> None:
        """Forget a TrainJob whose children are no longer reconciled."""
        self._memories.pop(request, None)
        if self._starts is not None:
            self._starts.forget(request)

    def arrives(self, evt: event.CreateEvent[TrainJob]) -> bool:
        """Record the arrival of a TrainJob, because creation timestamps have only whole seconds. Return True."""
        if not evt.is_in_initial_list:
            self._memories[evt.key].arrived = self._now()
        return True

    def setup_with_manager(self, mgr: ctrl.Manager, options: controller.Options) -> None:
        """Register the controller and its watches.

        The controller watches TrainJobs, the objects of the plugins, and objects for which TrainJobs may wait: runtimes
        that appear or change, and JobSets that are deleted.
        """
        builder = ctrl.new_controller_managed_by(mgr).named(NAME).with_options(options)
        # Our own writes need no reconcile: a reconcile that writes the status also does all other work.
        builder = builder.for_(
            TrainJob, predicates=[predicate.NotOwnWrite(), predicate.Funcs(create=self.arrives)]
        )
        for runtime in self._runtimes.values():
            for registrar in runtime.event_handler_registrars():
                builder = registrar(builder, mgr.client, mgr.cache)
        for kind, index in indexer.TRAIN_JOBS_OF.items():
            followers = enqueue_followers(mgr.client, index)
            builder = builder.watches(kind, followers, predicates=[_APPEARED])
        builder = builder.watches(JobSet, enqueue_name_waiter(mgr.client), predicates=[_GONE])
        builder = builder.watches_raw_source(self.timer)
        builder.watches_raw_source(without_job_set_first(mgr.cache)).complete(self)


def _count(state: TrainJobState | JobSetState) -> None:
    log.logger_from().debug("Reconciling TrainJob", state=str(state))
    _COUNTS[state].inc()


class _Collect:
    """Appends the error of the body to ``errors``, so that the following steps still run.

    Plugins are third-party code and may raise anything. A generator would leave the error to the garbage collection:
    since Python 3.13, its frame, to which the traceback refers, refers to the frame that throws the error into it.
    """

    __slots__ = ("_errors",)

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, raised.FAILURES):
            return False
        self._errors.append(raised.as_error(error))
        return True


def _may_last(error: Exception) -> bool:
    """Return True if an error may also occur in the next attempt."""
    if isinstance(error, PendingError):
        return isinstance(error.__cause__, ForbiddenError | trainjob.PredecessorError)
    return not isinstance(error, TransportError) or isinstance(error, AnswerError)


def _without_empty_lists(status: Wire) -> Wire:
    return {key: value for key, value in status.items() if value != []}


def set_deadline_exceeded(train_job: TrainJob, now: Callable[[], datetime]) -> None:
    """Set the condition Failed, because the deadline has passed."""
    reason, message = (
        trainer.TRAIN_JOB_DEADLINE_EXCEEDED_REASON,
        constants.TRAIN_JOB_DEADLINE_EXCEEDED_MESSAGE,
    )
    _set(train_job, trainer.TRAIN_JOB_FAILED, "True", reason, message, now)


def set_unavailable(train_job: TrainJob, errors: list[Exception], now: Callable[[], datetime]) -> None:
    """Set the conditions that say why no pod can run, or remove them.

    GangSchedulingUnavailable is set if an error is an UnavailableError, and SpecInvalid for an InvalidFieldError.
    """
    left = {trainer.TRAIN_JOB_GANG_UNAVAILABLE, trainer.TRAIN_JOB_SPEC_INVALID}
    for error in errors:
        if isinstance(error, UnavailableError):
            kind, reason = trainer.TRAIN_JOB_GANG_UNAVAILABLE, error.reason
        elif isinstance(error, InvalidFieldError):
            kind, reason = trainer.TRAIN_JOB_SPEC_INVALID, trainer.TRAIN_JOB_INVALID_FIELD_REASON
        else:
            continue
        if kind in left:  # the first error of a kind counts
            left.discard(kind)
            _set(train_job, kind, "True", reason, str(error), now)
    if train_job.status.conditions:
        for kind in left:
            conditions.remove(train_job.status.conditions, kind)


def set_suspended(train_job: TrainJob, now: Callable[[], datetime]) -> None:
    """Set the condition Suspended to the value of ``spec.suspend``.

    A TrainJob that was never suspended does not get the condition.
    """
    kind = trainer.TRAIN_JOB_SUSPENDED
    if train_job.spec.suspend:
        reason, message = trainer.TRAIN_JOB_SUSPENDED_REASON, constants.TRAIN_JOB_SUSPENDED_MESSAGE
        _set(train_job, kind, "True", reason, message, now)
    elif conditions.is_true(train_job.status.conditions, trainer.TRAIN_JOB_SUSPENDED):
        reason, message = trainer.TRAIN_JOB_RESUMED_REASON, constants.TRAIN_JOB_RESUMED_MESSAGE
        _set(train_job, kind, "False", reason, message, now)


def _set(
    train_job: TrainJob, kind: str, status: str, reason: str, message: str, now: Callable[[], datetime]
) -> None:
    if train_job.status.conditions is None:
        train_job.status.conditions = []
    new = Condition(type=kind, status=status, reason=reason, message=message)
    conditions.set_status_condition(train_job.status.conditions, new, now)


class Timer(source.Source):
    """Enqueues TrainJobs after a given time.

    A failing TrainJob does not have to wait for its next retry, which may be minutes away. A TrainJob whose deadline is
    far away is looked at again before the deadline: see :data:`.deadlines.LONGEST_WAIT`.
    """

    def __init__(self) -> None:
        self._queue: handler.Queue | None = None

    def __str__(self) -> str:
        return "deadlines of TrainJobs"

    async def start(self, queue: handler.Queue) -> None:
        """Take the queue of the controller."""
        self._queue = queue

    def set(self, request: ctrl.Request, left: timedelta) -> None:
        """Enqueue the TrainJob after the time ``left``, unless another event enqueues it earlier."""
        if self._queue is not None and left > timedelta():
            self._queue.add(request, after=left.total_seconds())


def enqueue_followers(reader: client.Reader, index: str) -> handler.Funcs[Object]:
    """Return the handler that enqueues the TrainJobs that still follow their runtime.

    The TrainJobs are found through ``index``. A TrainJob follows its runtime while it has no JobSet or its JobSet is
    suspended. Suspended TrainJobs get a low priority, because thousands of them may wait in a queue of Kueue. Other
    TrainJobs have the normal priority, because they may be waiting for the runtime.
    """

    async def wake(evt: event.CreateEvent[Object] | event.UpdateEvent[Object], queue: handler.Queue) -> None:
        key = evt.key
        for job in await reader.list(TrainJob, namespace=key.namespace, fields={index: key.name}):
            try:
                follows = bool((await client.peek(reader, JobSet, job.key)).object.spec.suspend)
            except (NotFoundError, CacheError):
                follows = True  # the reconcile reports an unreadable JobSet; the other TrainJobs still wake
            if follows:
                priority = handler.LOW_PRIORITY if job.spec.suspend else None
                queue.add(ctrl.Request.for_object(job), priority=priority)

    return handler.Funcs(create=wake, update=wake)


def enqueue_name_waiter(reader: client.Reader) -> handler.Funcs[JobSet]:
    """Return the handler that enqueues a TrainJob when the JobSet that occupied its name is deleted."""

    async def wake(evt: event.DeleteEvent[JobSet], queue: handler.Queue) -> None:
        owner = trainjob.controller_of(evt.object)
        if owner is not None and (owner.kind, owner.name) == (TrainJob.gvk.kind, evt.object.name):
            return  # its owner is enqueued anyway
        try:
            await client.peek(reader, TrainJob, evt.object.key)
        except NotFoundError:
            return
        queue.add(ctrl.Request.for_object(evt.object))

    return handler.Funcs(delete=wake)


def without_job_set_first(informers: source.Informers) -> source.Prioritized:
    """Return the source that moves TrainJobs without a JobSet to the front of the queue when the manager starts.

    Such TrainJobs were created while no manager ran. Most other TrainJobs need no work.
    """

    def lacks_job_set(_jobs: cache.Informer[TrainJob], sets: cache.Informer[JobSet]) -> source.NeedsWork:
        async def lacks(key: NamespacedName) -> bool:
            return not sets.has(key)  # which decodes no object

        return lacks

    return source.Prioritized(informers, TrainJob, lacks_job_set, JobSet, name="TrainJobs without a JobSet")
