# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deletes finished TrainJobs after ``ttlSecondsAfterFinished``. Requires the feature gate ``TTLAfterFinished``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import controller_runtime as ctrl
from controller_runtime import client, handler, log, predicate
from controller_runtime.cache import UndecodableObjectError
from controller_runtime.machinery import raised
from controller_runtime.machinery.errors import ConflictError, ForbiddenError, NotFoundError, StatusError
from controller_runtime.machinery.meta import format_time
from controller_runtime.recorder import SourceRecorder
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import indexer, runtime_ref_to_runtime_registry_key
from pkg.util import deadlines, offload, trainjob

from . import applier as writes

if TYPE_CHECKING:
    from controller_runtime import controller

AnyRuntime = TrainingRuntime | ClusterTrainingRuntime
_RUNTIMES: Final = {str(kind.gvk.group_kind): kind for kind in indexer.TRAIN_JOBS_OF}
NAME: Final = "trainjob_ttl_controller"

_NOTICE: Final = timedelta(minutes=1)
"""The time before the deletion at which an event announces it."""
_EXPIRING: Final = "TrainJob will be deleted at {}, because {} is {} and it finished at {}"
_FAILED: Final = "TrainJob, which should be deleted since {}, cannot be deleted: {}"
_ERROR_LIMIT: Final = 800


# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=delete


class TTLAfterFinished:
    """Deletes each finished TrainJob when its time to live is over.

    The time counts from the transition of the condition Complete or Failed. It is the TrainJob's
    ``ttlSecondsAfterFinished`` or, without one, that of the runtime's ``runPolicy`` as it is now or, without one,
    ``default``. TrainJobs that another controller manages are kept, and so are TrainJobs that depend on a runtime that
    cannot be found: it may return with a longer time.

    Nothing is remembered: a new leader deletes what became due while no manager ran. If a clock has jumped and a
    TrainJob seems to have finished in the future, its deletion waits until the clock has caught up.
    """

    def __init__(
        self,
        client: client.Client,
        recorder: SourceRecorder,
        *,
        reader: client.Reader | None = None,
        default: int | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``reader`` reads from the API server, because the cache may not have the newest time to live yet."""
        self._client = client
        self._recorder = recorder
        self._reader = client if reader is None else reader
        self._default = default
        self._now = now

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        """Delete one TrainJob if it is due. Otherwise return the time until its announcement or deletion.

        The server deletes it only if it is still the version on which the decision is based.

        Raises:
            StatusError: the API server refused. If it refused the deletion, an event says so.
            RestError: the API server was unreachable.
            CacheError: the runtime cannot be read now.
        """
        try:
            train_job = await self._client.get(TrainJob, request)
            left = await self._time_left(train_job)
            if left is None or left > timedelta():
                return ctrl.Result(requeue_after=left)
            train_job = await self._reader.get(TrainJob, request)
            left = await self._time_left(train_job)
        except UndecodableObjectError:
            return ctrl.Result()  # the TrainJob controller reports it
        except NotFoundError as error:
            if not error.names_object:
                raise
            return ctrl.Result()
        if left is None or left > timedelta():
            return ctrl.Result(requeue_after=left)
        log.logger_from().info("Deleting the finished TrainJob")
        try:
            await writes.delete(self._client, train_job, "Foreground", unchanged=True)
        except ConflictError:
            return ctrl.Result(requeue_after=writes.SOON)
        except (StatusError, RestError) as error:
            if isinstance(error, NotFoundError) and error.names_object:
                return ctrl.Result()
            text = raised.text(error)[:_ERROR_LIMIT]
            if isinstance(error, ForbiddenError):
                text += ". The feature gate TTLAfterFinished needs the role in config/ttl-after-finished"
            due = format_time(self._now() + left)
            reason = constants.TRAIN_JOB_DELETION_FAILED_REASON
            self._recorder.event(train_job, "Warning", reason, _FAILED.format(due, text))
            raise
        return ctrl.Result()

    async def _time_left(self, train_job: TrainJob) -> timedelta | None:
        """Return how long to wait, or None if the TrainJob is kept. It is due if the time is not positive.

        In the last minute, announce the deletion.
        """
        finished, now = trainjob.finished_at(train_job), self._now()
        if finished is None or train_job.metadata.deletion_timestamp or not trainjob.is_ours(train_job):
            return None
        if (found := await self._ttl(train_job)) is None:
            return None
        ttl, source = found
        # Subtract first: the sum of a time and a long ttl may exceed the year 9999.
        left = finished - now + timedelta(seconds=ttl)
        if left > _NOTICE:
            return min(left - _NOTICE, deadlines.LONGEST_WAIT)
        if left > timedelta():
            due, since = format_time(finished + timedelta(seconds=ttl)), format_time(finished)
            message = _EXPIRING.format(due, source, ttl, since)
            self._recorder.event_once(
                train_job, "Normal", constants.TRAIN_JOB_EXPIRING_REASON, message, key=due
            )
        return left

    async def _ttl(self, train_job: TrainJob) -> tuple[int, str] | None:
        """Return the time to live in seconds and the name of the field that sets it, or None."""
        if train_job.spec.ttl_seconds_after_finished is not None:
            return trainjob.time_to_live(train_job)
        ref, runtime = train_job.spec.runtime_ref, None
        kind = _RUNTIMES.get(runtime_ref_to_runtime_registry_key(ref))
        if kind is not None:
            key = ctrl.Request(train_job.namespace if kind is TrainingRuntime else "", ref.name)
            try:
                runtime = await offload.decoded(await client.peek(self._client, kind, key))
            except NotFoundError as error:
                if not error.names_object:
                    raise
                return None
        found = trainjob.time_to_live(train_job, runtime)
        if found is None and self._default is not None:
            return self._default, "ttlSecondsAfterFinished of the manager's Configuration"
        return found

    async def _followers(self, runtime: AnyRuntime) -> list[ctrl.Request]:
        """Return the finished TrainJobs that refer to a runtime."""
        fields = {indexer.TRAIN_JOBS_OF[type(runtime)]: runtime.name}
        jobs = await self._client.list(TrainJob, namespace=runtime.namespace, fields=fields)
        return [ctrl.Request.for_object(job) for job in jobs if trainjob.is_finished(job)]

    def setup_with_manager(self, mgr: ctrl.Manager, options: controller.Options) -> None:
        """Register the controller. It watches finished TrainJobs, and runtimes, whose ``runPolicy`` may change."""
        builder = ctrl.new_controller_managed_by(mgr).named(NAME).with_options(options)
        builder = builder.for_(TrainJob, predicates=[predicate.from_object(trainjob.is_finished)])
        for kind in _RUNTIMES.values():
            followers = handler.enqueue_requests_from_map_func(self._followers)
            builder = builder.watches(kind, followers, predicates=[_POLICY_CHANGES])
        builder.complete(self)


_POLICY_CHANGES: Final = predicate.Funcs[AnyRuntime](
    create=lambda evt: not evt.is_in_initial_list,  # all finished TrainJobs are reconciled then
    update=lambda evt: (
        evt.old_metadata.generation != evt.new_metadata.generation
        and evt.old.spec.run_policy != evt.new.spec.run_policy
    ),
    delete=lambda _evt: False,
)
