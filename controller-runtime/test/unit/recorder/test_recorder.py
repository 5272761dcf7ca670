# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from controller_runtime import log, recorder, rest
from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.client import LiveClient, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ForbiddenError

POD = Pod.from_dict({
    "metadata": {"namespace": "team-a", "name": "p", "uid": "u1", "resourceVersion": "7"},
    "spec": {"containers": []},
})  # fmt: skip


def now() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=anyio.current_time() - 1000)


@asynccontextmanager
async def running(client: Any, **options: Any) -> AsyncIterator[recorder.SourceRecorder]:
    broadcaster = recorder.Broadcaster(client, now=now, rng=lambda: 0.5, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broadcaster.start)
        yield broadcaster.recorder_for("me")
        tasks.cancel_scope.cancel()


async def stored(client: FakeClient) -> list[Event]:
    return await client.list(Event)


async def test_an_event_has_what_kubectl_and_the_sdk_read() -> None:
    client = FakeClient()
    async with running(client) as source:
        source.event(POD, "Warning", "Broken", "it is broken")
        await anyio.wait_all_tasks_blocked()
    (event,) = await stored(client)
    data = event.to_dict()
    assert event.name.startswith("p.")
    assert {key: data[key] for key in data if key not in ("metadata", "apiVersion", "kind")} == {
        "involvedObject": {
            "kind": "Pod",
            "namespace": "team-a",
            "name": "p",
            "uid": "u1",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
        "reason": "Broken",
        "message": "it is broken",
        "source": {"component": "me"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        "type": "Warning",
        "reportingComponent": "me",
        "reportingInstance": "",
    }


async def test_an_event_about_a_cluster_scoped_object_goes_to_default() -> None:
    client = FakeClient()
    async with running(client) as source:
        source.event(
            Pod.from_dict({"metadata": {"name": "x"}, "spec": {"containers": []}}), "Normal", "A", "b"
        )
        await anyio.wait_all_tasks_blocked()
    assert (await stored(client))[0].namespace == "default"


async def test_percent_signs_of_a_message_stay() -> None:
    client = FakeClient()
    async with running(client) as source:
        source.event(POD, "Warning", "Broken", "100%sure %d")
        await anyio.wait_all_tasks_blocked()
    assert (await stored(client))[0].message == "100%sure %d"


async def test_the_same_event_again_raises_the_count_and_the_last_time() -> None:
    client = FakeClient()
    async with running(client) as source:
        for _ in range(3):
            source.eventf(POD, "Warning", "Broken", "%s is broken", "it")
            await anyio.sleep(60)
    (event,) = await stored(client)
    assert (event.count, event.first_timestamp, event.last_timestamp) == (
        3,
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:06:05Z",
    )


async def test_an_event_whose_answer_was_lost_is_counted_on_when_it_happens_again() -> None:
    client, answers = FakeClient(), [rest.TransportError("the answer was lost", host="h")]

    async def create(inner: Any, obj: Any, **options: Any) -> Any:
        made = await inner.create(obj, **options)
        if answers:
            raise answers.pop()
        return made

    async with running(interceptor.wrap(client, interceptor.Funcs(create=create))) as source:
        for _ in range(2):
            source.event(POD, "Warning", "Broken", "it is broken")
            await anyio.sleep(60)
    assert [event.count for event in await stored(client)] == [2]


async def test_the_tenth_message_of_a_reason_is_combined_with_what_follows() -> None:
    client = FakeClient()
    async with running(client) as source:
        for number in range(12):
            source.event(POD, "Warning", "Broken", f"broken {number}")
        await anyio.wait_all_tasks_blocked()
    events = {event.message: event.count for event in await stored(client)}
    assert len(events) == 10
    assert events["(combined from similar events): broken 11"] == 3


async def test_messages_far_apart_are_not_combined() -> None:
    client = FakeClient()
    async with running(client) as source:
        for number in range(12):
            source.event(POD, "Warning", "Broken", f"broken {number}")
            await anyio.sleep(601)
    assert len(await stored(client)) == 12


async def test_a_source_says_25_things_at_once_about_an_object_then_one_in_five_minutes() -> None:
    client = FakeClient()
    async with running(client) as source:
        for _ in range(30):
            source.event(POD, "Warning", "Broken", "same")
        await anyio.wait_all_tasks_blocked()
        assert len(client.writes) == 25
        await anyio.sleep(300)
        for _ in range(3):
            source.event(POD, "Warning", "Broken", "same")
        await anyio.wait_all_tasks_blocked()
        assert len(client.writes) == 26
    assert (await stored(client))[0].count == 31


async def test_an_event_whose_stored_one_is_gone_is_made_anew_with_its_count() -> None:
    client = FakeClient()
    async with running(client) as source:
        source.event(POD, "Warning", "Broken", "same")
        await anyio.wait_all_tasks_blocked()
        await client.delete((await stored(client))[0])
        source.event(POD, "Warning", "Broken", "same")
        await anyio.wait_all_tasks_blocked()
    (event,) = await stored(client)
    assert event.count == 2


def failing(times: int, error: Exception) -> tuple[FakeClient, interceptor.Intercepted, Callable[[], int]]:
    tried = 0

    async def create(client: FakeClient, obj: Event, **options: Any) -> Event:
        nonlocal tried
        tried += 1
        if tried <= times:
            raise error
        return await client.create(obj, **options)

    client = FakeClient()
    return client, interceptor.wrap(client, interceptor.Funcs(create=create)), lambda: tried


async def test_a_server_that_is_away_is_asked_again_after_half_then_whole_periods() -> None:
    client, broken, tried = failing(2, rest.TransportError("away", host="h"))
    async with running(broken) as source:
        source.event(POD, "Normal", "A", "b")
        await anyio.sleep(4.9)
        assert tried() == 1
        await anyio.sleep(0.2)
        assert tried() == 2
        await anyio.sleep(10)
        assert len(await stored(client)) == 1


@pytest.mark.parametrize(
    ("times", "error"),
    [
        pytest.param(1, ForbiddenError("no", code=403, reason="Forbidden"), id="refused"),
        pytest.param(1, KeyError("a bug of the writer"), id="not written"),
        pytest.param(12, rest.TransportError("away", host="h"), id="given up"),
    ],
)
async def test_an_event_that_was_not_stored_does_not_count(times: int, error: Exception) -> None:
    client, broken, _ = failing(times, error)
    async with running(broken) as source:
        for _ in range(2):
            source.event(POD, "Warning", "Broken", "same")
            await anyio.sleep(200)
    assert [event.count for event in await stored(client)] == [1]


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        pytest.param(
            rest.FakeResponse(200, b"<html>", headers={"Content-Type": "text/html"}), True, id="a page"
        ),
        pytest.param(rest.FakeResponse(200, b"<html>"), True, id="a page without a type"),
        pytest.param(rest.FakeResponse(204), True, id="nothing"),
        pytest.param(rest.FakeResponse(307), True, id="a redirect"),
        pytest.param(rest.FakeResponse(201, {"metadata": {"name": "another"}}), True, id="another object"),
        pytest.param(rest.FakeResponse(201, b"[" * 100_000), True, id="deep"),
        pytest.param(
            rest.FakeResponse(403, {"kind": "Status", "details": {"causes": 7}}), False, id="odd causes"
        ),
        pytest.param(
            rest.FakeResponse(500, b"\xff", headers={"Retry-After": "9" * 400}), False, id="odd wait"
        ),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
async def test_any_answer_is_an_error_of_that_event_alone(
    answer: rest.FakeResponse, again: bool, counted: bool
) -> None:
    sent: list[rest.Request] = []

    def respond(request: rest.Request) -> rest.FakeResponse:
        sent.append(request)
        return answer if len(sent) == 1 + counted else rest.FakeResponse(201, request.body or b"")

    def served(request: rest.Request) -> rest.FakeResponse:
        made = respond(request)
        if request.method == "PATCH" and made is not answer:
            return rest.FakeResponse(200, {"metadata": {"name": request.path.rpartition("/")[2]}})
        return made

    async with running(LiveClient(rest.FakeTransport(served))) as source:
        for _ in range(1 + counted):
            source.event(POD, "Normal", "A", "first")
        source.event(POD, "Normal", "B", "last")
        await anyio.sleep(30)
        assert len(sent) == 2 + counted + again
        source.event(POD, "Normal", "B", "last")
        await anyio.wait_all_tasks_blocked()
        assert sent[-1].method == "PATCH"


@pytest.mark.parametrize(
    ("name", "message"), [("p", "half of \ud83d"), ("../../secrets", "a")], ids=["text", "path"]
)
async def test_an_event_that_no_request_can_carry_is_dropped(name: str, message: str) -> None:
    sent: list[rest.Request] = []

    def served(request: rest.Request) -> rest.FakeResponse:
        sent.append(request)
        return rest.FakeResponse(201, request.body or b"")

    async with running(LiveClient(rest.FakeTransport(served))) as source:
        odd = Pod.from_dict({"metadata": {"namespace": name, "name": name}, "spec": {"containers": []}})
        source.event(odd, "Normal", "A", message)
        source.event(POD, "Normal", "B", "last")
        await anyio.wait_all_tasks_blocked()
    assert [b'"last"' in (each.body or b"") for each in sent] == [True]


async def test_what_is_queued_is_sent_before_the_end() -> None:
    client = FakeClient()
    async with running(client) as source:
        source.event(POD, "Normal", "A", "b")
    assert len(await stored(client)) == 1


async def test_the_end_waits_five_seconds_for_a_server_that_is_away() -> None:
    _, broken, tried = failing(9, rest.TransportError("away", host="h"))
    async with running(broken) as source:
        source.event(POD, "Normal", "A", "b")
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
    assert (anyio.current_time() - began, tried()) == (5, 2)


async def test_a_full_queue_loses_events_and_telling_never_waits() -> None:
    client = FakeClient()
    async with running(client, capacity=5) as source:
        for number in range(8):
            source.event(POD, "Normal", f"R{number}", "b")
        await anyio.wait_all_tasks_blocked()
        with log.captured() as lines:
            for _ in range(2):
                source.event(POD, "Normal", "Later", "b")
    assert len(await stored(client)) == 6
    told = "Events were lost because too many were queued"
    assert [line["lost"] for line in lines if line["event"] == told] == [3]


@pytest.mark.parametrize("terminating", [True, False])
async def test_a_refused_event_is_an_error_unless_its_namespace_is_going(terminating: bool) -> None:
    causes = [{"reason": "NamespaceTerminating" if terminating else "Other"}]
    status = {"kind": "Status", "reason": "Forbidden", "message": "no", "details": {"causes": causes}}
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(403, status))
    with log.captured() as lines:
        async with running(LiveClient(transport)) as source:
            source.event(POD, "Normal", "A", "b")
            await anyio.wait_all_tasks_blocked()
    assert ("Event was refused" in [line["event"] for line in lines]) is not terminating


async def test_an_event_that_is_recorded_once_survives_a_restart_alone() -> None:
    client = FakeClient()
    for message, key in (("first", "a"), ("after a restart", "a"), ("other", "b")):
        async with running(client) as recording:
            recording.event_once(POD, "Warning", "Broken", message, key=key)
            await anyio.wait_all_tasks_blocked()
    assert sorted((event.message or "", event.count) for event in await stored(client)) == [
        ("first", 1),
        ("other", 1),
    ]
    assert [call.verb for call in client.calls if call.is_write] == ["create"] * 3
    again = Pod.from_dict({"metadata": {**POD.metadata.to_dict(), "uid": "u2"}, "spec": {"containers": []}})
    async with running(client) as recording:
        recording.event_once(again, "Warning", "Broken", "another pod of that name", key="a")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ValueError, match="must be Normal or Warning"):
            recording.event_once(POD, "Odd", "A", "b")
    assert len(await stored(client)) == 3


async def test_an_unknown_type_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="must be Normal or Warning"):
        recorder.Broadcaster(FakeClient()).recorder_for("me").event(POD, "Error", "A", "b")
