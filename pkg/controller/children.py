# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reconciles a TrainJob's JobSet and its siblings (PodGroup, ConfigMap, Secret) as one unit.

A running JobSet and its siblings are not changed, unless the TrainJob was suspended meanwhile, which the webhook notes
on it: the JobSet is suspended then, too. A suspended JobSet follows the TrainJob: in place where JobSet allows it, else
it is deleted and built again. Siblings are not written before the JobSet has the same spec, and a JobSet never starts
with a spec other than the TrainJob's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, NoReturn

import msgspec
from controller_runtime import client, log
from controller_runtime.cache import CacheDegradedError, CacheError
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from controller_runtime.machinery.meta import parse_time
from controller_runtime.recorder import EventRecorder
from controller_runtime.rest import RestError, TransportError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import Runtime
from pkg.runtime.interface import IndependentConfigMap
from pkg.util import trainjob

from . import adoption, deadline, gangs, objects, patches
from .applier import Applier, Outcome, at_version_of
from .deletions import BeingDeletedError, Deletions, being_deleted, delete
from .drift import Wire, content
from .jobsetrule import JobSetRule, ended
from .missing import MissingSiblings
from .pending import SOON, UNTIL_DELETED, PendingError

_UNTIL_NAMESPACE_IS_GONE: Final = timedelta(seconds=60)
_UNTIL_OBSERVED: Final = timedelta(seconds=10)
_UNTIL_READABLE: Final = timedelta(seconds=30)
_IMMUTABLE: Final = "immutable"
"""Part of the error that JobSet's webhook and CRD return for a change of an immutable field."""
_EVENT_REASON: Final = "JobSetRecreating"
_NOT_FOLLOWED_REASON: Final = "JobSetNotFollowing"
_NOT_FOLLOWED: Final = (
    "JobSet {} runs with an earlier spec: the TrainJob or its runtime has changed since it started. It follows when "
    "the TrainJob is suspended and resumed"
)

Applied = list[tuple[Object, Outcome]]


class Children:
    """Applies the objects of TrainJobs."""

    def __init__(
        self, client: client.Client, applier: Applier, recorder: EventRecorder, now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._applier = applier
        self._recorder = recorder
        self._now = now
        self._terminating: dict[NamespacedName, datetime] = {}
        self._rebuilt: dict[NamespacedName, tuple[bytes, str | None]] = {}
        self._deletions = Deletions(recorder, now)
        self._missing = MissingSiblings(client, recorder)
        self._judged: dict[NamespacedName, tuple[str | None, int]] = {}
        """The uid and generation of TrainJobs whose running JobSets were compared with them."""

    def forget(self, owner: NamespacedName) -> None:
        """Forget the children of ``owner``."""
        self._applier.forget(owner)
        self._terminating.pop(owner, None)
        self._rebuilt.pop(owner, None)
        self._deletions.forget(owner)
        self._missing.forget(owner)
        self._judged.pop(owner, None)

    async def job_set(self, train_job: TrainJob) -> JobSet | None:
        """Return the JobSet of the TrainJob's name if the TrainJob controls it or may adopt it.

        Raises:
            PendingError: an earlier TrainJob of the same name controls it.
            ChildConflictError: the TrainJob neither controls it nor may adopt it.
        """
        try:
            live = (await client.peek(self._client, JobSet, train_job.key)).object
        except (StatusError, RestError, CacheError):
            return None  # the step that needs the JobSet meets the same error and reports it
        try:
            trainjob.require_control(live, trainjob.controller_reference(train_job))
        except trainjob.PredecessorError as error:
            if not trainjob.is_finished(train_job):
                self._deletions.report(train_job, live)
            raise PendingError(str(error)) from error
        except trainjob.ChildConflictError:
            if not adoption.is_orphan_of_ours(live):
                raise
        return live

    async def reconcile(self, runtime: Runtime, train_job: TrainJob) -> Applied:
        """Apply the objects that differ, and return the outcomes.

        Raises:
            PendingError: the children cannot be written yet; siblings were not changed.
            ChildConflictError: the TrainJob does not control an object with a child's name.
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        terminating = self._terminating.get(train_job.key)
        if terminating is not None and self._now() < terminating:
            raise PendingError("the namespace is being terminated", _UNTIL_NAMESPACE_IS_GONE)
        with self._pending(train_job):
            try:
                live: JobSet | None = (await client.peek(self._client, JobSet, train_job.key)).object
            except NotFoundError:
                live = None
            adopts = live is not None and trainjob.controller_of(live) is None
            if live is not None and adopts and live.metadata.deletion_timestamp is None:
                # Its deletion may have begun meanwhile: the owners alone are tested when they are replaced.
                live = await adoption.adopt(self._client, self._applier.reader, runtime, train_job, live)
            if live is not None and live.metadata.deletion_timestamp is not None:
                raise BeingDeletedError(live)
            if live is None or live.spec.suspend:
                await self._settle(train_job)
            elif not train_job.spec.suspend:
                if not adopts:
                    await self._catch_up(runtime, train_job, live)
                return await self._repair(runtime, train_job, live, adopted=adopts)
            try:
                return await self._bring_up_to_date(runtime, train_job, live)
            except (PendingError, ConflictError, TransportError):
                raise  # the next attempt comes soon
            except Exception:  # any error is raised again; a queue may count the TrainJob's pods as stopped
                if live is not None and not live.spec.suspend:
                    await self._suspend(train_job)
                raise

    async def _bring_up_to_date(self, runtime: Runtime, train_job: TrainJob, live: JobSet | None) -> Applied:
        """Apply the objects of a TrainJob whose JobSet does not run, or is to be suspended."""
        job_set, siblings = await objects.desired(runtime, train_job)
        if live is None or job_set is None:
            return await self._apply_with_gangs(train_job, live, job_set, siblings)
        await self._follow(train_job, live, job_set)
        try:
            return await self._apply_with_gangs(train_job, live, job_set, siblings)
        except (ForbiddenError, InvalidError) as error:
            rule = JobSetRule(live.to_dict())
            if not (rule.suspended and _IMMUTABLE in str(error)):
                raise
            await self._rebuild(train_job, live, job_set, rule, error)
            raise

    async def delete(self, train_job: TrainJob) -> None:
        """Delete the JobSet that a failed TrainJob controls, if it exists, see :func:`.deletions.delete`.

        Raises:
            PendingError: JobSets cannot be read now. No event of an unchanged JobSet follows when they can.
        """
        try:
            live = (await client.peek(self._client, JobSet, train_job.key)).object
        except NotFoundError:
            return
        except CacheDegradedError as error:
            raise PendingError(str(error), _UNTIL_READABLE) from error
        owner = trainjob.controller_of(live)
        if owner is not None and owner.uid == train_job.metadata.uid:
            await delete(self._client, live)

    @contextmanager
    def _pending(self, train_job: TrainJob) -> Iterator[None]:
        """Raise PendingError for refusals because of an object that is being deleted or has changed."""
        try:
            yield
        except BeingDeletedError as error:
            self._deletions.report(train_job, error.live)
            raise
        except trainjob.PredecessorError as error:
            if error.live is not None:
                self._deletions.report(train_job, error.live)
            raise PendingError(str(error)) from error
        except ConflictError as error:
            raise PendingError(f"an object changed meanwhile: {error}") from error
        except ForbiddenError as error:
            if all(cause.get("reason") != "NamespaceTerminating" for cause in error.causes):
                raise
            self._terminating[train_job.key] = self._now() + _UNTIL_NAMESPACE_IS_GONE
            raise PendingError(str(error), _UNTIL_NAMESPACE_IS_GONE) from error

    async def _apply_with_gangs(
        self, train_job: TrainJob, live: JobSet | None, job_set: JobSet | None, siblings: list[Object]
    ) -> Applied:
        """Apply the objects; a gang whose immutable fields would change is deleted first."""
        await gangs.make_way(self._client, live, siblings)
        try:
            return await self._apply(train_job, live, job_set, siblings)
        except InvalidError as error:
            if _IMMUTABLE in str(error) and gangs.refuses(error):
                await gangs.make_way(self._client, live, siblings, refused=True)
            raise

    async def _apply(
        self, train_job: TrainJob, live: JobSet | None, job_set: JobSet | None, siblings: list[Object]
    ) -> Applied:
        """Apply the JobSet and its siblings. A JobSet starts only after its siblings are applied.

        Raises:
            BeingDeletedError: a sibling of a JobSet that is to start is being deleted.
            PendingError: the deadline passed while the objects were built, and no JobSet exists.
        """
        owner = train_job.key
        starts = job_set is not None and not job_set.spec.suspend
        if job_set is not None and starts and live is not None and siblings:
            held = objects.with_suspend(job_set, True)
            if await self._applier.pending(owner, held):
                await self._applier.apply(owner, held)
        first: list[Object] = [] if job_set is None or starts else [job_set]
        applied = [(obj, await self._applier.apply(owner, obj)) for obj in (*first, *siblings)]
        if job_set is None or not starts:
            return applied
        for sibling, outcome in applied:
            if outcome is Outcome.DELETING:
                raise await being_deleted(self._applier.live, sibling)
        if live is None and deadline.has_passed(deadline.time_left(train_job, self._now())):
            raise PendingError("the deadline has passed")
        return [*applied, (job_set, await self._applier.apply(owner, job_set))]

    async def _catch_up(self, runtime: Runtime, train_job: TrainJob, live: JobSet) -> None:
        """Suspend the running JobSet of a TrainJob that was suspended, changed and resumed before it was reconciled.

        Return if nothing that the JobSet is built from has changed, or it has ended. Where the webhook did not note a
        suspension, the TrainJob may have been changed while it ran, or its runtime: this is reported.

        Raises:
            PendingError: the JobSet is being suspended.
        """
        noted = trainjob.note(train_job) is not None
        state = train_job.metadata.uid, train_job.metadata.generation or 0
        if not noted and (state[1] <= 1 or self._judged.get(train_job.key) == state):
            return
        job_set, _ = await objects.desired(runtime, train_job)
        rule = JobSetRule(live.to_dict())
        if job_set is not None and not rule.ended and await self._applier.pending(train_job.key, job_set):
            if noted:
                log.logger_from().info("Suspending the JobSet as its TrainJob was", jobSet=str(live.key))
                await self._stop(live, job_set, rule)
            self._recorder.event(train_job, "Warning", _NOT_FOLLOWED_REASON, _NOT_FOLLOWED.format(live.key))
        self._judged[train_job.key] = state
        await self._settle(train_job)

    async def _settle(self, train_job: TrainJob) -> None:
        """Remove the note of a suspension from a TrainJob whose JobSet does not run, or needs no suspension.

        Raises:
            PendingError: the TrainJob was suspended again, or deleted.
        """
        if trainjob.note(train_job) is None:
            return
        try:
            patch = patches.remove_annotation(train_job, constants.SUSPENDED_ANNOTATION)
            await client.patch_lazily(self._client, train_job, patch)
        except NotFoundError as error:
            raise PendingError("the TrainJob was deleted meanwhile") from error
        except InvalidError as error:
            if not patches.is_stale(error):
                raise
            raise PendingError("the TrainJob was suspended meanwhile") from error

    async def _repair(self, runtime: Runtime, train_job: TrainJob, live: JobSet, *, adopted: bool) -> Applied:
        """Restore siblings of a running JobSet, unless the TrainJob has changed since the JobSet was built."""
        if ended(live) and not adopted and self._applier.applied(train_job.key):
            # No more pods are created, and this process has seen the siblings. A missing runtime is still reported.
            await runtime.require(train_job)
            return []
        _, siblings = objects.split(await runtime.new_objects(train_job))
        pending = [each for each in siblings if await self._applier.pending(train_job.key, each)]
        if not pending:
            self._missing.forget(train_job.key)
            return []
        job_set, _ = await objects.desired(runtime, train_job)
        if job_set is not None and not JobSetRule(live.to_dict()).holds(job_set.to_dict()):
            held = [each for each in pending if not isinstance(each, IndependentConfigMap)]
            if held:
                log.logger_from().info("Changes wait until the TrainJob is suspended", jobSet=str(live.key))
            if not ended(live):
                await self._missing.report(train_job, live, held)
            pending = [each for each in pending if isinstance(each, IndependentConfigMap)]
        return [(obj, await self._applier.apply(train_job.key, obj)) for obj in pending]

    async def _follow(self, train_job: TrainJob, live: JobSet, desired: JobSet) -> None:
        """Return once ``desired`` can be applied in place.

        The JobSet is deleted only if the server's dry run of the apply refuses a change of an immutable field, or shows
        a change that the existing Jobs would not follow.

        Raises:
            PendingError: the JobSet is being suspended, its Jobs are stopping, or it was deleted.
        """
        if self._applier.knows(train_job.key, desired, live):
            return
        wire = live.to_dict()
        rule = JobSetRule(wire)
        if rule.holds(desired.to_dict()):
            return
        refusal: StatusError | None = None
        try:
            preview = await self._send(desired, live, dry_run=True)
        except (ForbiddenError, InvalidError) as error:
            if _IMMUTABLE not in str(error):
                raise
            refusal = error
        else:
            if content(preview) == content(wire):
                self._applier.settle(train_job.key, desired, live)
            if rule.keeps(preview) or (rule.suspended and not rule.observed):
                return
        if not rule.suspended:
            await self._stop(live, desired, rule)
        await self._rebuild(train_job, live, desired, rule, refusal)

    async def _stop(self, live: JobSet, desired: JobSet, rule: JobSetRule) -> NoReturn:
        """Suspend a running JobSet exactly as it is. Raises PendingError until its Jobs are suspended."""
        await self._send(JobSet.from_dict(rule.suspended_as_it_is(desired.to_dict())), live)
        # No status reports the end of Jobs that were never created.
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
        """Delete a suspended JobSet in the foreground: the next JobSet would adopt remaining Jobs by name."""
        created = parse_time(live.metadata.creation_timestamp) if live.metadata.creation_timestamp else None
        if rule.active:
            message = f"Waiting until the Jobs of JobSet {live.key} have stopped"
            self._recorder.event(train_job, "Normal", _EVENT_REASON, message)
            raise PendingError(message, UNTIL_DELETED)
        if not rule.observed and created is not None and self._now() - created < _UNTIL_OBSERVED:
            raise PendingError(f"jobset {live.key}: its controller may be creating Jobs")
        wanted = msgspec.json.encode(desired.to_dict())
        before = self._rebuilt.get(train_job.key)
        if before is not None and before[0] == wanted and live.metadata.generation == 1:
            raise refusal or trainjob.ChildConflictError(
                f"jobset {live.key}: built again, and another writer changed it when it was created"
            )
        judged = {"uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version}
        preconditions = {field: value for field, value in judged.items() if value}
        try:
            await self._client.delete(live, propagation="Foreground", preconditions=preconditions)
        except ForbiddenError as error:
            if refusal is None:
                raise
            raise refusal from error
        self._rebuilt[train_job.key] = wanted, live.metadata.uid
        self._applier.forget(train_job.key)
        message = (
            f"JobSet {live.key} is built again: the TrainJob changed fields that are immutable in a JobSet"
        )
        self._recorder.event(train_job, "Normal", _EVENT_REASON, message)
        raise PendingError(message)

    async def _suspend(self, train_job: TrainJob) -> None:
        """Suspend the running JobSet of a suspended TrainJob whose objects cannot be built or are refused."""
        live = (await client.peek(self._client, JobSet, train_job.key)).object
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
