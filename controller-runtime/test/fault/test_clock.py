# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which manager leads, and for how long, when wall clocks jump and when the lease cannot be written."""

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually

pytestmark = pytest.mark.fault
LEASE_SECONDS = 15


async def test_wall_clocks_ten_minutes_off_change_no_leader(
    client: LiveClient, namespace: str, start: Any, contends: Any, work: Any, figure: Any, tmp_path: Path
) -> None:
    clocks = {}
    for name, offset in (("first", 0), ("ahead", 600), ("behind", -600)):
        clocks[name] = tmp_path / f"{name}.clock"
        clocks[name].write_text(str(offset))
    start("first", clock=clocks["first"])
    await eventually(work, timeout=60, reason="the leader works")
    for name in ("ahead", "behind"):
        start(name, clock=clocks[name])
        await contends(name)
    for offset in (600, -600):
        fresh = clocks["first"].with_suffix(".fresh")
        fresh.write_text(str(offset))
        fresh.replace(clocks["first"])
        await anyio.sleep(LEASE_SECONDS + 3)
        lease = await client.get(Lease, (namespace, "lock"))
        assert lease.spec.renew_time is not None
        off = datetime.fromisoformat(lease.spec.renew_time) - datetime.now(UTC)
        assert abs(off.total_seconds() - offset) < 10, "the wall clock is not off by the offset"
    figure(
        "wall clock ±10 min: changes of leader", lease.spec.lease_transitions or 0, at_most=0, unit="changes"
    )
    done = work()
    assert {agent for agent, _ in done} == {"first"}
    pauses = [later - sooner for (_, sooner), (_, later) in itertools.pairwise(done)]
    figure("wall clock ±10 min: longest pause in the leader's work", max(pauses), at_most=3)


async def test_a_leader_that_cannot_renew_stops_writing_before_the_lease_lapses(
    namespace: str, start: Any, contends: Any, work: Any, writes: Any, proxy: Any, figure: Any
) -> None:
    first = start("first", server=proxy.url)
    await eventually(work, timeout=60, reason="the leader works")
    start("second")
    await contends("second")
    proxy.hold = lambda seen: "/leases" in seen.path and seen.method != "GET"

    async def second_works() -> bool:
        return "second" in {agent for agent, _ in work()}

    await eventually(second_works, timeout=40, reason="the standby takes over")
    assert first.wait(timeout=30) != 0

    def received(entry: dict[str, Any]) -> float:
        return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()

    mine = [each for each in writes(namespace) if each["userAgent"] == "first"]
    renewals = [each for each in mine if each["objectRef"]["resource"] == "leases"]
    last = max(received(each) for each in mine if each not in renewals)
    # Both times are those at which the server received the request; the holder's deadline for the next renewal counts
    # from before it sent this one.
    figure(
        "lease writes blocked: last write after the last renewal",
        last - max(map(received, renewals)),
        at_most=10,
    )
    assert [agent for agent, _ in itertools.groupby(agent for agent, _ in work())] == ["first", "second"]
