# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainJob controller: applies a TrainJob's children and writes its status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import controller_runtime as ctrl
from controller_runtime import cache, client, event, handler, log, predicate, source
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import CacheDegradedError, CacheError, UndecodableObjectError
from controller_runtime.machinery import NamespacedName, Object, raised
from controller_runtime.machinery.errors import InvalidError, NotFoundError, StatusError
from controller_runtime.machinery.meta import parse_time
from controller_runtime.recorder import EventRecorder
from controller_runtime.rest import RestError

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob, TrainJobStatus
from pkg.runtime import Runtime, indexer, runtime_ref_to_runtime_registry_key
from pkg.util import trainjob
from pkg.util.trainjob import ChildConflictError

from . import jobconditions, reports, writes
from .applier import Applier, Outcome
from .children import Children, JobSetState, state_of
from .memory import Memories
from .starts import Starts
from .writes import PendingError

if TYPE_CHECKING:
    from controller_runtime import controller
    from controller_runtime.builder import Builder

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


class State(StrEnum):
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


@dataclass(slots=True)
class _Pass:
    """The data that the steps of one reconcile of a TrainJob share."""

    stored: TrainJob
    train_job: TrainJob
    """The TrainJob with the status that is to be written."""
    runtime: Runtime | None
    job_set: JobSet | None = None
    obstacle: Exception | None = None
    """The error that says why the JobSet cannot be used: another owner controls it, or it cannot be read."""
    left: timedelta | None = None
    """The time until the deadline of an unfinished TrainJob."""
    errors: list[Exception] = field(default_factory=list)

    def raise_obstacle(self) -> None:
        """Raise the error in ``obstacle``, if there is one, and clear the field.

        The error's traceback refers to frames that refer to this object, so keeping the error would make a reference
        cycle.
        """
        try:
            if self.obstacle is not None:
                raise self.obstacle
        finally:
            self.obstacle = None


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
        starts: Starts | None = None,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._runtimes = runtimes
        self._now = now
        self._memories = Memories()
        applier = Applier(client, self._memories, reader)
        self._children = Children(client, applier, recorder, now, self._memories)
        self._starts = starts
        self._phases = metrics.TrainJobPhases()
        self.remark = applier.remark
        self.timer = Timer()
        self._steps: Final[Mapping[State, tuple[Callable[[_Pass], Awaitable[None]], ...]]] = {
            State.FINISHED: (self._read_status, self._write_status, self._delete_expired),
            State.NAME_TAKEN: (self._report_taken_name, self._fail_expired, self._write_status),
            State.UNSUPPORTED: (self._fail_unsupported, self._write_status),
            State.EXPIRED: (
                self._reconcile_children,  # only if it has a JobSet: an orphaned one is adopted and deleted later
                self._read_status,  # the JobSet may have ended in time
                self._fail_expired,
                self._write_status,
                self._delete_expired,
            ),
            State.ACTIVE: (self._reconcile_children, self._read_status, self._write_status),
        }
        """The steps of each state except Deleted and Foreign. If a step raises an error, the next steps still run."""

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        """Bring one TrainJob's children and status up to date.

        Raises:
            ExceptionGroup: several steps failed. All other steps have run.
            Exception: one step failed. All other steps have run.
        """
        try:
            stored = await self._get(request)
        except NotFoundError:
            _count(State.DELETED)
            self._phases.forget(request)
            self._forget(request)
            return ctrl.Result()
        if stored.metadata.deletion_timestamp is not None or not trainjob.is_ours(stored):
            _count(State.FOREIGN)
            self._forget(request)
            return ctrl.Result()
        self._observe(stored, failing=True)  # until this reconcile has ended
        this = await self._begin(stored)
        state = _state_of(this)
        _count(state if state is not State.ACTIVE or this.job_set is None else state_of(stored, this.job_set))
        for step in self._steps[state]:
            await _attempt(this, step(this))
        return self._conclude(request, this)

    async def _begin(self, stored: TrainJob) -> _Pass:
        """Read the JobSet and compute the time until the deadline. Both determine the state of the TrainJob."""
        key = runtime_ref_to_runtime_registry_key(stored.spec.runtime_ref)
        this = _Pass(stored, _with_own_status(stored), self._runtimes.get(key))
        try:
            this.job_set = await self._children.job_set(stored)
        except (ChildConflictError, PendingError, StatusError, RestError, CacheError) as error:
            this.obstacle = error
        if not trainjob.is_finished(stored):
            this.left = jobconditions.time_left(stored, self._now())
        return this

    def _conclude(self, request: ctrl.Request, this: _Pass) -> ctrl.Result:
        """Raise the errors of the steps, or return the delay after which the TrainJob is reconciled again."""
        errors, left = this.errors, this.left
        this.errors, this.obstacle = [], None
        finished = trainjob.is_finished(this.train_job)
        self._observe(this.train_job, failing=any(not isinstance(each, PendingError) for each in errors))
        if finished:
            self._forget(request)
            left = None
        elif any(isinstance(each, ChildConflictError) for each in errors):
            self.timer.set(request, _WHILE_A_NAME_IS_TAKEN)
        if errors and left is not None:
            self.timer.set(request, left)
        return _result(errors, left)

    async def _report_taken_name(self, this: _Pass) -> None:
        """Set the condition Suspended, and raise the error in ``obstacle``.

        The status of the JobSet with the TrainJob's name must not be copied to the TrainJob. If the JobSet belongs to
        an earlier TrainJob of the same name, the garbage collector will delete it. Meanwhile the condition Suspended
        and the deadline are handled as for any other TrainJob.
        """
        jobconditions.set_suspended(this.train_job, self._now)
        if this.obstacle is not None and not isinstance(this.obstacle, PendingError):
            self._report(this.stored, this.obstacle)
        this.raise_obstacle()

    async def _fail_unsupported(self, this: _Pass) -> None:
        key = runtime_ref_to_runtime_registry_key(this.stored.spec.runtime_ref)
        jobconditions.set_unsupported(this.train_job, key, self._now)

    async def _fail_expired(self, this: _Pass) -> None:
        if jobconditions.has_passed(this.left) and not trainjob.is_finished(this.train_job):
            jobconditions.set_deadline_exceeded(this.train_job, self._now)

    async def _reconcile_children(self, this: _Pass) -> None:
        """Apply the children.

        If they cannot be applied or their gang waits, report the reason in conditions and events.
        """
        train_job, runtime = this.train_job, this.runtime
        if runtime is None:
            return
        jobconditions.clear_unsupported(train_job)
        if this.job_set is not None or not jobconditions.has_passed(this.left):
            await _attempt(this, self._apply(this, runtime))
        for error in this.errors:
            if not isinstance(error, PendingError):
                self._report(train_job, error)
        jobconditions.set_unavailable(train_job, this.errors, self._now)
        await self._children.reports.gang(runtime, train_job)

    async def _apply(self, this: _Pass, runtime: Runtime) -> None:
        this.raise_obstacle()
        train_job = this.train_job
        for obj, outcome in await self._children.reconcile(runtime, train_job, this.job_set):
            if outcome is Outcome.HEALED:
                metrics.DRIFT_HEALED.labels(obj.gvk.kind).inc()
            elif outcome is Outcome.CREATED and isinstance(obj, JobSet):
                metrics.TIME_TO_CHILDREN.observe(self._since_arrival(train_job))
                reports.log_created(train_job, self._now())

    async def _read_status(self, this: _Pass) -> None:
        """Set the conditions and counts from the children. An orphaned JobSet is used only after it was adopted."""
        train_job, finished = this.train_job, trainjob.is_finished(this.train_job)
        if this.runtime is None or (finished and _is_taken(this.obstacle)):
            return
        jobconditions.set_suspended(train_job, self._now)
        orphan = this.job_set is not None and trainjob.controller_of(this.job_set) is None
        if orphan and (finished or this.errors):
            return
        pending = any(isinstance(error, PendingError) for error in this.errors)
        try:
            status = await this.runtime.train_job_status(train_job)
        except (NotFoundError, CacheDegradedError):
            if not (finished or pending or jobconditions.has_passed(this.left)):
                raise
            return  # a finished TrainJob keeps its status when its children are deleted
        if status is not None:
            jobconditions.keep_outcome(train_job, status)
            train_job.status = status

    async def _write_status(self, this: _Pass) -> None:
        stored, train_job = this.stored, this.train_job
        old, new = _wire(stored.status), _wire(train_job.status)
        if old == new:
            return
        try:
            patch = writes.replace_status(stored, stored.status.to_dict(), new)
            await client.patch_lazily(self._client.status, train_job, patch)
        except NotFoundError as error:
            if not error.names_object:
                raise
            return  # it was deleted meanwhile
        except InvalidError as error:
            writes.raise_if_stale(error, "another writer changed the conditions meanwhile")
            raise
        reports.log_outcome(stored, train_job, this.job_set, self._now())

    async def _delete_expired(self, this: _Pass) -> None:
        if trainjob.deadline_exceeded(this.train_job):
            await self._children.delete(this.train_job)

    async def _get(self, request: ctrl.Request) -> TrainJob:
        """Return the TrainJob. If the TrainJob cannot be decoded, record an event and raise the error."""
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

    def _observe(self, train_job: TrainJob, *, failing: bool) -> None:
        self._phases.observe(train_job)
        if self._starts is not None:
            self._starts.observe(train_job, failing=failing)

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

    def _since_arrival(self, train_job: TrainJob) -> float:
        """Return the seconds since the watch delivered a TrainJob.

        If the TrainJob is older than this process, return the seconds since its creation.
        """
        memory, created = self._memories[train_job.key], train_job.metadata.creation_timestamp
        since, memory.arrived = memory.arrived, None
        if since is None and created:
            since = parse_time(created)
        return max(0.0, (self._now() - since).total_seconds()) if since is not None else 0.0

    def setup_with_manager(self, mgr: ctrl.Manager, options: controller.Options) -> None:
        """Register the controller and its watches.

        The controller watches TrainJobs, the objects of the plugins, and objects for which TrainJobs may wait.
        """
        builder = ctrl.new_controller_managed_by(mgr).named(NAME).with_options(options)
        # Our own writes need no reconcile: a reconcile that writes the status also does all other work.
        builder = builder.for_(
            TrainJob, predicates=[predicate.NotOwnWrite(), predicate.Funcs(create=self.arrives)]
        )
        for runtime in self._runtimes.values():
            for registrar in runtime.event_handler_registrars():
                builder = registrar(builder, mgr.client, mgr.cache)
        builder = _watch_obstacles(builder, mgr.client).watches_raw_source(self.timer)
        builder.watches_raw_source(without_job_set_first(mgr.cache)).complete(self)


def _state_of(this: _Pass) -> State:
    if trainjob.is_finished(this.stored):
        return State.FINISHED
    if _is_taken(this.obstacle):
        return State.NAME_TAKEN
    if this.runtime is None:
        return State.UNSUPPORTED
    return State.EXPIRED if jobconditions.has_passed(this.left) else State.ACTIVE


_COUNTS: Final = {each: metrics.TRAIN_JOB_RECONCILES.labels(each) for each in (*State, *JobSetState)}


def _count(state: State | JobSetState) -> None:
    log.logger_from().debug("Reconciling TrainJob", state=str(state))
    _COUNTS[state].inc()


def _is_taken(obstacle: Exception | None) -> bool:
    return isinstance(obstacle, ChildConflictError | PendingError)


def _with_own_status(stored: TrainJob) -> TrainJob:
    """Return a copy of a TrainJob. The caller may change the copy's status; no other field will be written."""
    train_job = stored.shallow_copy()
    # An assignment would mark an absent status as set.
    train_job.set_unchecked("status", stored.status.deep_copy())
    return train_job


def _wire(status: TrainJobStatus) -> dict[str, object]:
    return {key: value for key, value in status.to_dict().items() if value != []}


async def _attempt(this: _Pass, step: Awaitable[None]) -> None:
    """Await ``step`` and collect its error, so that the following steps still run.

    Plugins are third-party code and may raise anything. :func:`_result` raises the collected errors.
    """
    try:
        await step
    except raised.FAILURES as error:
        this.errors.append(raised.as_error(error))


def _result(errors: list[Exception], left: timedelta | None) -> ctrl.Result:
    """Raise all errors except PendingErrors; if there are none, return the delay until the next reconcile.

    The delay is at most ``left``. A single error is raised after ``errors`` is cleared: its traceback refers to frames
    that refer to ``errors``, which would make a reference cycle.
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


class Timer(source.Source):
    """Enqueues TrainJobs after a given time.

    A failing TrainJob does not have to wait for its next retry, which may be minutes away.
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


def _watch_obstacles(builder: Builder, reader: client.Reader) -> Builder:
    """Watch the objects that TrainJobs may wait for: runtimes that appear or change, and JobSets that are deleted."""
    for kind, index in (
        (TrainingRuntime, indexer.TRAIN_JOB_RUNTIME_REF_KEY),
        (ClusterTrainingRuntime, indexer.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY),
    ):
        builder = builder.watches(kind, enqueue_followers(reader, index), predicates=[_APPEARED])
    return builder.watches(JobSet, enqueue_name_waiter(reader), predicates=[_GONE])


def enqueue_followers(reader: client.Reader, index: str) -> handler.Funcs[Object]:
    """Return the handler that enqueues the TrainJobs that still follow their runtime.

    The TrainJobs are found through ``index``. A TrainJob follows its runtime while it has no JobSet or its JobSet is
    suspended. Suspended TrainJobs get a low priority, because thousands of them may wait in a queue of Kueue. Other
    TrainJobs have the normal priority, because they may be waiting for the runtime.
    """

    async def wake(evt: event.CreateEvent[Object] | event.UpdateEvent[Object], queue: handler.Queue) -> None:
        key = evt.key
        for job in await reader.list(TrainJob, namespace=key.namespace, fields={index: key.name}):
            if await _follows(reader, job):
                priority = handler.LOW_PRIORITY if job.spec.suspend else None
                queue.add(ctrl.Request.for_object(job), priority=priority)

    return handler.Funcs(create=wake, update=wake)


async def _follows(reader: client.Reader, job: TrainJob) -> bool:
    try:
        return bool((await client.peek(reader, JobSet, job.key)).object.spec.suspend)
    except (
        NotFoundError,
        CacheError,
    ):  # the reconcile reports an unreadable JobSet; the other TrainJobs still wake
        return True


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


def without_job_set_first(informers: source.Informers) -> source.Expedited:
    """Return the source that moves TrainJobs without a JobSet to the front of the queue when the manager starts.

    Such TrainJobs were created while no manager ran. Most other TrainJobs need no work.
    """
    return source.Expedited(informers, TrainJob, _lacks_job_set, JobSet, name="TrainJobs without a JobSet")


def _lacks_job_set(_jobs: cache.Informer[TrainJob], sets: cache.Informer[JobSet]) -> source.NeedsWork:
    """Return a function that returns True if no JobSet has the TrainJob's name. The function decodes no object."""

    async def lacks(key: NamespacedName) -> bool:
        return not sets.has(key)

    return lacks
