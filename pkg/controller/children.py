# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reconciles a TrainJob's JobSet and its siblings (PodGroup, ConfigMap, Secret) as one unit.

While TrainJob and JobSet run, the JobSet is not changed, and its siblings are only restored. When the TrainJob is
suspended, its JobSet is suspended, too. A suspended JobSet is brought up to date with the TrainJob. It is changed in
place if JobSet permits the change; otherwise it is deleted and built again. The webhook records a suspension in an
annotation of the TrainJob (the note). If the note shows that the TrainJob was suspended and resumed while the JobSet
ran, the JobSet is suspended only if it would be built differently now. An existing JobSet gets the new spec first, and
then the siblings are changed. When a JobSet starts, its spec is always the spec that the current TrainJob requires.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NoReturn

import msgspec
from controller_runtime import client, log, offload
from controller_runtime.cache import CacheDegradedError
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from controller_runtime.machinery.meta import parse_time
from controller_runtime.recorder import EventRecorder
from controller_runtime.rest import AnswerError, TransportError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import Runtime, ancestor_of
from pkg.runtime.interface import IndependentConfigMap
from pkg.util import trainjob

from . import gangs, jobconditions, writes
from .applier import Applier, Outcome, at_version_of
from .drift import JobSetRule, Wire, content, covers, ended
from .memory import Memories
from .reports import Reports
from .writes import SOON, UNTIL_DELETED, BeingDeletedError, PendingError

_UNTIL_NAMESPACE_IS_GONE: Final = timedelta(seconds=60)
_UNTIL_OBSERVED: Final = timedelta(seconds=10)
_UNTIL_READABLE: Final = timedelta(seconds=30)
_EVENT_REASON: Final = "JobSetRecreating"
_NOT_FOLLOWED_REASON: Final = "JobSetNotFollowing"
_NOT_FOLLOWED: Final = (
    "JobSet {} runs with an earlier spec: the TrainJob or its runtime has changed since it started. To apply the "
    "change, suspend the TrainJob and resume it"
)

Built = tuple[JobSet | None, list[Object]]
"""A JobSet and its siblings."""
Applied = list[tuple[Object, Outcome]]


class JobSetState(StrEnum):
    """The state of the JobSet of an unfinished TrainJob. If several values apply, the state is the first of them."""

    BEING_DELETED = "BeingDeleted"
    ORPHAN = "Orphan"
    """It has no controller, and the labels of its jobs show that it was built for a TrainJob."""
    SUSPENDED = "Suspended"
    STOPPING = "Stopping"
    """It is not suspended, but its TrainJob is."""
    MOVING = "Moving"
    """The JobSet and its TrainJob are not suspended, but the TrainJob was suspended for a time while the JobSet ran."""
    RUNNING = "Running"
    """The JobSet and its TrainJob are not suspended, and the TrainJob was not suspended while the JobSet ran.

    An ended JobSet is also in this state or in ``MOVING``.
    """


class VolumesError(Exception):
    """A JobSet cannot be built again, because its volumes would be deleted with it."""

    needs_no_stack = True


def state_of(train_job: TrainJob, live: JobSet) -> JobSetState:
    """Return the state of the JobSet ``live`` of a TrainJob."""
    if live.metadata.deletion_timestamp is not None:
        return JobSetState.BEING_DELETED
    if trainjob.controller_of(live) is None:
        return JobSetState.ORPHAN
    if not ended(live):
        if live.spec.suspend:
            return JobSetState.SUSPENDED
        if train_job.spec.suspend:
            return JobSetState.STOPPING
    return JobSetState.RUNNING if trainjob.suspension_note(train_job) is None else JobSetState.MOVING


class Children:
    """Applies the objects of a TrainJob. The state of its JobSet determines the steps."""

    def __init__(
        self,
        client: client.Client,
        applier: Applier,
        recorder: EventRecorder,
        now: Callable[[], datetime],
        memories: Memories,
    ) -> None:
        self._client = client
        self._applier = applier
        self._recorder = recorder
        self._now = now
        self._memories = memories
        self.reports = Reports(client, recorder, now, memories)
        self._steps: Final[
            Mapping[JobSetState, Callable[[Runtime, TrainJob, JobSet], Awaitable[Applied]]]
        ] = {
            JobSetState.BEING_DELETED: self._await_deletion,
            JobSetState.ORPHAN: self._adopt,
            JobSetState.SUSPENDED: self._build,
            JobSetState.STOPPING: self._stop,
            JobSetState.MOVING: self._suspend_if_outdated,
            JobSetState.RUNNING: self._keep,
        }

    async def job_set(self, train_job: TrainJob) -> JobSet | None:
        """Return the JobSet that the TrainJob controls or may adopt, or None if no JobSet has the TrainJob's name.

        Raises:
            PendingError: an earlier TrainJob of the same name controls the JobSet.
            ChildConflictError: the TrainJob neither controls the JobSet nor may adopt it.
            StatusError, RestError, CacheError: the JobSet cannot be read.
        """
        try:
            live = await offload.decoded(await client.peek(self._client, JobSet, train_job.key))
        except NotFoundError:
            return None
        try:
            trainjob.require_control(live, trainjob.controller_reference(train_job))
        except trainjob.PredecessorError as error:
            if not trainjob.is_finished(train_job):
                self.reports.deletion(train_job, live)
            raise PendingError(str(error)) from error
        except trainjob.ChildConflictError:
            if not _is_orphan_of_ours(live):
                raise
        return live

    async def reconcile(self, runtime: Runtime, train_job: TrainJob, live: JobSet | None) -> Applied:
        """Apply the objects that differ, and return the outcomes. ``live`` is the result of :meth:`job_set`.

        Raises:
            PendingError: some children cannot be written yet.
            ChildConflictError: the TrainJob does not control an object with a child's name.
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        terminating = self._memories[train_job.key].terminating
        if terminating is not None and self._now() < terminating:
            raise PendingError("the namespace is being terminated", _UNTIL_NAMESPACE_IS_GONE)
        with self._pending(train_job):
            if live is None:
                return await self._build(runtime, train_job, None)
            return await self._steps[state_of(train_job, live)](runtime, train_job, live)

    async def _build(self, runtime: Runtime, train_job: TrainJob, live: JobSet | None) -> Applied:
        """Apply the objects of a TrainJob whose JobSet does not exist or is suspended.

        Raises:
            PendingError: the JobSet already runs, which the cache of a new leader may not show yet.
        """
        noted, seen = trainjob.suspension_note(train_job), self._memories[train_job.key].matched
        # This process reads its own writes, so only another one's may be missing in the cache.
        if noted and (JobSet.gvk, train_job.key) not in seen and await self._runs(train_job):
            raise PendingError(f"jobset {train_job.key}: the cache does not show yet that it runs")
        await self._remove_note(train_job)
        return await self._bring_up_to_date(runtime, train_job, live)

    async def _runs(self, train_job: TrainJob) -> bool:
        """Return True if the JobSet on the API server is not suspended."""
        try:
            return not (await self._applier.reader.get(JobSet, train_job.key)).spec.suspend
        except NotFoundError:
            return False

    async def _await_deletion(self, _runtime: Runtime, _train_job: TrainJob, live: JobSet) -> Applied:
        raise BeingDeletedError(live)

    async def _adopt(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> Applied:
        # The patch of the owners tests only the owners, so the deletion of the JobSet may have begun meanwhile.
        live = await self._take_control(runtime, train_job, live)
        state = state_of(train_job, live)
        if state in {JobSetState.MOVING, JobSetState.RUNNING}:  # _take_control compared its spec
            return await self._repair(runtime, train_job, live, adopted=True)
        return await self._steps[state](runtime, train_job, live)

    async def _stop(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> Applied:
        """Suspend the JobSet of a suspended TrainJob, and bring the objects of the TrainJob up to date.

        If the objects cannot be built or the server refuses them, suspend the JobSet without any other change, and
        raise the error.
        """
        try:
            return await self._bring_up_to_date(runtime, train_job, live)
        except Exception as error:
            soon = isinstance(error, PendingError | ConflictError | TransportError)
            if not soon or isinstance(error, AnswerError):
                # The next attempt may fail, too, and a queue may already count the TrainJob's pods as stopped.
                await self._suspend(train_job)
            raise

    async def _suspend_if_outdated(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> Applied:
        """If the JobSet would be built differently now, suspend it, because a running JobSet cannot be changed.

        Raises:
            PendingError: the JobSet is being suspended, or the TrainJob was suspended again or deleted.
        """
        newer = await self._newer(runtime, train_job, live)
        if newer is not None:
            log.logger_from().info(
                "Suspending the outdated JobSet, because its TrainJob was suspended", jobSet=str(live.key)
            )
            await self._suspend_as_it_is(live, newer)
        self._memories[train_job.key].compared = _version_of(train_job)
        await self._remove_note(train_job)
        return await self._repair(runtime, train_job, live)

    async def _keep(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> Applied:
        """Restore siblings. If the JobSet would be built differently now, record one event.

        The JobSet may be outdated even if no suspension is noted: a TrainJob can also be changed while it runs.
        """
        applied = await self._repair(runtime, train_job, live)
        version, memory = _version_of(train_job), self._memories[train_job.key]
        if version[1] > 1 and memory.compared != version:
            try:
                newer = await self._newer(runtime, train_job, live)
            except StatusError as error:  # the job runs on, so its next reconcile may compare
                log.logger_from().debug("JobSet cannot be compared", jobSet=str(live.key), error=error)
                return applied
            if newer is not None:
                message = _NOT_FOLLOWED.format(live.key)
                self._recorder.event(train_job, "Warning", _NOT_FOLLOWED_REASON, message)
            memory.compared = version
        return applied

    async def _newer(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> JobSet | None:
        """Return the JobSet as it would be built now.

        Return None if ``live`` has ended, or if an apply would not change ``live``.

        Raises:
            StatusError: the API server refused for another reason than an immutable field.
        """
        job_set, _ = await _desired(runtime, train_job)
        if job_set is None or ended(live) or not await self._changes(train_job, live, job_set):
            return None
        return job_set

    async def _changes(self, train_job: TrainJob, live: JobSet, desired: JobSet) -> bool:
        """Return True if an apply of ``desired`` would change ``live``. Raises like :meth:`_newer`."""
        if not await self._applier.pending(train_job.key, desired):
            return False
        present = content(live.to_dict())
        if not covers(present, content(desired.to_dict())):
            return True
        # Only the server knows whether the other fields of ``live`` came from an earlier apply.
        preview = await self._preview(train_job, live, desired)
        return isinstance(preview, StatusError) or content(preview) != present

    async def _preview(self, train_job: TrainJob, live: JobSet, desired: JobSet) -> Wire | StatusError:
        """Return the result of a dry run of the apply, or the refusal to change an immutable field.

        If the apply would change nothing, this is remembered.
        """
        try:
            preview = await self._send(desired, live, dry_run=True)
        except (ForbiddenError, InvalidError) as error:
            if not writes.is_immutable_refusal(error):
                raise
            return error
        if content(preview) == content(live.to_dict()):
            self._applier.remember_match(train_job.key, desired, live)
        return preview

    async def _take_control(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> JobSet:
        """Make the TrainJob the controller of its orphaned JobSet, and return the patched JobSet.

        If the JobSet runs or has ended, its spec must match the TrainJob.

        Raises:
            ChildConflictError: the JobSet runs or has ended with another spec, so its result must not be copied to the
                TrainJob.
            PendingError: the TrainJob is being deleted, or another writer changed the JobSet's owners.
        """
        job_set, _ = await _desired(runtime, train_job)
        rule = JobSetRule(live.to_dict())
        follows = rule.suspended and not ended(live)
        if job_set is None or not (follows or rule.matches(job_set.to_dict())):
            trainjob.require_control(live, trainjob.controller_reference(train_job))
        # The cache may lag behind a deletion of the TrainJob, which would then delete the JobSet too.
        owner = await self._applier.reader.get(TrainJob, train_job.key)
        if owner.metadata.uid != train_job.metadata.uid or owner.metadata.deletion_timestamp is not None:
            raise PendingError(f"trainjob {train_job.key}: it is being deleted")
        owners = [*(live.metadata.owner_references or ()), trainjob.controller_reference(train_job)]
        log.logger_from().info("Adopting the JobSet", jobSet=str(live.key))
        try:
            return await self._client.patch(live, writes.replace_owners(live, owners))
        except InvalidError as error:
            writes.raise_if_stale(error, "another writer changed the owners of the JobSet meanwhile")
            raise

    async def _bring_up_to_date(self, runtime: Runtime, train_job: TrainJob, live: JobSet | None) -> Applied:
        """Apply the objects of a TrainJob whose JobSet does not run or has to be suspended."""
        job_set, siblings = await _desired(runtime, train_job)
        if live is None or job_set is None:
            return await self._apply_with_gangs(train_job, live, job_set, siblings)
        if live.spec.suspend and not train_job.spec.suspend and JobSetRule(live.to_dict()).active:
            # JobSet changes only Jobs that have stopped: others would run on with the former spec.
            raise PendingError(f"jobset {live.key}: its Jobs are being suspended", UNTIL_DELETED)
        await self._prepare_in_place(train_job, live, job_set)
        return await self._apply_with_gangs(train_job, live, job_set, siblings)

    async def delete(self, train_job: TrainJob) -> None:
        """Delete the JobSet that a failed TrainJob controls, if it exists, together with its Jobs.

        Raises:
            PendingError: JobSets cannot be read now. Retry later: no event reports when they can be read again.
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        try:
            live = await offload.decoded(await client.peek(self._client, JobSet, train_job.key))
        except NotFoundError:
            return
        except CacheDegradedError as error:
            raise PendingError(str(error), _UNTIL_READABLE) from error
        owner = trainjob.controller_of(live)
        if (
            owner is None
            or owner.uid != train_job.metadata.uid
            or live.metadata.deletion_timestamp is not None
        ):
            return
        log.logger_from().debug("Deleting the JobSet", jobSet=str(live.key))
        try:
            await writes.delete(self._client, live, "Background")
        except ConflictError:
            return  # it was deleted already, and another JobSet has its name
        except NotFoundError as error:
            if not error.names_object:
                raise

    @contextmanager
    def _pending(self, train_job: TrainJob) -> Iterator[None]:
        """Raise PendingError instead of an error about an object that is being deleted or has changed meanwhile.

        PendingError is also raised if the namespace is being terminated. Deletions that take long are reported.
        """
        try:
            yield
        except BeingDeletedError as error:
            self.reports.deletion(train_job, error.live)
            raise
        except trainjob.PredecessorError as error:
            if error.live is not None:
                self.reports.deletion(train_job, error.live)
            raise PendingError(str(error)) from error
        except ConflictError as error:
            raise PendingError(f"an object changed meanwhile: {error}") from error
        except ForbiddenError as error:
            if not error.has_cause("NamespaceTerminating"):
                raise
            self._memories[train_job.key].terminating = self._now() + _UNTIL_NAMESPACE_IS_GONE
            raise PendingError(str(error), _UNTIL_NAMESPACE_IS_GONE) from error

    async def _apply_with_gangs(
        self, train_job: TrainJob, live: JobSet | None, job_set: JobSet | None, siblings: list[Object]
    ) -> Applied:
        """Apply the objects. A gang whose immutable fields would change is deleted first."""
        await gangs.delete_outdated(self._client, live, siblings)
        try:
            return await self._apply(train_job, live, job_set, siblings)
        except InvalidError as error:
            if writes.is_immutable_refusal(error) and gangs.is_about_gang(error):
                await gangs.delete_outdated(self._client, live, siblings, refused=True)
            raise

    async def _apply(
        self, train_job: TrainJob, live: JobSet | None, job_set: JobSet | None, siblings: list[Object]
    ) -> Applied:
        """Apply the JobSet and its siblings. A JobSet starts only after its siblings are applied.

        Raises:
            BeingDeletedError: a sibling of a JobSet that should start is being deleted.
            PendingError: the deadline passed while the objects were built, and no JobSet exists.
        """
        owner = train_job.key
        starts = job_set is not None and not job_set.spec.suspend
        if job_set is not None and starts and live is not None and siblings:
            held = with_suspend(job_set, True)
            if await self._applier.pending(owner, held):
                await self._apply_job_set(train_job, live, job_set, held)
        applied: Applied = []
        if job_set is not None and not starts:
            applied.append((job_set, await self._apply_job_set(train_job, live, job_set, job_set)))
        applied += [(obj, await self._applier.apply(owner, obj)) for obj in siblings]
        if job_set is None or not starts:
            return applied
        for sibling, outcome in applied:
            if outcome is Outcome.DELETING:
                raise await self._being_deleted(sibling)
        if live is None and jobconditions.has_passed(jobconditions.time_left(train_job, self._now())):
            raise PendingError("the deadline has passed")
        return [*applied, (job_set, await self._apply_job_set(train_job, live, job_set, job_set))]

    async def _apply_job_set(
        self, train_job: TrainJob, live: JobSet | None, desired: JobSet, sent: JobSet
    ) -> Outcome:
        """Apply ``sent``, which differs from ``desired`` at most in ``suspend``.

        If the server refuses to change an immutable field of a suspended JobSet, delete the JobSet.

        Raises:
            PendingError: the JobSet was deleted, or its Jobs are stopping.
        """
        try:
            return await self._applier.apply(train_job.key, sent)
        except (ForbiddenError, InvalidError) as error:
            if live is not None and live.spec.suspend and writes.is_immutable_refusal(error):
                await self._rebuild(train_job, live, desired, JobSetRule(live.to_dict()), error)
            raise

    async def _being_deleted(self, sibling: Object) -> PendingError:
        """Return the error for a sibling that is being deleted or has been deleted meanwhile."""
        try:
            return BeingDeletedError(await self._applier.live(sibling))
        except NotFoundError:
            return PendingError(f"{sibling.gvk.kind.lower()} {sibling.key}: it was deleted")

    async def _remove_note(self, train_job: TrainJob) -> None:
        """Remove the note of a suspension, because the JobSet does not run or need not be suspended.

        Raises:
            PendingError: the TrainJob was suspended again, or deleted.
        """
        if trainjob.suspension_note(train_job) is None:
            return
        try:
            patch = writes.remove_annotation(train_job, constants.SUSPENDED_ANNOTATION)
            await client.patch_lazily(self._client, train_job, patch)
        except NotFoundError as error:
            raise PendingError("the TrainJob was deleted meanwhile") from error
        except InvalidError as error:
            writes.raise_if_stale(error, "the TrainJob was suspended meanwhile")
            raise

    async def _repair(
        self, runtime: Runtime, train_job: TrainJob, live: JobSet, *, adopted: bool = False
    ) -> Applied:
        """Restore the siblings of a running JobSet, and return the outcomes.

        If the TrainJob has changed since the JobSet was built, only IndependentConfigMaps are restored. Other missing
        siblings are reported.
        """
        if ended(live) and not adopted and self._memories[train_job.key].matched:
            # No more pods are created, and this process has seen the siblings. An unreadable runtime is still reported.
            await runtime.require(train_job)
            return []
        _, siblings = split(await runtime.new_objects(train_job))
        pending = [each for each in siblings if await self._applier.pending(train_job.key, each)]
        if not pending:
            await self.reports.missing(train_job, live, [])
            return []
        job_set, _ = await _desired(runtime, train_job)
        if (
            job_set is not None
            and not JobSetRule(live.to_dict()).matches(job_set.to_dict())
            and (ended(live) or await self._changes(train_job, live, job_set))
        ):
            held = [each for each in pending if not isinstance(each, IndependentConfigMap)]
            if held:
                log.logger_from().info("Changes wait until the TrainJob is suspended", jobSet=str(live.key))
            if not ended(live):
                await self.reports.missing(train_job, live, held)
            pending = [each for each in pending if isinstance(each, IndependentConfigMap)]
        return [(obj, await self._applier.apply(train_job.key, obj)) for obj in pending]

    async def _prepare_in_place(self, train_job: TrainJob, live: JobSet, desired: JobSet) -> None:
        """Check that ``desired`` can be applied in place; if not, suspend or delete the JobSet and raise an error.

        If fixed fields seem to differ, the server is asked by a dry run of the apply. The JobSet is deleted only if the
        server refuses to change an immutable field, or if the result changes a field that existing Jobs would not
        follow.

        Raises:
            PendingError: the JobSet is being suspended, its Jobs are stopping, or it was deleted.
        """
        if self._applier.knows(train_job.key, desired, live):
            return
        rule = JobSetRule(live.to_dict())
        if rule.matches(desired.to_dict()):
            return
        refusal: StatusError | None = None
        preview = await self._preview(train_job, live, desired)
        if isinstance(preview, StatusError):
            refusal = preview
        elif rule.leaves_fixed_fields(preview) or (rule.suspended and not rule.observed):
            return
        if not rule.suspended:
            await self._suspend_as_it_is(live, desired)
        await self._rebuild(train_job, live, desired, rule, refusal)

    async def _suspend_as_it_is(self, live: JobSet, desired: JobSet) -> NoReturn:
        """Suspend a running JobSet without any other change, and raise PendingError to wait for its Jobs."""
        rule = JobSetRule(live.to_dict())
        await self._send(JobSet.from_dict(rule.suspended_as_it_is(desired.to_dict())), live)
        # If no Jobs were created, none stops, so no change of the status would enqueue the TrainJob.
        after = UNTIL_DELETED if rule.observed else SOON
        raise PendingError(f"jobset {live.key}: its Jobs are being suspended", after)

    async def _rebuild(
        self,
        train_job: TrainJob,
        live: JobSet,
        desired: JobSet,
        rule: JobSetRule,
        refusal: StatusError | None,
    ) -> None:
        """Delete a suspended JobSet, so that it can be built again, and raise PendingError.

        If the JobSet must not be deleted, raise the error that says why. Foreground deletion is used because the next
        JobSet has the same name: otherwise it would take over the remaining Jobs.

        Raises:
            VolumesError: the JobSet may have run, and its volumes would be deleted with it.
        """
        # Generation 1: it has been suspended since its creation, so its volumes are empty.
        if rule.owns_volumes and rule.observed and live.metadata.generation != 1:
            raise VolumesError(
                f"jobset {live.key}: the change of the TrainJob or of its runtime needs a new JobSet, but the volumes "
                "of this one would be deleted with it: undo the change, or delete the JobSet together with its volumes"
            ) from refusal
        created = parse_time(live.metadata.creation_timestamp) if live.metadata.creation_timestamp else None
        if rule.active:
            message = f"Waiting until the Jobs of JobSet {live.key} have stopped"
            self._recorder.event(train_job, "Normal", _EVENT_REASON, message)
            raise PendingError(message, UNTIL_DELETED)
        if not rule.observed and created is not None and self._now() - created < _UNTIL_OBSERVED:
            raise PendingError(f"jobset {live.key}: its controller may be creating Jobs")
        wanted = msgspec.json.encode(desired.to_dict())
        memory = self._memories[train_job.key]
        if memory.rebuilt == wanted and live.metadata.generation == 1:
            raise refusal or trainjob.ChildConflictError(
                f"jobset {live.key}: it was built again, but another writer changed it while it was created"
            )
        try:
            await writes.delete(self._client, live, "Foreground", unchanged=True)
        except ForbiddenError as error:
            if refusal is None:
                raise
            raise refusal from error
        memory.rebuilt = wanted
        memory.matched.clear()
        message = (
            f"JobSet {live.key} is built again: the TrainJob changed fields that are immutable in a JobSet"
        )
        self._recorder.event(train_job, "Normal", _EVENT_REASON, message)
        raise PendingError(message)

    async def _suspend(self, train_job: TrainJob) -> None:
        """Suspend the JobSet, because its TrainJob is suspended but the TrainJob's objects could not be applied."""
        live = await offload.decoded(await client.peek(self._client, JobSet, train_job.key))
        if live.spec.suspend:
            return  # only its siblings could not be applied
        wire = content(live.to_dict())
        metadata = {**wire["metadata"], "name": live.name, "namespace": live.namespace}
        rule = JobSetRule(live.to_dict())
        await self._send(JobSet.from_dict(rule.suspended_as_it_is({**wire, "metadata": metadata})), live)

    async def _send(self, obj: JobSet, live: JobSet, *, dry_run: bool = False) -> Wire:
        obj = at_version_of(obj, live)
        stored = await self._client.apply(obj, field_owner=constants.FIELD_OWNER, force=True, dry_run=dry_run)
        return stored.to_dict()


def _version_of(train_job: TrainJob) -> tuple[str | None, int]:
    return train_job.metadata.uid, train_job.metadata.generation or 0


def _is_orphan_of_ours(job_set: JobSet) -> bool:
    """Return True if the JobSet has no controller and its jobs have the ancestor-step label."""
    jobs = job_set.spec.replicated_jobs or ()
    return trainjob.controller_of(job_set) is None and any(ancestor_of(job) is not None for job in jobs)


async def _desired(runtime: Runtime, train_job: TrainJob) -> Built:
    """Return all objects of a TrainJob, including PodGroups, which are built only for suspended TrainJobs.

    The JobSet has the same value of ``suspend`` as the TrainJob.
    """
    suspended = train_job
    if not train_job.spec.suspend:
        suspended = train_job.shallow_copy()
        suspended.spec = train_job.spec.model_copy(update={"suspend": True})
    objects = await runtime.new_objects(suspended)
    job_set, siblings = split(objects)
    return job_set and with_suspend(job_set, train_job.spec.suspend), siblings


def with_suspend(job_set: JobSet, suspend: bool | None) -> JobSet:
    """Return ``job_set`` if its ``suspend`` has this value, otherwise a copy with this value."""
    if job_set.spec.suspend is suspend:
        return job_set
    changed = job_set.shallow_copy()
    changed.spec = job_set.spec.model_copy(update={"suspend": suspend})
    return changed


def split(objects: list[Object]) -> Built:
    """Return the JobSet or None, and its siblings."""
    job_set = next((each for each in objects if isinstance(each, JobSet)), None)
    return job_set, [each for each in objects if each is not job_set]
