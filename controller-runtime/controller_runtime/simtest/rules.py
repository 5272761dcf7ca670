# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The promises of the library to every operator. They are checked in every life.

- A replica that has led does not write while another replica holds the lease.
- A read through the cache never goes back: its result is not older than that of an earlier read of the object, and not
  older than a write of this process that was answered before. If the watch gets past the version of our own write
  without reporting it, reads must not return the write any more. If our own write removed the last finalizer of an
  object, reads no longer return the object. A read finds every existing object that the watch has reported. A list
  contains exactly the objects that reads find, and none of them twice. A cache that was filled can be read even while
  access to its kind is denied.
- Two workers never reconcile the same request at the same time. If a request fails after a success, its first retry
  comes soon. No request is forgotten: see :mod:`.queuerules`.
- A manager ends only when it is stopped, loses its lease, or cannot reach the server.
- As long as a lease is renewed, it stays with its holder, unless a person takes it. If a leader reads that another
  process holds its lease, the leader ends. A manager that is stopped releases its own lease. It never releases the
  lease of another manager. After the last fault, one of the replicas leads.
- While our own write of an object is unanswered, handlers do not get changes of the object, but only for a short time.
  They are told of every state, once and in order. If a watch is refused for a short time, the cache resumes it: see
  :mod:`.cacherules`. An event that a manager sends is stored: see :mod:`.reportrules`.
- A cache has every change up to the version that its watch has reached. Some time after the last fault, every cache
  equals the server, its indices and the metrics of controllers are right, and no queue contains ready requests.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from controller_runtime import manager as managers
from controller_runtime import offload, source
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.cache import CacheDegradedError, CacheError, Reads
from controller_runtime.cache.codec import CachedObject
from controller_runtime.cache.informer import SharedInformer
from controller_runtime.client.live import still_exists
from controller_runtime.controller import Controller, outcomes
from controller_runtime.fake.requests import kind_of
from controller_runtime.fake.watches import Event as Change
from controller_runtime.leaderelection import LeaderElectionError
from controller_runtime.machinery import GVK, NamespacedName, PartialObjectMetadata
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.manager import Manager
from controller_runtime.reconcile import Func, Reconciler, Request, Result
from controller_runtime.rest import CompleteResponse, Response, RestError
from controller_runtime.rest import Request as Sent

from . import cacherules, queuerules
from .cacherules import Resumes, Told
from .leases import Holders, Leases
from .loop import Process
from .network import Observer, is_fenced_write
from .reportrules import Events, ReconcileCounts
from .server import SimulatedServer

ObjectRef = tuple[GVK, NamespacedName]
_FORESEEN: Final = (
    StatusError,
    RestError,
    CacheError,
    LeaderElectionError,
    managers.GracePeriodExceededError,
    managers.GroupStoppedError,
    managers.LostLeadershipError,
    managers.UnreachableError,
)
_SETTLED: Final = 180.0
"""Maximum seconds from the last fault until caches agree with the server.

A watch needs 70 seconds of this time to notice that it no longer receives anything.
"""
_POLL: Final = 10.0
_FIRST_RETRY: Final = 1.0
"""If a request fails after a success, its first retry must come within this many seconds."""


@dataclass(frozen=True, slots=True)
class Written:
    uid: str
    version: int
    ended: bool = False
    """True if the object was removed by this write: it was being deleted, and its last finalizer was removed."""


@dataclass
class ManagerReplica:
    """A manager, and its writes."""

    process: Process
    manager: Manager
    has_led: bool = False
    controllers: list[Controller] = field(default_factory=list)
    sources: dict[Controller, list[source.Source]] = field(default_factory=dict)
    """The sources that each controller had when it was added."""
    told: dict[SharedInformer, Told] = field(default_factory=dict)
    """What the handlers of each informer were told."""
    reconcilers: list[Reconciler] = field(default_factory=list)
    """The reconcilers of the controllers, which run inside a function that checks them."""
    answered: dict[asyncio.Task[Any] | None, dict[ObjectRef, Written]] = field(default_factory=dict)
    """For each task, the writes that were answered since the task's last read.

    The call that made the last of these writes may not have returned yet.
    """
    written: dict[ObjectRef, Written] = field(default_factory=dict)
    read: dict[tuple[Any, ObjectRef], Written] = field(default_factory=dict)
    """The version that the last read returned, for each class and object."""

    @property
    def identity(self) -> str:
        """The holder identity of the manager; empty without leader election."""
        return self.manager.identity


def is_foreseen(error: BaseException | None) -> bool:
    """Return True if ``error`` may end a manager. For a plain ManagerError, this depends on its cause."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_foreseen, error.exceptions))
    if type(error) is managers.ManagerError:
        return is_foreseen(error.__cause__)
    return isinstance(error, _FORESEEN)


class Rules(Observer):
    """Checks the rules for all replicas of the manager."""

    def __init__(
        self,
        server: SimulatedServer,
        now: Callable[[], float],
        failures: list[BaseException],
        on_change: Callable[[Callable[[Change], None]], None],
    ) -> None:
        """Append broken rules to ``failures``. ``on_change`` registers a function that is called with every change."""
        self._server = server
        self._now = now
        self._failures = failures
        self.replicas: dict[str, ManagerReplica] = {}
        self._writers: dict[Process, ManagerReplica] = {}
        """The replica of each process. Replicas that have ended are included, because their writes may arrive later."""
        self._sent: dict[int, tuple[Sent, float]] = {}
        """The writes that have not reached the server, and when they were sent, by ``id(request)``."""
        leases = Leases(now, lambda holder: holder in self._identities())
        stored = functools.partial(server.objects, Lease)
        self.leases = Holders(stored, leases.left, self.fail, now)
        self._events = Events(self.fail)
        self._metrics = ReconcileCounts()
        on_change(leases.see)
        on_change(self._events.see)

    @property
    def observers(self) -> list[Observer]:
        """All observers of requests."""
        return [self, Resumes(self.fail, self._now), self.leases, self._events]

    def follow(self, process: Process, manager: Manager) -> None:
        """Check a manager from now on. The manager must not have controllers yet."""
        replica = self.replicas[process.name] = self._writers[process] = ManagerReplica(process, manager)

        def added(runnable: object) -> None:
            if isinstance(runnable, Controller):
                self._follow_controller(runnable, replica)
                replica.controllers.append(runnable)
                replica.sources[runnable] = [*runnable._sources]

        def made(informer: SharedInformer) -> None:
            replica.told[informer] = Told(informer, lambda text: self.fail(f"{process.name}: {text}"))

        manager.on_add(added)
        manager.cache.on_informer(made)
        self._events.follow(process, manager)
        self.leases.follow(process, replica.identity)
        manager.cache.wrap(
            lambda reads: Reads(
                functools.partial(self._read, replica, reads.get),
                functools.partial(self._read, replica, reads.peek),
                functools.partial(self._list, replica, reads.list),
            )
        )

    def _follow_controller(self, controller: Controller, replica: ManagerReplica) -> None:
        working = set[Request]()
        succeeded = set[Request]()

        def watched(reconciler: Reconciler) -> Reconciler:
            replica.reconcilers.append(reconciler)
            reconcile = self._metrics.follow(controller, working, reconciler.reconcile)

            async def one_at_a_time(request: Request) -> Result:
                if request in working:
                    self.fail(f"a request is reconciled twice at once: {controller.name} {request}")
                working.add(request)
                try:
                    result = await reconcile(request)
                    succeeded.add(request)
                    return result
                finally:
                    working.discard(request)

            return Func(one_at_a_time)

        def short_at_first(request: Request, error: Exception, seconds: float) -> None:
            if request in succeeded and seconds > _FIRST_RETRY and outcomes.requested_delay(error) is None:
                self.fail(f"the first retry after a success comes late: {request}: {seconds:.1f} s")
            succeeded.discard(request)

        controller.wrap(watched)
        controller.on_retry(short_at_first)

    def fail(self, text: str) -> None:
        """Record that a rule is broken."""
        self._failures.append(AssertionError(text))

    # One writer.

    def sends(self, process: Process, sent: Sent) -> None:
        """Note when a write is sent."""
        if is_fenced_write(sent) and process in self._writers:
            self._sent[id(sent)] = sent, self._now()

    def arrives(self, process: Process, sent: Sent) -> None:
        """Check that a write comes from the leader. Writes of leases and events are not checked.

        A leader stops before its lease expires; the margin is the lease duration minus the renew deadline. A write that
        takes longer than this margin to reach the server may arrive while another process leads. After a process has
        released its lease, none of its writes may arrive while another process leads.
        """
        replica = self._writers.get(process)
        if replica is None or not is_fenced_write(sent) or not replica.identity:
            return
        now, holders = self._now(), self._holders()
        _, sent_at = self._sent.pop(id(sent), (sent, now))
        if replica.identity in holders:
            replica.has_led = True
        elif (replica.has_led or replica.manager.elected.is_set()) and holders & self._identities():
            options = replica.manager.options
            margin = options.lease_duration - options.renew_deadline
            if self.leases.has_given_up(process) or now - sent_at <= margin:
                self.fail(f"a replica wrote while another led: {process.name} {sent.method} {sent.path}")

    def _identities(self) -> set[str]:
        """Return the holder identities of all managers. People who take a lease use other identities."""
        return {replica.identity for replica in self._writers.values()} - {""}

    def _holders(self) -> set[str]:
        leases = self._server.objects(Lease)
        return {str(lease["spec"].get("holderIdentity") or "") for lease in leases}

    # Reads see our own writes.

    def answered(self, process: Process, sent: Sent, response: Response) -> None:
        """Note a write, except one of a lease or an event, that the server has answered."""
        replica = self.replicas.get(process.name)
        if replica is None or replica.process is not process or not is_fenced_write(sent):
            return
        gvk = kind_of(sent.path, self._server.tables)
        if gvk is None or "dryRun" in dict(sent.query):
            return
        if response.status >= 300 or not isinstance(response, CompleteResponse):
            return
        try:
            body = msgspec.json.decode(response.body)
        except msgspec.DecodeError:
            return
        if body.get("kind") == "PartialObjectMetadata":
            return  # not enough for a reader of the whole object
        metadata = body.get("metadata") or {}
        if "uid" in metadata:
            ref = gvk, NamespacedName(metadata.get("namespace", ""), metadata["name"])
            ended = "deletionTimestamp" in metadata and not still_exists(response.body)
            written = Written(metadata["uid"], int(metadata["resourceVersion"]), ended)
            replica.answered.setdefault(asyncio.current_task(), {})[ref] = written

    async def _read(
        self,
        replica: ManagerReplica,
        read: Callable[..., Awaitable[Any]],
        kind: Any,
        key: NamespacedName | tuple[str, str],
    ) -> Any:
        # This task has continued, so its calls that wrote have returned.
        for ref, written in replica.answered.pop(asyncio.current_task(), {}).items():
            before = replica.written.get(ref)
            if before is None or before.version < written.version:
                replica.written[ref] = written
        ref = kind.gvk, NamespacedName(*key)
        expected = replica.written.get(ref)
        try:
            obj = await read(kind, key)
        except NotFoundError:
            self._check_missing(replica, kind, ref)
            raise
        except CacheDegradedError:
            if (informer := _informer(replica, kind)) is not None and cacherules.is_readable(informer):
                self.fail(f"a cache that was filled cannot be read: {kind.gvk.kind}")
            raise
        metadata = obj.entry if isinstance(obj, CachedObject) else obj.metadata
        uid, version = metadata.uid, int(metadata.resource_version)
        if expected is not None and uid == expected.uid and version < expected.version:
            self.fail(f"a read is older than an own write: {kind.gvk.kind} {key[1]}")
        if expected is not None and uid == expected.uid and expected.ended:
            self.fail(
                f"a read returns an object whose deletion our own write completed: {kind.gvk.kind} {key[1]}"
            )
        informer = _informer(replica, kind)
        if informer is not None and cacherules.is_ghost(informer, ref[1]):
            self.fail(
                f"a read returns our own write although the watch has reported newer states: {kind.gvk.kind} {key[1]}"
            )
        reported = informer.store.observed(ref[1]) if informer is not None else None
        if reported is not None and uid == reported.uid and version < int(reported.resource_version):
            self.fail(f"a read is older than the last event: {kind.gvk.kind} {key[1]}")
        before = replica.read.get((kind, ref))
        if before is not None and uid == before.uid and version < before.version:
            self.fail(f"a read is older than the one before: {kind.gvk.kind} {key[1]}")
        replica.read[kind, ref] = Written(uid, version)
        return obj

    def _check_missing(self, replica: ManagerReplica, kind: Any, ref: ObjectRef) -> None:
        """Check, after a read that found nothing, that the object does not exist."""
        expected, informer = replica.written.get(ref), _informer(replica, kind)
        reported = informer.store.observed(ref[1]) if informer is not None else None
        if not all(
            cacherules.is_unselective(informer)
            for informer in _informers(replica)
            if informer.gvk == kind.gvk
        ):
            return
        if expected is not None and self._is_stored(ref, expected.uid):
            self.fail(f"a read does not find an own write: {kind.gvk.kind} {ref[1].name}")
        elif reported is not None and self._is_stored(ref, reported.uid):
            self.fail(f"a read does not find an object that exists: {kind.gvk.kind} {ref[1].name}")

    async def _list(
        self, replica: ManagerReplica, read: Callable[..., Awaitable[Any]], kind: Any, **options: Any
    ) -> Any:
        listed = await read(kind, **options)
        informer = _informer(replica, kind)
        # While a longer list is decoded, other tasks run and may change the cache.
        if (
            informer is not None
            and len(listed) < offload.STEP
            and not options.get("labels")
            and not options.get("limit")
        ):
            names = {(obj.namespace, obj.name) for obj in listed}
            if len(names) < len(listed):
                self.fail(f"a list contains an object twice: {kind.gvk.kind}")
            readable = {entry.key: entry for entry in cacherules.found(informer, options)}
            for key, entry in readable.items():
                if key not in names and not entry.too_large_reason:
                    self.fail(f"a list lacks an object that a read finds: {kind.gvk.kind} {entry.name}")
            for _, name in names - readable.keys():
                self.fail(f"a list contains an object that a read does not find: {kind.gvk.kind} {name}")
        return listed

    def _is_stored(self, ref: ObjectRef, uid: str) -> bool:
        gvk, key = ref
        table = next(table for table in self._server.tables.values() if table.properties.gvk == gvk)
        row = table.rows.get(key)
        return row is not None and row.document["metadata"]["uid"] == uid

    # Managers, caches and leases.

    def see_end(self, name: str, error: BaseException) -> None:
        """Check the error that ended a manager."""
        if not is_foreseen(error):
            self.fail(f"{name} ended: {type(error).__name__}: {error}")

    async def watch_caches(self) -> None:
        """Check, for the whole life, that watches skip no change and that handlers receive each change in time.

        Also check that no queue forgets a request.
        """
        delayed: set[tuple[NamespacedName, int]] = set()
        suspected: dict[object, str] = {}
        while True:
            await anyio.sleep(_POLL)
            before, delayed = delayed, set()
            earlier, suspected = suspected, {}
            for name, replica in self._running():
                if replica.process.paused:
                    continue
                suspected |= {(replica.process, key): text for key, text in _suspicions(replica)}
                for informer in _informers(replica):
                    delayed.update(cacherules.held_back(informer))
                    for key, _ in delayed & before:
                        self.fail(f"{name}: a change is kept from handlers: {informer.gvk.kind} {key.name}")
                    for problem in cacherules.missed(self._server, informer):
                        self.fail(f"{name}: {problem}")
            for lasting in earlier.keys() & suspected.keys():
                self.fail(suspected[lasting])

    def _running(self) -> Iterator[tuple[str, ManagerReplica]]:
        for name, replica in sorted(self.replicas.items()):
            if not (replica.process.dead or replica.process.ended.is_set()):
                yield name, replica

    # The end.

    async def check_rest(self) -> None:
        """Wait until caches agree with the server and queues are empty. Raises AssertionError if that takes long."""
        with anyio.move_on_after(_SETTLED):
            while next(self._unrest(), None) is not None:  # noqa: ASYNC110 -- many things must hold at once
                await anyio.sleep(_POLL)
        for problem in self._unrest():
            raise AssertionError(problem)

    def _unrest(self) -> Iterator[str]:
        identities = {replica.identity for _, replica in self._running()} - {""}
        if identities and not identities & self._holders():
            yield "no replica leads"
        for name, replica in self._running():
            for informer in _informers(replica):
                problems = cacherules.disagreements(self._server, informer)
                yield from (f"{name}: {problem}" for problem in problems)
            yield from (f"{name}: {text}" for _, text in _suspicions(replica))
            for controller, sources in replica.sources.items():
                yield from (f"{name}: {text}" for text in queuerules.undelivered(controller, sources))
            for controller in replica.controllers:
                if len(controller.queue) or controller.queue.in_progress:
                    yield f"{name}: a queue holds work that is ready: {controller.name}"
        yield from self._metrics.problems()


def _suspicions(replica: ManagerReplica) -> Iterator[tuple[object, str]]:
    """Yield the key and the description of each thing that is a problem if it lasts."""
    for controller in replica.controllers:
        for text in queuerules.forgotten(controller):
            yield text, text
    for informer in _informers(replica):
        for key, state in replica.told[informer].untold():
            yield (
                (informer, key, state),
                f"handlers are not told of the newest state: {informer.gvk.kind} {key.name}",
            )


def _informer(replica: ManagerReplica, kind: Any) -> SharedInformer | None:
    partial = issubclass(kind, PartialObjectMetadata)
    of_kind = (
        informer
        for informer in _informers(replica)
        if informer.gvk == kind.gvk and informer.metadata_only == partial
    )
    return next(of_kind, None)


def _informers(replica: ManagerReplica) -> list[SharedInformer]:
    return [informer.shared for informer in replica.manager.cache.informers()]
