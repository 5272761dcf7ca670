# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for leases: a renewed lease stays with its holder, and a manager that is stopped releases its lease."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import anyio
import msgspec

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.fake.watches import Event
from controller_runtime.rest import CompleteResponse, Request, Response

from .loop import Process
from .network import WRITE_METHODS, Observer, is_fenced_write

_WRITE_TIMEOUT: Final = 45.0
"""Maximum seconds from sending a write until it is answered and its manager has ended."""


class Leases:
    """Checks each change of a lease. The duration of a lease begins when the server stores the lease."""

    def __init__(self, now: Callable[[], float], is_manager: Callable[[str], bool] = lambda _: True) -> None:
        """``is_manager`` returns True for the holder identity of a manager.

        All other holders are people, who may take any lease at any time.
        """
        self._now = now
        self._is_manager = is_manager
        self._stored: dict[str, float] = {}
        """When each lease was last written, by the lease's uid."""

    def see(self, event: Event) -> None:
        """Check a change. Raises AssertionError if a lease was taken before it expired, or if ``acquireTime`` or
        ``leaseTransitions`` is wrong.
        """
        if event.table.properties.gvk != Lease.gvk or event.type == "DELETED":
            return
        metadata, spec = event.document["metadata"], _spec(event.document)
        before, now = _spec(event.before), self._now()
        holder, left = before.get("holderIdentity"), self.left(event.before or event.document)
        self._stored[metadata["uid"]] = now
        taker = spec.get("holderIdentity")
        if holder and taker not in (holder, "", None) and left > 0 and self._is_manager(str(taker)):
            raise AssertionError(
                f"a lease was taken from its holder too early: {metadata['name']}: {left:.1f} s"
            )
        if event.before is not None and taker and self._is_manager(str(taker)):
            self._check_term(metadata["name"], before, spec)

    @staticmethod
    def _check_term(name: str, before: dict[str, Any], spec: dict[str, Any]) -> None:
        """Check that a renewal keeps ``acquireTime``, and that a new holder increases ``leaseTransitions`` by one."""
        began, terms = "acquireTime", "leaseTransitions"
        same = before.get("holderIdentity") == spec.get("holderIdentity")
        if same and before.get(began) != spec.get(began):
            raise AssertionError(f"a renewal changes when a lease was acquired: {name}")
        wanted = (before.get(terms) or 0) + (not same)
        if (spec.get(terms) or 0) != wanted:
            raise AssertionError(f"a lease has had {spec.get(terms)} transitions, not {wanted}: {name}")

    def left(self, lease: dict[str, Any]) -> float:
        """Return the seconds until a stored lease expires."""
        now = self._now()
        written = self._stored.get(lease["metadata"]["uid"], now)
        return written + float(_spec(lease).get("leaseDurationSeconds") or 0) - now


class LeaderWatcher(Observer):
    """Waits until a process becomes the leader."""

    def __init__(self) -> None:
        self._acquired = anyio.Event()
        self._name = ""

    async def new_leader(self) -> str:
        """Wait for the first process that sends a request to acquire a lease, and return its name."""
        await self._acquired.wait()
        return self._name

    def sends(self, process: Process, request: Request) -> None:
        """Note which process sends a request to acquire a lease."""
        if request.method not in WRITE_METHODS or "/leases" not in request.path:
            return
        spec = _spec(msgspec.json.decode(request.body or b"{}"))
        if spec.get("holderIdentity") and spec.get("acquireTime") == spec.get("renewTime"):
            self._name = process.name
            self._acquired.set()


class Holders(Observer):
    """Checks each request for a lease; calls ``fail`` with a description if a rule is broken."""

    def __init__(
        self,
        stored: Callable[[], list[dict[str, Any]]],
        left: Callable[[dict[str, Any]], float],
        fail: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self._stored = stored
        self._left = left
        self._now = now
        self._given_up: set[Process] = set()
        self._leading: set[Process] = set()
        """Processes that know from an answer that they hold the lease."""
        self._deposed: set[Process] = set()
        """Former leaders that have read that another process holds the lease."""
        self._unanswered: dict[Process, dict[int, tuple[Request, float]]] = {}
        """For each process, its unanswered writes and when it sent them, by ``id(request)``.

        Writes of leases and events are not included.
        """
        self._identities: dict[Process, str] = {}
        self._fail = fail
        self._open: dict[Process, int] = {}
        """For each stopped process, the number of its lease requests since the stop that have not succeeded."""

    def follow(self, process: Process, identity: str) -> None:
        """Record the holder identity of a process."""
        self._identities[process] = identity

    def stop(self, process: Process) -> None:
        """Note that a process is stopped, as a rollout does."""
        self._open.setdefault(process, 0)

    def sends(self, process: Process, request: Request) -> None:
        """Count a request. Fail if it is for a lease although its process has read that another process now leads."""
        if process in self._deposed and "/leases" in request.path:
            self._fail(f"a leader goes on although another holds its lease: {process.name}")
        if is_fenced_write(request):
            self._unanswered.setdefault(process, {})[id(request)] = request, self._now()
        if process in self._open and "/leases" in request.path:
            self._open[process] += 1

    def answered(self, process: Process, request: Request, response: Response) -> None:
        """Count a successful answer, and note if the process has learned from it who holds the lease."""
        self._unanswered.get(process, {}).pop(id(request), None)
        if "/leases/" in request.path or request.path.endswith("/leases"):
            self._learn(process, request, response)
        if process in self._open and "/leases" in request.path and _is_success(response):
            self._open[process] -= 1

    def _learn(self, process: Process, request: Request, response: Response) -> None:
        """Note if the process has learned from a response that it, or another process, holds the lease."""
        identity = self._identities.get(process)
        if not identity or not isinstance(response, CompleteResponse) or not _is_success(response):
            return
        holder = _spec(msgspec.json.decode(response.body)).get("holderIdentity")
        if request.method in WRITE_METHODS and holder == identity:
            self._leading.add(process)
        elif request.method == "GET" and holder not in (identity, "", None) and process in self._leading:
            self._deposed.add(process)

    def arrives(self, process: Process, request: Request) -> None:
        """Check, when a process releases a lease, that no other process holds it."""
        if request.method != "PUT" or "/leases/" not in request.path:
            return
        sent: dict[str, Any] = msgspec.json.decode(request.body or b"{}")
        if _spec(sent).get("holderIdentity"):
            return
        self._given_up.add(process)
        for lease in self._stored():
            newest = lease["metadata"]["resourceVersion"] == sent["metadata"].get("resourceVersion")
            if (
                newest
                and self._left(lease) > 0
                and _spec(lease).get("holderIdentity") not in (self._identities[process], "", None)
            ):
                self._fail(f"the lease of another is given up by {process.name}")

    def has_given_up(self, process: Process) -> bool:
        """Return True if a process has released its lease: it has sent the lease with an empty holder."""
        return process in self._given_up

    def ended(self, process: Process) -> None:
        """Check that a stopped process has released its lease.

        The process may keep the lease if one of its requests for the lease failed since the stop, or if the server may
        still perform one of its last writes.
        """
        open_requests, identity = self._open.pop(process, 1), self._identities[process]
        last = max((at for _, at in self._unanswered.pop(process, {}).values()), default=-math.inf)
        for lease in self._stored():
            recently = self._now() - last <= _WRITE_TIMEOUT + float(
                _spec(lease).get("leaseDurationSeconds") or 0
            )
            if (
                not (open_requests or recently)
                and identity
                and _spec(lease).get("holderIdentity") == identity
            ):
                self._fail(f"a manager that was stopped keeps its lease: {process.name}")


def _is_success(response: Response) -> bool:
    """Return True for a success with a complete JSON body. A proxy's page or an answer that was cut does not count."""
    if response.status >= 300 or not isinstance(response, CompleteResponse):
        return False
    try:
        msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return False
    return True


def _spec(document: dict[str, Any] | None) -> dict[str, Any]:
    return (document or {}).get("spec") or {}
