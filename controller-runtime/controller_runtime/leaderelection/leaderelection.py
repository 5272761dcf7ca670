# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Leader election: one of several replicas holds a Lease and renews it; the other replicas wait until the Lease
expires.

Guarantee: a holder that cannot renew the lease gives up before another replica may take it. Two rules ensure this. A
waiting replica measures time from the moment at which it *observed* a change of the record, on its own monotonic clock;
clocks of different machines are never compared. A holder measures time from the moment at which it *began* the last
successful renewal, and every call to the server has a deadline within the remaining time.

LeaderElectionError
├── LeaderElectionLostError   the lease could not be kept: end the process
└── InvalidTimingError        the durations do not give the guarantee
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import anyio

from controller_runtime import log, metrics
from controller_runtime.apis.coordination.v1 import Lease, LeaseSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Client
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import ConflictError, NotFoundError, StatusError
from controller_runtime.machinery.meta import format_micro_time
from controller_runtime.rest import ConnectError, RestError

JITTER: Final = 1.2
_LEASE_FRACTION: Final = 0.9
"""A holder gives up after this fraction of the lease's duration at the latest, regardless of the other durations."""
_DEADLINE_FRACTION: Final = 0.98
"""A holder gives up after this fraction of the renew deadline."""
_LONGEST_LEASE: Final = 2**31 - 1
"""The longest duration of a lease in seconds: the API's field is an int32."""

_log = log.logger_from("leader-election")


class LeaderElectionError(Exception):
    """The base class of the errors of leader election."""


class LeaderElectionLostError(LeaderElectionError):
    """The lease could not be renewed, or another replica holds it."""


class InvalidTimingError(LeaderElectionError):
    """The durations contradict each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Durations in seconds: how long a lease is valid, how long a holder tries to renew it, and how long it waits
    between two tries.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def validate(self) -> None:
        """Check that a holder gives up before its lease expires.

        Raises:
            InvalidTimingError: the durations do not ensure this.
        """
        if self.lease_duration < 1 or self.renew_deadline <= 0 or self.retry_period <= 0:
            raise InvalidTimingError("lease duration, renew deadline and retry period must be positive")
        if self.lease_duration <= self.renew_deadline:
            raise InvalidTimingError("lease duration must be greater than renew deadline")
        if self.renew_deadline <= JITTER * self.retry_period:
            raise InvalidTimingError(f"renew deadline must be greater than retry period*{JITTER}")

    @property
    def tenure(self) -> float:
        """A holder gives up this many seconds after the start of its last successful renewal."""
        # The holder gives up a little before the deadline, so that a request in flight at that moment still arrives in
        # time.
        return min(_DEADLINE_FRACTION * self.renew_deadline, _LEASE_FRACTION * self.lease_duration)


class LeaderElector:
    """Acquires, renews and releases the lease ``key`` for ``identity``.

    Call :meth:`acquire`, then :meth:`renew` until it raises or is cancelled, then :meth:`release`. The client
    must read from the server, not from a cache.
    """

    def __init__(
        self,
        client: Client,
        key: NamespacedName,
        identity: str,
        timing: Timing | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._key = key
        self._identity = identity
        self._timing = timing or Timing()
        self._timing.validate()
        self._now = now
        self._rng = rng
        self._observed: Lease | None = None
        self._observed_at = float("-inf")
        self._renewed_at = float("-inf")
        self._led = False
        self._unanswered = False
        """True if we do not know whether the last write was stored: it was cancelled, or its answer was lost."""
        metrics.LEADER_STATUS.labels(key.name).set(0)

    @property
    def identity(self) -> str:
        """The identity of this replica in the lease."""
        return self._identity

    @property
    def lease(self) -> Lease:
        """The lease as it was last seen. If it has not been seen yet, this is a lease with only the name."""
        return self._observed or Lease(metadata=self._metadata())

    @property
    def leader(self) -> str:
        """The holder of the lease when the lease was last seen."""
        return (self._observed.spec.holder_identity or "") if self._observed else ""

    @property
    def is_leader(self) -> bool:
        """Whether we may act: the lease is ours, and our tenure is not over."""
        return self.leader == self._identity and anyio.current_time() < self.tenure_ends

    @property
    def may_act(self) -> bool:
        """True before the program leads for the first time, and while the lease is ours: then it may write."""
        return not self._led or self.is_leader

    async def acquire(self) -> None:
        """Return when the lease is ours. Errors of the server are logged, and the request is tried again."""
        _log.info("Attempting to acquire leader lease", lease=self._key)
        reported = ""
        while not await self._try_once(self._timing.renew_deadline / 2):
            if self.leader != reported:
                reported = self.leader
                _log.info("New leader elected", lease=self._key, leader=reported)
            await anyio.sleep(self._until_next_look())
        self._led = True
        metrics.LEADER_STATUS.labels(self._key.name).set(1)
        _log.info("Successfully acquired lease", lease=self._key, identity=self._identity)

    def _until_next_look(self) -> float:
        """Return the seconds until the next attempt: a jittered period, or less if the lease expires sooner."""
        period = self._timing.retry_period * (1 + (JITTER - 1) * self._rng())
        if self._observed is None or self.leader in {"", self._identity}:
            return period
        left = self._observed_at + self._duration(self._observed) - anyio.current_time()
        return min(period, left) if left > 0 else period

    async def renew(self) -> None:
        """Keep the lease until cancelled.

        Raises:
            LeaderElectionLostError: the lease could not be renewed; the caller must stop acting at once.
        """
        try:
            while True:
                await anyio.sleep(self._timing.retry_period)
                await self._renew_in_time()
        finally:
            metrics.LEADER_STATUS.labels(self._key.name).set(0)

    async def release(self) -> None:
        """Release the lease if it is ours, so that the next leader need not wait. A failure is only logged."""
        if not self.is_leader and (self._led or not self._unanswered):
            return
        try:
            with anyio.fail_after(self._timing.renew_deadline / 2):
                if await self._give_up():
                    _log.info("Released lease", lease=self._key)
        except NotFoundError:
            return
        except (StatusError, RestError, TimeoutError) as error:
            _log.error("Failed to release lease", lease=self._key, error=error)

    async def _give_up(self) -> bool:
        """Make the lease free, unless another replica holds it. Return True if the lease is free now."""
        # A write may have been cancelled when the program stopped. If the server handles that write later, it conflicts
        # with our write of the free lease.
        while True:
            if self._unanswered:
                self._observe(await self._client.get(Lease, self._key))
            current = self._observed
            if current is None or not (self.leader in {"", self._identity} or self._has_lapsed(current)):
                return False
            try:
                await self._write(self._client.update(self._with(current, self._free(current))))
            except ConflictError:
                self._unanswered = True  # our own write, or another replica's, was stored meanwhile
            else:
                return True

    def _free(self, lease: Lease) -> LeaseSpec:
        now = format_micro_time(self._now())
        return LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=now,
            renew_time=now,
            lease_transitions=lease.spec.lease_transitions,
        )

    @property
    def tenure_ends(self) -> float:
        """The time, on the monotonic clock, at which a holder gives up. Each renewal moves it to a later time."""
        return self._renewed_at + self._timing.tenure

    async def _renew_in_time(self) -> None:
        while True:
            left = self.tenure_ends - anyio.current_time()
            if left <= 0:
                raise LeaderElectionLostError(
                    f"leader election lost: lease {self._key} was not renewed in time"
                )
            if await self._try_once(min(left, self._timing.renew_deadline / 2)):
                return
            if self.leader != self._identity:
                raise LeaderElectionLostError(
                    f"leader election lost: lease {self._key} is held by {self.leader or 'no replica'}"
                )
            left = self.tenure_ends - anyio.current_time()
            await anyio.sleep(max(0.0, min(left, self._timing.retry_period)))

    async def _try_once(self, deadline: float) -> bool:
        """Acquire or renew within ``deadline`` seconds; return True if the lease is ours now."""
        began = anyio.current_time()
        try:
            with anyio.fail_after(deadline):
                leads = await self._acquire_or_renew()
        except TimeoutError:
            _log.error("Failed to update lease", lease=self._key, error=f"no answer within {deadline:g} s")
            return False
        except (StatusError, RestError) as error:
            _log.error("Failed to update lease", lease=self._key, error=error)
            return False
        if leads:
            self._renewed_at = began
        return leads

    async def _acquire_or_renew(self) -> bool:
        if self._observed is not None and self.is_leader:
            # The holder's own copy of the lease is usually the newest one, so the lease need not be read.
            try:
                return await self._write(self._client.update(self._ours(self._observed)))
            except (ConflictError, NotFoundError) as error:
                _log.info("Lease changed, reading it again", lease=self._key, error=error)
        try:
            current = await self._client.get(Lease, self._key)
        except NotFoundError:
            return await self._write(self._client.create(self._ours(None)))
        self._observe(current)
        if self.leader not in {"", self._identity} and not self._has_lapsed(current):
            return False
        return await self._write(self._client.update(self._ours(current)))

    async def _write(self, request: Awaitable[Lease]) -> bool:
        """Wait for the answer to a write, and remember its lease. Return True if the lease names us as the holder."""
        before, self._unanswered = self._unanswered, True
        try:
            self._observe(await request)
        except ConnectError:
            self._unanswered = before  # nothing was sent
            raise
        except StatusError as error:
            self._unanswered = error.code >= 500  # the server may have stored the write nevertheless
            raise
        self._unanswered = False
        return self.leader == self._identity

    def _observe(self, lease: Lease) -> None:
        # A holder changes the record at each renewal. The time of our observation counts, not the times in the record.
        if self._observed is None or lease.spec != self._observed.spec:
            self._observed_at = anyio.current_time()
        self._observed = lease

    def _has_lapsed(self, lease: Lease) -> bool:
        return anyio.current_time() >= self._observed_at + self._duration(lease)

    def _duration(self, lease: Lease) -> float:
        return min(lease.spec.lease_duration_seconds or self._timing.lease_duration, _LONGEST_LEASE)

    def _ours(self, current: Lease | None) -> Lease:
        """Return ``current`` with us as the holder, renewed now. If ``current`` is None, return a new lease."""
        now = format_micro_time(self._now())
        before = current.spec if current is not None else None
        acquired, transitions = now, 0
        if before is not None:
            transitions = before.lease_transitions or 0
            if before.holder_identity == self._identity:
                acquired = before.acquire_time or now
            else:
                transitions += 1
        spec = LeaseSpec(
            holder_identity=self._identity,
            # The API allows only whole seconds: round up, so that other replicas never wait for a shorter time than we
            # act.
            lease_duration_seconds=math.ceil(self._timing.lease_duration),
            acquire_time=acquired,
            renew_time=now,
            lease_transitions=transitions,
        )
        return self._with(current, spec)

    def _with(self, current: Lease | None, spec: LeaseSpec) -> Lease:
        if current is None:
            return Lease(metadata=self._metadata(), spec=spec)
        changed = current.deep_copy()
        changed.spec = spec
        changed.metadata.namespace, changed.metadata.name = self._key
        return changed

    def _metadata(self) -> ObjectMeta:
        return ObjectMeta(namespace=self._key.namespace, name=self._key.name)
