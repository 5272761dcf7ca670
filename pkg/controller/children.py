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

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NoReturn

import anyio
import msgspec
from controller_runtime import client, log, offload
from controller_runtime.cache import CacheDegradedError
from controller_runtime.machinery import GVK, Object, conditions
from controller_runtime.machinery.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from controller_runtime.machinery.meta import parse_time
from controller_runtime.machinery.raised import ExpectedError
from controller_runtime.recorder import EventRecorder

from pkg.apis.jobset.v1alpha2 import JOB_SET_COMPLETED, JOB_SET_FAILED, JobSet, JobSetOutline
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.apply.drift import Wire, content, covers, equal, without
from pkg.constants import trainer as constants
from pkg.runtime import Runtime, ancestor_of
from pkg.runtime.interface import IndependentConfigMap
from pkg.util import attempts, trainjob

from . import applier as writes
from .applier import (
    SOON,
    UNTIL_DELETED,
    Applier,
    BeingDeletedError,
    Memories,
    Outcome,
    PendingError,
    at_version_of,
)
from .reports import Reports

_UNTIL_NAMESPACE_IS_GONE: Final = timedelta(seconds=60)
_UNTIL_OBSERVED: Final = timedelta(seconds=10)
_SKEW: Final = timedelta(minutes=1)
"""If the server's clock is further ahead of ours, the age of an object is unknown, and we do not wait for our clock."""
_UNTIL_READABLE: Final = timedelta(seconds=30)
_EVENT_REASON: Final = "JobSetRecreating"
_NOT_FOLLOWED_REASON: Final = "JobSetNotFollowing"
_NOT_FOLLOWED: Final = (
    "JobSet {} runs with an earlier spec: the TrainJob or its runtime has changed since it started. To apply the "
    "change, suspend the TrainJob and resume it"
)
_GANGS: Final[frozenset[GVK]] = frozenset(
    {v1alpha1.Workload.gvk, v1alpha2.PodGroup.gvk, v1beta1.PodGroup.gvk}
)
"""Kubernetes' own gangs, some of whose fields are immutable."""
_POD_METADATA: Final = frozenset({"labels", "annotations"})
_POD_SPEC: Final = frozenset({"nodeSelector", "tolerations", "schedulingGates"})
_JOB_SET_SPEC: Final = frozenset({"suspend", "coordinator", "ttlSecondsAfterFinished"})

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


class VolumesError(ExpectedError):
    """A JobSet cannot be built again, because its volumes would be deleted with it."""


class UnstoredError(ExpectedError):
    """A JobSet is not built again, because the status of its TrainJob does not contain the JobSet's starts."""


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
    """Applies the objects of a TrainJob. The state of its JobSet determines how."""

    def __init__(
        self,
        client: client.Client,
        applier: Applier,
        recorder: EventRecorder,
        now: Callable[[], datetime],
        memories: Memories,
        *,
        count_attempts: bool = False,
    ) -> None:
        self._client = client
        self._applier = applier
        self._recorder = recorder
        self._now = now
        self._memories = memories
        self._count_attempts = count_attempts
        self.reports = Reports(client, recorder, now, memories)

    async def job_set(self, train_job: TrainJob) -> JobSet | None:
        """Return the JobSet that the TrainJob controls or may adopt, or None if no JobSet has the TrainJob's name.

        Of a JobSet that runs or has ended, only the metadata and the status are decoded if no more will be compared.

        Raises:
            PendingError: an earlier TrainJob of the same name controls the JobSet.
            ChildConflictError: the TrainJob neither controls the JobSet nor may adopt it.
            StatusError, RestError, CacheError: the JobSet cannot be read.
        """
        try:
            found = await client.peek(self._client, JobSet, train_job.key)
        except NotFoundError:
            return None
        seen = None if train_job.spec.suspend else found.view(JobSetOutline)
        if seen is not None and not seen.spec.suspend and not self._may_be_outdated(train_job):
            live = found.only("status")
        else:
            live = await offload.decoded(found)
        try:
            trainjob.require_control(live, trainjob.controller_reference(train_job))
        except trainjob.PredecessorError as error:
            if not trainjob.is_finished(train_job):
                self.reports.deletion(train_job, live)
            raise PendingError(str(error)) from error
        except trainjob.ChildConflictError:
            live = await offload.decoded(found)
            # The labels of the jobs show whether the JobSet was built for a TrainJob.
            jobs = live.spec.replicated_jobs or ()
            if trainjob.controller_of(live) is not None or all(ancestor_of(each) is None for each in jobs):
                raise
        return live

    def _may_be_outdated(self, train_job: TrainJob) -> bool:
        """Return True if a running JobSet must be compared with its TrainJob, which was changed or suspended."""
        if trainjob.suspension_note(train_job) is not None:
            return True
        version = _version_of(train_job)
        if version[1] <= 1:  # like most TrainJobs, it was never changed
            return False
        memory = self._memories.get(train_job.key)
        return memory is None or memory.compared != version

    async def reconcile(  # noqa: C901  # one branch for each state, and one for each reason to wait
        self, runtime: Runtime, train_job: TrainJob, live: JobSet | None, state: JobSetState | None
    ) -> Applied:
        """Apply the objects that differ, and return the outcomes. Deletions that take long are reported.

        ``live`` is the result of :meth:`job_set`, and ``state`` its state.

        Raises:
            PendingError: some children cannot be written yet: an object is being deleted or has changed meanwhile, or
                the namespace is being terminated.
            ChildConflictError: the TrainJob does not control an object with a child's name.
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        memory, note = self._memories[train_job.key], trainjob.suspension_note(train_job)
        if anyio.current_time() < memory.terminating:
            raise PendingError("the namespace is being terminated", _UNTIL_NAMESPACE_IS_GONE)
        try:
            adopts = state is JobSetState.ORPHAN
            if live is not None and adopts:
                # The patch of the owners tests only the owners, so the JobSet's deletion may have begun meanwhile.
                live = await self._take_control(runtime, train_job, live)
                state = state_of(train_job, live)
            if live is None or state is JobSetState.SUSPENDED:
                # This process reads its own writes, so only another one's may be missing in the cache.
                if note and (JobSet.gvk, train_job.key) not in memory.matched and await self._runs(train_job):
                    raise PendingError(f"jobset {train_job.key}: the cache does not show yet that it runs")
                if note:
                    await self._remove_note(train_job)
                return await self.write_children(runtime, train_job, live)
            match state:
                case JobSetState.BEING_DELETED:
                    raise BeingDeletedError(live)  # noqa: TRY301  # reported below
                case JobSetState.STOPPING:
                    return await self.write_children(runtime, train_job, live)
                case JobSetState.MOVING if not adopts:  # a JobSet that was adopted has been compared
                    newer = await self._newer(runtime, train_job, live)
                    if newer is not None:  # a running JobSet cannot be changed
                        log.logger_from().info(
                            "Suspending the outdated JobSet, because its TrainJob was suspended",
                            jobSet=str(live.key),
                        )
                        await self._suspend_as_it_is(live, newer)
                    memory.compared = _version_of(train_job)
                    await self._remove_note(train_job)
                    return await self._repair(runtime, train_job, live)
                case _:
                    applied = await self._repair(runtime, train_job, live, adopted=adopts)
                    if not adopts:
                        await self._report_unfollowed(runtime, train_job, live)
                    return applied
        except BeingDeletedError as error:
            self.reports.deletion(train_job, error.live)
            raise
        except trainjob.PredecessorError as error:
            self.reports.deletion(train_job, error.live)
            raise PendingError(str(error)) from error
        except ConflictError as error:
            raise PendingError(f"an object changed meanwhile: {error}") from error
        except ForbiddenError as error:
            if not error.has_cause("NamespaceTerminating"):
                raise
            memory.terminating = anyio.current_time() + _UNTIL_NAMESPACE_IS_GONE.total_seconds()
            raise PendingError(str(error), _UNTIL_NAMESPACE_IS_GONE) from error

    async def write_children(self, runtime: Runtime, train_job: TrainJob, live: JobSet | None) -> Applied:
        """Apply the objects of a TrainJob whose JobSet does not run or has to be suspended.

        A JobSet starts only after its siblings are applied. A gang whose immutable fields would change is deleted
        first.

        Raises:
            BeingDeletedError: a sibling of a JobSet that should start is being deleted.
            PendingError: Jobs are stopping, an object was deleted to be built again, or the deadline passed while the
                objects were built, and no JobSet exists.
        """
        job_set, siblings = await self._desired(runtime, train_job, live)
        starts = job_set is not None and not job_set.spec.suspend
        if live is not None and job_set is not None:
            await self._prepare_in_place(train_job, live, job_set)
        if siblings:
            await self._delete_outdated_gangs(live, siblings)
        applied: Applied = []
        if job_set is not None and not starts:
            applied.append((job_set, await self.write_job_set(train_job, live, job_set, job_set)))
        elif job_set is not None and live is not None and siblings:
            suspended = job_set.shallow_copy()
            suspended.spec = job_set.spec.model_copy(update={"suspend": True})
            suspended = attempts.counted(suspended, live, None)
            if await self._applier.pending(train_job.key, suspended):
                await self.write_job_set(train_job, live, job_set, suspended)
        try:
            for sibling in siblings:
                applied.append((sibling, await self._applier.apply(train_job.key, sibling)))
        except InvalidError as error:
            about_gang = error.details.get("group") == v1beta1.PodGroup.gvk.group
            if about_gang and writes.is_immutable_refusal(error):
                await self._delete_outdated_gangs(live, siblings, refused=True)
            raise
        if job_set is None or not starts:
            return applied
        for sibling, outcome in applied:
            if outcome is Outcome.DELETING:
                try:
                    found = await client.peek(self._client, writes.cached_kind(sibling), sibling.key)
                except NotFoundError as error:
                    raise PendingError(f"{sibling.gvk.kind.lower()} {sibling.key}: it was deleted") from error
                raise BeingDeletedError(await offload.decoded(found))
        if live is None and trainjob.has_passed(trainjob.time_left(train_job, self._now())):
            raise PendingError("the deadline has passed")
        return [*applied, (job_set, await self.write_job_set(train_job, live, job_set, job_set))]

    async def _desired(self, runtime: Runtime, train_job: TrainJob, live: JobSet | None) -> Built:
        """Return all objects of a TrainJob, including PodGroups, which are built only for suspended TrainJobs.

        The JobSet has the same value of ``suspend`` as the TrainJob, and the number of starts.

        Raises:
            PendingError: the TrainJob was deleted or has ended meanwhile.
        """
        suspended = train_job
        if not train_job.spec.suspend:
            suspended = train_job.shallow_copy()
            suspended.spec = train_job.spec.model_copy(update={"suspend": True})
        objects, self._memories[train_job.key].built = await runtime.objects_and_state(suspended)
        job_set, siblings = split(objects)
        if job_set is None:
            return None, siblings
        before: int | None = None
        status = train_job.status
        if live is None and (self._count_attempts or status.conditions or status.jobs_status):
            # The JobSet was deleted. The cached status may be older, for example after a change of the leader: the
            # TrainJob may have ended, and must not run again, or the starts of that JobSet are not in the status yet.
            try:
                stored = await self._applier.reader.get(TrainJob, train_job.key)
            except NotFoundError as error:
                raise PendingError(f"trainjob {train_job.key}: it was deleted meanwhile") from error
            if stored.metadata.uid != train_job.metadata.uid:
                raise PendingError(f"trainjob {train_job.key}: it was replaced meanwhile")
            if trainjob.is_finished(stored):
                raise PendingError(f"trainjob {train_job.key}: the cache does not show yet that it has ended")
            if self._count_attempts:
                before = attempts.starts_in(stored.status)
        job_set.spec.suspend = train_job.spec.suspend
        return attempts.counted(job_set, live, before), siblings

    async def write_job_set(
        self, train_job: TrainJob, live: JobSet | None, desired: JobSet, sent: JobSet
    ) -> Outcome:
        """Apply ``sent``, which differs from ``desired`` at most in ``suspend``.

        If the server refuses to change an immutable field of a suspended JobSet, delete the JobSet.

        Raises:
            PendingError: the JobSet was deleted, or its Jobs are stopping.
        """
        try:
            return await self._applier.apply(train_job.key, sent, absent=live is None)
        except (ForbiddenError, InvalidError) as error:
            if live is not None and live.spec.suspend and writes.is_immutable_refusal(error):
                await self._rebuild(train_job, live, desired, error)
            raise

    async def _runs(self, train_job: TrainJob) -> bool:
        """Return True if the JobSet on the API server is not suspended."""
        try:
            return not (await self._applier.reader.get(JobSet, train_job.key)).spec.suspend
        except NotFoundError:
            return False

    async def _report_unfollowed(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> None:
        """Record one event if a running JobSet would be built differently now.

        The JobSet may be outdated even if no suspension is noted: a TrainJob can also be changed while it runs.
        """
        if not self._may_be_outdated(train_job):
            return
        version, memory = _version_of(train_job), self._memories[train_job.key]
        try:
            newer = await self._newer(runtime, train_job, live)
        except StatusError as error:  # the job runs on, so its next reconcile may compare
            log.logger_from().debug("JobSet cannot be compared", jobSet=str(live.key), error=error)
            return
        if newer is not None:
            message = _NOT_FOLLOWED.format(live.key)
            self._recorder.event(train_job, "Warning", _NOT_FOLLOWED_REASON, message)
        memory.compared = version

    async def _newer(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> JobSet | None:
        """Return the JobSet as it would be built now.

        Return None if ``live`` has ended, or if an apply would not change ``live``.

        Raises:
            StatusError: the API server refused for another reason than an immutable field.
        """
        job_set, _ = await self._desired(runtime, train_job, live)
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
        job_set, _ = await self._desired(runtime, train_job, live)
        follows = live.spec.suspend and not ended(live)
        if job_set is None or not (follows or fixed_fields_match(live, job_set)):
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
        if not trainjob.controls(train_job, live) or live.metadata.deletion_timestamp is not None:
            return
        log.logger_from().debug("Deleting the JobSet", jobSet=str(live.key))
        try:
            await writes.delete(self._client, live, "Background")
        except ConflictError:
            return  # it was deleted already, and another JobSet has its name
        except NotFoundError as error:
            if not error.names_object:
                raise

    async def _delete_outdated_gangs(
        self, job_set: JobSet | None, siblings: Iterable[Object], *, refused: bool = False
    ) -> None:
        """Delete a gang if its immutable fields differ from the desired ones and none of its pods runs.

        ``refused`` is True if the server has refused a change. The gang is then deleted even if no difference is found
        here, because only the server knows which fields an apply would remove.

        Raises:
            PendingError: the gang is being deleted, or the Jobs of the suspended JobSet are stopping.
            ChildConflictError: the TrainJob does not control the gang.
        """
        if job_set is not None and not job_set.spec.suspend:
            return  # the JobSet is suspended first
        for desired in siblings:
            if desired.gvk not in _GANGS:
                continue
            try:
                live = (await client.peek(self._client, type(desired), desired.key)).object
            except NotFoundError:
                continue
            trainjob.require_control(live, trainjob.controller_of(desired))
            where = f"{live.gvk.kind} {live.key}"
            if live.metadata.deletion_timestamp is not None:
                raise BeingDeletedError(live)
            if not refused and covers(_fixed_of_gang(live), _fixed_of_gang(desired)):
                continue
            if job_set is not None and has_active_jobs(job_set):
                raise PendingError(f"{where}: it is replaced when the Jobs have stopped", UNTIL_DELETED)
            log.logger_from().info("Replacing the gang", gang=str(live.key))
            try:
                await writes.delete(self._client, live, "Background", unchanged=True)
            except (NotFoundError, ConflictError) as error:
                raise PendingError(f"{where}: it changed meanwhile") from error
            raise PendingError(f"{where}: it is built again with other immutable fields")

    async def _remove_note(self, train_job: TrainJob) -> None:
        """Remove the note of a suspension, because the JobSet does not run or need not be suspended.

        Raises:
            PendingError: the TrainJob was suspended again, or deleted.
        """
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
        memory = self._memories[train_job.key]
        over = ended(live) and not adopted and bool(memory.matched)
        if over or memory.built is not None:
            state = await runtime.require(train_job)  # which reports an unreadable runtime
            # No more pods are created, and this process has seen the siblings; or there are none.
            if over or memory.built == state:
                return []
        objects, memory.built = await runtime.objects_and_state(train_job)
        _, siblings = split(objects)
        pending = [each for each in siblings if await self._applier.pending(train_job.key, each)]
        if not pending:
            await self.reports.missing(train_job, live, [])
            return []
        try:
            live = await offload.decoded(await client.peek(self._client, JobSet, train_job.key))
        except NotFoundError as error:
            raise PendingError(f"jobset {live.key}: it was deleted meanwhile") from error
        job_set, _ = await self._desired(runtime, train_job, live)
        if (
            job_set is not None
            and not fixed_fields_match(live, job_set)
            and (ended(live) or await self._changes(train_job, live, job_set))
        ):
            withheld = [each for each in pending if not isinstance(each, IndependentConfigMap)]
            if withheld:
                log.logger_from().info("Changes wait until the TrainJob is suspended", jobSet=str(live.key))
            if not ended(live):
                await self.reports.missing(train_job, live, withheld)
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
        if live.spec.suspend and has_active_jobs(live) and not train_job.spec.suspend:
            # JobSet changes only Jobs that have stopped: others would run on with the former spec.
            raise PendingError(f"jobset {live.key}: its Jobs are being suspended", UNTIL_DELETED)
        if self._applier.knows(train_job.key, desired, live) or fixed_fields_match(live, desired):
            return
        preview = await self._preview(train_job, live, desired)
        unstarted = live.spec.suspend and not is_observed(live)
        refusal: StatusError | None = None
        if isinstance(preview, StatusError):
            refusal = preview
        elif unstarted or fixed_fields(preview) == fixed_fields(live.to_dict()):
            return
        if not live.spec.suspend:
            await self._suspend_as_it_is(live, desired)
        await self._rebuild(train_job, live, desired, refusal)

    async def _suspend_as_it_is(self, live: JobSet, desired: JobSet) -> NoReturn:
        """Suspend a running JobSet without any other change, and raise PendingError to wait for its Jobs."""
        await self._send(suspended_as_it_is(live, desired.to_dict()), live)
        # If no Jobs were created, none stops, so no change of the status would enqueue the TrainJob.
        after = UNTIL_DELETED if is_observed(live) else SOON
        raise PendingError(f"jobset {live.key}: its Jobs are being suspended", after)

    async def _rebuild(
        self, train_job: TrainJob, live: JobSet, desired: JobSet, refusal: StatusError | None
    ) -> NoReturn:
        """Delete a suspended JobSet, so that it can be built again, and raise PendingError.

        If the JobSet must not be deleted, raise the error that says why. Foreground deletion is used because the next
        JobSet has the same name: otherwise it would take over the remaining Jobs.

        Raises:
            VolumesError: the JobSet may have run, and its volumes would be deleted with it.
        """
        # Generation 1: it has been suspended since its creation, so its volumes are empty.
        policies = [each.retention_policy for each in live.spec.volume_claim_policies or ()]
        owns_volumes = any(each is None or each.when_deleted != "Retain" for each in policies)
        if owns_volumes and is_observed(live) and live.metadata.generation != 1:
            raise VolumesError(
                f"jobset {live.key}: the change of the TrainJob or of its runtime needs a new JobSet, but the volumes "
                "of this one would be deleted with it: undo the change, or delete the JobSet together with its volumes"
            ) from refusal
        created = parse_time(live.metadata.creation_timestamp) if live.metadata.creation_timestamp else None
        if has_active_jobs(live):
            message = f"Waiting until the Jobs of JobSet {live.key} have stopped"
            self._recorder.event(train_job, "Normal", _EVENT_REASON, message)
            raise PendingError(message, UNTIL_DELETED)
        age = None if is_observed(live) or created is None else self._now() - created
        if age is not None and -_SKEW < age < _UNTIL_OBSERVED:
            raise PendingError(f"jobset {live.key}: its controller may be creating Jobs")
        memory = self._memories[train_job.key]
        started = attempts.attempts_of(live.metadata, live.status)
        if started is not None and started != train_job.status.execution_attempts:
            if memory.unstored == started:  # the reconcile that waited has written the status
                raise UnstoredError(
                    f"jobset {live.key}: it is built again when status.executionAttempts of the TrainJob is "
                    f"{started}; if it stays unset, apply the CRDs of this manager"
                )
            memory.unstored = started
            raise PendingError(f"jobset {live.key}: its starts are not in the status of the TrainJob yet")
        wanted = msgspec.json.encode(desired.to_dict())
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

    async def suspend(self, train_job: TrainJob) -> None:
        """Suspend the running JobSet of a suspended TrainJob, whose objects could not be applied.

        A queue may already count the TrainJob's pods as stopped. A JobSet that is not running is left alone.
        """
        try:
            live = await self.job_set(train_job)
        except (PendingError, trainjob.ChildConflictError):
            return
        if live is None or state_of(train_job, live) is not JobSetState.STOPPING:
            return
        wire = content(live.to_dict())
        metadata = {**wire["metadata"], "name": live.name, "namespace": live.namespace}
        await self._send(suspended_as_it_is(live, {**wire, "metadata": metadata}), live)

    async def _send(self, obj: JobSet, live: JobSet, *, dry_run: bool = False) -> Wire:
        obj = at_version_of(obj, live)
        stored = await self._client.apply(obj, field_owner=constants.FIELD_OWNER, force=True, dry_run=dry_run)
        return stored.to_dict()


def _version_of(train_job: TrainJob) -> tuple[str | None, int]:
    return train_job.metadata.uid, train_job.metadata.generation or 0


def split(objects: list[Object]) -> Built:
    """Return the JobSet or None, and its siblings."""
    job_set: JobSet | None = None
    siblings: list[Object] = []
    for each in objects:
        if job_set is None and isinstance(each, JobSet):
            job_set = each
        else:
            siblings.append(each)
    return job_set, siblings


def _fixed_of_gang(gang: Object) -> Wire:
    """Return the immutable fields of a gang. Since v1beta1, ``minCount`` is mutable."""
    spec: Wire = dict(gang.to_dict().get("spec") or {})
    if gang.gvk == v1beta1.PodGroup.gvk:
        policy = dict(spec.get("schedulingPolicy") or {})
        policy["gang"] = without(policy.get("gang") or {}, {"minCount"})
        spec["schedulingPolicy"] = policy
    return spec


def ended(job_set: JobSet) -> bool:
    """Return True if the JobSet is Completed or Failed: its controller then creates no more Jobs."""
    return any(
        conditions.is_true(job_set.status.conditions, each) for each in (JOB_SET_COMPLETED, JOB_SET_FAILED)
    )


def is_observed(job_set: JobSet) -> bool:
    """Return True if JobSet's controller has reconciled the JobSet, and so may have created Jobs."""
    return bool(job_set.status.replicated_jobs_status)


def has_active_jobs(job_set: JobSet) -> bool:
    """Return True if the status of the JobSet counts Jobs that run."""
    return any(each.active or each.ready for each in job_set.status.replicated_jobs_status or ())


def suspended_as_it_is(live: JobSet, desired: Wire) -> JobSet:
    """Return the apply configuration that suspends the live JobSet and changes no other field of its spec."""
    return JobSet.from_dict({**desired, "spec": {**live.to_dict().get("spec", {}), "suspend": True}})


def fixed_fields_match(live: JobSet, desired: JobSet) -> bool:
    """Return True if the fixed fields of ``live`` are as desired. False means that only the server can decide.

    JobSet permits changes of ``suspend``, ``coordinator`` and ``ttlSecondsAfterFinished``. While the JobSet is
    suspended, it also permits changes of the scheduling of its pods. All other fields are fixed: JobSet's webhook
    refuses to change them, and without the webhook, existing Jobs do not follow the change.
    """
    return equal(fixed_fields(live.to_dict()), fixed_fields(desired.to_dict()))


def fixed_fields(job_set: Wire) -> Wire:
    """Return the fixed fields of a JobSet's spec: see :func:`fixed_fields_match`."""
    spec = without(job_set.get("spec", {}), _JOB_SET_SPEC)
    return {**spec, "replicatedJobs": [_fixed_job(job) for job in spec.get("replicatedJobs") or ()]}


def _fixed_job(job: Wire) -> Wire:
    template = job.get("template", {})
    job_spec = template.get("spec", {})
    pod = dict(job_spec.get("template", {}))
    pod["metadata"] = without(pod.get("metadata", {}), _POD_METADATA)
    pod["spec"] = without(pod.get("spec", {}), _POD_SPEC)
    return {**job, "template": {**template, "spec": {**job_spec, "template": pod}}}
