# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the library find what breaks them."""

import pytest

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import kinds
from controller_runtime.client.tables import Document, Table, key_of
from controller_runtime.simtest.history import Event
from controller_runtime.simtest.leases import Leases


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lease(holder: str) -> Document:
    metadata = {"namespace": "default", "name": "leader", "uid": "u"}
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


def changed(before: str | None, after: str) -> Event:
    table, document = Table(kinds.facts_for(Lease)), lease(after)
    old = None if before is None else lease(before)
    return Event(1, "MODIFIED" if old else "ADDED", table, key_of(document), document, old)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_may_be_renewed_released_and_taken_after_its_time(clock: Clock) -> None:
    leases = Leases(clock)
    for at, before, after in ((0, None, "a"), (5, "a", "a"), (20, "a", "b"), (21, "b", ""), (22, "", "a")):
        clock.now = at
        leases.see(changed(before, after))


def test_a_lease_that_is_taken_before_its_time_is_found(clock: Clock) -> None:
    leases = Leases(clock)
    leases.see(changed(None, "a"))
    clock.now = 10
    leases.see(changed("a", "a"))
    clock.now = 24
    with pytest.raises(AssertionError, match=r"too early: leader: 1\.0 s"):
        leases.see(changed("a", "b"))
