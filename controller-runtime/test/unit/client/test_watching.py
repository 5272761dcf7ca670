# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The watch of a live client: existing objects, changes, bookmarks, broken connections, and errors that end it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import anyio
import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient, Watch, Watcher
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import errors

Answer = Callable[[], rest.FakeResponse]


def line(type_: str, name: str, version: int) -> bytes:
    metadata = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return json.dumps({"type": type_, "object": {"metadata": metadata}}).encode()


def bookmark(version: int) -> bytes:
    return json.dumps(
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}
    ).encode()


def refusal(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"}


def lines(*each: bytes, end: Exception | None = None, quiet: bool = False) -> Answer:
    async def iterate() -> AsyncIterator[bytes]:
        for one in each:
            yield one
        if quiet:
            await anyio.sleep_forever()
        if end is not None:
            raise end

    return lambda: rest.FakeResponse(lines=iterate())


def answer(status: int, body: Any) -> Answer:
    return lambda: rest.FakeResponse(status, body)


def serving(*answers: Answer) -> tuple[LiveClient, rest.FakeTransport]:
    left = iter(answers)
    transport = rest.FakeTransport(lambda _: next(left)())
    return LiveClient(transport), transport


async def take(watch: Watch[ConfigMap], count: int) -> list[str]:
    return [f"{event.type} {event.object.name}" for event in [await anext(watch) for _ in range(count)]]


def versions(requests: Iterable[rest.Request]) -> list[str | None]:
    return [dict(request.query).get("resourceVersion") for request in requests]


async def test_what_exists_comes_first_then_changes_after_the_list() -> None:
    items = [{"metadata": {"name": name}} for name in "ab"]
    listed = answer(200, {"metadata": {"resourceVersion": "7"}, "items": items})
    client, transport = serving(listed, lines(line("MODIFIED", "a", 8), line("DELETED", "b", 9), quiet=True))
    watcher: Watcher = client
    async with watcher.watch(ConfigMap, namespace="n", labels={"x": "y"}, fields={"f": "g"}) as watch:
        assert await take(watch, 4) == ["ADDED a", "ADDED b", "MODIFIED a", "DELETED b"]
        assert watch.resource_version == "9"
    assert versions(transport.requests) == [None, "7"]
    assert {dict(request.query)["labelSelector"] for request in transport.requests} == {"x=y"}
    assert {dict(request.query)["fieldSelector"] for request in transport.requests} == {"f=g"}
    assert dict(transport.requests[1].query)["allowWatchBookmarks"] == "true"


async def test_a_connection_that_ends_breaks_or_is_cut_off_continues_after_the_last_event() -> None:
    client, transport = serving(
        lines(line("ADDED", "a", 2)),
        lines(line("ADDED", "b", 3), end=rest.TransportError("broken")),
        lines(line("ADDED", "c", 4), b'{"type":"ADDED","object":{"metad'),
        answer(503, refusal(503, "ServiceUnavailable")),
        lines(line("ADDED", "d", 5), quiet=True),
    )
    async with client.watch(ConfigMap, resource_version="1") as watch:
        assert await take(watch, 4) == ["ADDED a", "ADDED b", "ADDED c", "ADDED d"]
    assert versions(transport.requests) == ["1", "2", "3", "4", "4"]


async def test_bookmarks_move_the_place_from_which_a_quiet_watch_continues() -> None:
    client, transport = serving(lines(bookmark(50), quiet=True), lines(line("ADDED", "a", 51), quiet=True))
    began = anyio.current_time()
    async with client.watch(ConfigMap, resource_version="1") as watch:
        assert await take(watch, 1) == ["ADDED a"]
    assert versions(transport.requests) == ["1", "50"]
    assert anyio.current_time() - began == pytest.approx(70)


@pytest.mark.parametrize(
    "expired",
    [
        answer(410, refusal(410, "Expired")),
        lines(json.dumps({"type": "ERROR", "object": refusal(410, "Expired")}).encode()),
    ],
    ids=["answer", "line"],
)
async def test_a_compacted_version_ends_the_watch(expired: Answer) -> None:
    client, transport = serving(lines(line("ADDED", "a", 2)), expired)
    async with client.watch(ConfigMap, resource_version="1") as watch:
        assert await take(watch, 1) == ["ADDED a"]
        with pytest.raises(errors.ExpiredError):
            await anext(watch)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
    assert len(transport.requests) == 2


async def test_a_refusal_and_an_unreachable_server_are_errors_of_the_first_connection() -> None:
    client, _ = serving(answer(403, refusal(403, "Forbidden")))
    with pytest.raises(errors.ForbiddenError):
        await anext(client.watch(ConfigMap, resource_version="1"))

    def unreachable() -> rest.FakeResponse:
        raise rest.TransportError("unreachable")

    client, _ = serving(unreachable)
    with pytest.raises(rest.TransportError):
        await anext(client.watch(ConfigMap, resource_version="1"))


async def test_an_object_that_is_not_of_the_kind_is_named_and_skipped() -> None:
    wrong = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "b"}, "data": 5}}).encode()
    client, transport = serving(lines(line("ADDED", "a", 2), wrong, line("ADDED", "c", 4), quiet=True))
    with capture_logs() as logged:
        async with client.watch(ConfigMap, resource_version="1") as watch:
            assert await take(watch, 2) == ["ADDED a", "ADDED c"]
    (said,) = [each for each in logged if each["event"] == "Object skipped"]
    assert (said["kind"], said["object"]) == ("ConfigMap", "b")
    assert "data: Input should be an object" in said["reason"]
    assert len(transport.requests) == 1


async def test_a_line_that_cannot_be_read_is_logged_and_skipped() -> None:
    client, transport = serving(lines(line("ADDED", "a", 2), b"{]", line("ADDED", "c", 4), quiet=True))
    with capture_logs() as logged:
        async with client.watch(ConfigMap, resource_version="1") as watch:
            assert await take(watch, 2) == ["ADDED a", "ADDED c"]
    (said,) = [each for each in logged if each["event"] == "Line skipped"]
    assert said["kind"] == "ConfigMap"
    assert said["reason"].startswith("a watch line of 2 bytes is unreadable")
    assert len(transport.requests) == 1


async def test_a_page_instead_of_a_watch_is_followed_by_another_connection() -> None:
    client, transport = serving(
        lines(line("ADDED", "a", 2)),
        lambda: rest.FakeResponse(200, b"<html>", headers={"Content-Type": "text/html"}),
        lines(line("ADDED", "b", 3), quiet=True),
    )
    async with client.watch(ConfigMap, resource_version="1") as watch:
        assert await take(watch, 2) == ["ADDED a", "ADDED b"]
    assert versions(transport.requests) == ["1", "2", "2"]


@pytest.mark.parametrize("depth", [300, 900, 5000])
async def test_an_object_that_is_nested_too_deeply_is_skipped(depth: int) -> None:
    nested = b'{"type":"ADDED","object":{"x":' + b"[" * depth + b"]" * depth + b"}}"
    client, _ = serving(lines(nested, line("ADDED", "b", 3), quiet=True))
    async with client.watch(ConfigMap, resource_version="1") as watch:
        assert await take(watch, 1) == ["ADDED b"]


async def test_a_wait_that_is_cancelled_loses_and_repeats_no_event() -> None:
    listed = answer(200, {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]})
    client, transport = serving(
        listed, lines(line("ADDED", "b", 8), quiet=True), lines(line("ADDED", "c", 9), quiet=True)
    )
    async with client.watch(ConfigMap) as watch:
        assert await take(watch, 2) == ["ADDED a", "ADDED b"]
        with anyio.move_on_after(5) as scope:
            await anext(watch)
        assert scope.cancelled_caught
        assert await take(watch, 1) == ["ADDED c"]
    assert versions(transport.requests) == [None, "7", "8"]


async def test_a_list_that_is_cancelled_is_requested_again() -> None:
    async def respond(_: rest.Request) -> rest.Response:
        await anyio.sleep(2)
        return rest.FakeResponse(
            200, {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}
        )

    watch = LiveClient(rest.FakeTransport(respond)).watch(ConfigMap)
    with anyio.move_on_after(1):
        await anext(watch)
    assert await take(watch, 1) == ["ADDED a"]


async def test_waits_that_are_cancelled_do_not_shorten_the_pauses_between_failures() -> None:
    failing = answer(503, refusal(503, "ServiceUnavailable"))
    client, transport = serving(lines(line("ADDED", "a", 2)), *[failing] * 20)
    async with client.watch(ConfigMap, resource_version="1") as watch:
        assert await take(watch, 1) == ["ADDED a"]
        for _ in range(300):
            with anyio.move_on_after(0.1):
                await anext(watch)
    assert len(transport.requests) < 8


async def test_a_watch_continues_after_the_last_event_if_its_generator_was_closed_with_the_event_loop() -> (
    None
):
    client, transport = serving(lines(line("ADDED", "a", 2)), lines(line("ADDED", "b", 3), quiet=True))
    watch = client.watch(ConfigMap, resource_version="1")
    assert await take(watch, 1) == ["ADDED a"]
    await watch._loop._lines.aclose()  # type: ignore[attr-defined]  # as asyncio.run does at its end
    assert await take(watch, 1) == ["ADDED b"]
    assert versions(transport.requests) == ["1", "2"]
    await watch.aclose()


async def test_a_watch_that_was_closed_stays_closed() -> None:
    client, _ = serving(lines(line("ADDED", "a", 2), quiet=True))
    watch = client.watch(ConfigMap, resource_version="1")
    waiting = asyncio.ensure_future(take(watch, 2))
    await anyio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await watch.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([lines(line("ADDED", "a", 2), quiet=True)], id="a quiet connection"),
        pytest.param(
            [lines(line("ADDED", "a", 2)), *[answer(503, refusal(503, "ServiceUnavailable"))] * 9],
            id="a pause after a failure",
        ),
    ],
)
async def test_a_watch_that_is_closed_while_another_task_waits_ends_the_iteration_there(
    answers: list[Answer],
) -> None:
    responses: list[rest.FakeResponse] = []
    seen: list[str] = []

    def respond(_: rest.Request) -> rest.FakeResponse:
        responses.append(answers[len(responses)]())
        return responses[-1]

    watch = LiveClient(rest.FakeTransport(respond)).watch(ConfigMap, resource_version="1")

    async def iterate() -> None:
        seen.extend([event.object.name async for event in watch])
        seen.append("ended")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(iterate)
        await anyio.sleep(1.5)
        began = anyio.current_time()
        await watch.aclose()
    assert anyio.current_time() == began
    assert seen == ["a", "ended"]
    assert responses[0].closed


def told(lines: list[Any]) -> list[tuple[str, str]]:
    return [(line["log_level"], line["event"]) for line in lines if line["log_level"] != "debug"]


@pytest.mark.parametrize(
    "failure",
    [
        answer(503, refusal(503, "ServiceUnavailable")),
        answer(429, refusal(429, "TooManyRequests")),
        lines(json.dumps({"type": "ERROR", "object": refusal(500, "InternalError")}).encode()),
        lines(),
        lines(end=rest.TransportError("broken")),
    ],
    ids=["503", "429", "line", "ends at once", "breaks at once"],
)
async def test_an_outage_that_lasts_is_a_warning_and_a_line_when_it_is_over(failure: Answer) -> None:
    healthy = lines(line("ADDED", "b", 3), quiet=True)
    client, _ = serving(lines(line("ADDED", "a", 2)), *[failure] * 12, healthy)
    with capture_logs() as captured:
        async with client.watch(ConfigMap, resource_version="1") as watch:
            assert await take(watch, 2) == ["ADDED a", "ADDED b"]
    warned = [line for line in captured if line["log_level"] == "warning"]
    assert [(each["event"], each["kind"]) for each in warned] == [
        ("Watch is interrupted, and is tried again", "ConfigMap")
    ]
    assert str(warned[0]["error"])
    assert told(captured)[-1] == ("info", "Watch continues")


@pytest.mark.parametrize(("seconds", "levels"), [(2.9, []), (3.1, ["warning", "info"])])
async def test_an_outage_is_told_when_it_has_lasted_three_seconds(seconds: float, levels: list[str]) -> None:
    breaks = lines(line("ADDED", "a", 2), end=rest.TransportError("broken"))
    answers = [breaks, answer(503, refusal(503, "Unavailable")), lines(line("ADDED", "b", 3), quiet=True)]
    began = anyio.current_time()

    async def respond(_: rest.Request) -> rest.FakeResponse:
        if len(transport.requests) == 2:
            await anyio.sleep_until(began + seconds)
        return answers[len(transport.requests) - 1]()

    transport = rest.FakeTransport(respond)
    with capture_logs() as captured:
        async with LiveClient(transport).watch(ConfigMap, resource_version="1") as watch:
            assert await take(watch, 2) == ["ADDED a", "ADDED b"]
    assert [level for level, _ in told(captured)] == levels


async def test_each_outage_is_told() -> None:
    outage = [answer(503, refusal(503, "ServiceUnavailable"))] * 8
    client, _ = serving(
        lines(line("ADDED", "a", 2)),
        *outage,
        lines(line("ADDED", "b", 3), end=rest.TransportError("broken")),
        *outage,
        lines(line("ADDED", "c", 4), quiet=True),
    )
    with capture_logs() as captured:
        async with client.watch(ConfigMap, resource_version="1") as watch:
            assert await take(watch, 3) == ["ADDED a", "ADDED b", "ADDED c"]
    assert [level for level, _ in told(captured)] == ["warning", "info"] * 2


async def test_a_watch_that_a_timer_ends_or_that_breaks_for_a_moment_is_not_told() -> None:
    broken = lines(end=rest.TransportError("broken"))
    client, _ = serving(lines(line("ADDED", "a", 2)), broken, lines(line("ADDED", "b", 3), quiet=True))
    with capture_logs() as captured:
        async with client.watch(ConfigMap, resource_version="1") as watch:
            assert await take(watch, 2) == ["ADDED a", "ADDED b"]
    assert told(captured) == []
