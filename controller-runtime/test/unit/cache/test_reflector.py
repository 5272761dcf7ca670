# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import CacheDegradedError, CacheSyncTimeoutError, EventHandlerFuncs
from controller_runtime.rest import FakeResponse
from ctrl_testkit.small import settle

LOST = rest.TransportError("connection reset", host="https://api")


def refusal(code: int, reason: str, message: str = "no", **more: Any) -> Callable[[Any], FakeResponse]:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, **more}
    return lambda _request: FakeResponse(code, body)


async def test_everything_streams_in_and_the_same_connection_goes_on(server: Any) -> None:
    await server.watched()
    server.put("b")
    await settle()
    assert server.heard.take() == ["add b"]
    assert len(server.transport.requests) == 1
    assert server.queries[0] == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "300",
    }


async def test_only_the_bookmark_that_says_so_ends_the_initial_objects(server: Any) -> None:
    def event(kind: str, **metadata: Any) -> bytes:
        return msgspec.json.encode({"type": kind, "object": {"metadata": metadata}})

    end = {"k8s.io/initial-events-end": "true"}
    a, b = (event("ADDED", name=name, namespace="n", resourceVersion="1") for name in "ab")
    middle, last = (
        event("BOOKMARK", resourceVersion="1"),
        event("BOOKMARK", resourceVersion="1", annotations=end),
    )
    server.faults.append(lambda _request: FakeResponse(lines=(a, middle, b, last)))
    cache = await server.start()
    (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
    await cache.wait_for_sync(1)
    assert server.heard.take() == ["add a initial", "add b initial"]


async def test_a_server_without_streaming_lists_is_listed_in_pages_and_never_asked_again(server: Any) -> None:
    server.streams_lists = False
    for name in "abcde":
        server.put(name)
    cache = await server.start(page_size=2)
    (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
    await cache.wait_for_sync(1)
    assert server.heard.take() == [f"add {name} initial" for name in "abcde"]
    lists = [
        (q.get("resourceVersion"), q.get("continue"), q["limit"]) for q in server.queries if "limit" in q
    ]
    assert lists == [(None, None, "2"), (None, "2", "2"), (None, "4", "2")]
    await anyio.sleep(0.01)
    assert server.queries[-1]["resourceVersion"] == "15"
    assert "sendInitialEvents" not in server.queries[-1]


async def test_a_watch_that_ends_is_taken_up_at_the_last_bookmark(server: Any) -> None:
    await server.watched()
    server.version = 77
    server.bookmark()
    await anyio.sleep(300)
    server.hang_up()
    await settle()
    assert server.queries[-1]["resourceVersion"] == "77"
    assert "sendInitialEvents" not in server.queries[-1]
    assert len(server.streams) == 1


async def test_a_server_that_closes_every_watch_at_once_is_asked_ever_more_rarely_and_then_listed(
    server: Any,
) -> None:
    watched = await server.watched()
    closes = lambda _request: FakeResponse(lines=())  # noqa: E731
    server.faults.extend([closes] * 5)
    before = server.hang_up()
    server.put("missed", silent=True)
    await anyio.sleep(50)
    # 0.8 + 1.6 + 3.2 + 6.4 + 12.8 s
    assert len(server.transport.requests) - before == 5
    assert await watched.list(ConfigMap) == []
    assert watched.interrupted_since(ConfigMap) is not None
    await anyio.sleep(1)
    assert "sendInitialEvents" in server.queries[-1]
    assert [obj.name for obj in await watched.list(ConfigMap)] == ["missed"]
    assert watched.interrupted_since(ConfigMap) is None


async def test_a_watch_that_works_between_its_failures_is_back_as_soon_each_time(server: Any) -> None:
    watched = await server.watched()
    for _ in range(8):
        await anyio.sleep(3)
        server.put("missed", silent=True)
        server.faults.extend([lambda _request: LOST, refusal(410, "Expired")])
        server.hang_up(LOST)
        await settle()
        before = len(server.transport.requests)
        # It waits 0.8 s after the cut, 1.6 s after the lost connection, and 0.8 s after the 410.
        await anyio.sleep(3.3)
        assert len(server.transport.requests) == before + 3
        (obj,) = await watched.list(ConfigMap)
        assert obj.metadata.resource_version == str(server.version)


async def test_deletes_and_changes_missed_in_a_gap_are_told_after_410(server: Any) -> None:
    for name in ("gone", "changed", "same", "reborn"):
        server.put(name)
    cache = await server.start()
    (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
    await cache.wait_for_sync(1)
    server.heard.take()
    server.remove("gone", silent=True)
    server.put("changed", silent=True)
    server.put("reborn", silent=True, uid="another")
    server.put("new", silent=True)
    server.faults.append(refusal(410, "Expired", "too old resource version"))
    await anyio.sleep(5)
    server.hang_up()
    await anyio.sleep(1)
    assert server.heard.take() == [
        "update changed 12->16",
        "delete reborn unknown",
        "add reborn",
        "add new",
        "delete gone unknown",
    ]
    assert server.queries[-1]["sendInitialEvents"] == "true"
    assert {obj.name for obj in await cache.list(ConfigMap)} == {"changed", "same", "reborn", "new"}


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "paging"])
async def test_many_deletes_missed_in_a_gap_are_told_while_others_get_their_turns(
    server: Any, streams: bool
) -> None:
    server.streams_lists = streams
    for number in range(1000):
        server.put(f"n{number}")
    cache = await server.start()
    told: list[str] = []
    begun = anyio.Event()

    def on_delete(obj: ConfigMap, _unknown: bool) -> None:
        told.append(obj.name)
        begun.set()

    (await cache.get_informer(ConfigMap)).add_event_handler(EventHandlerFuncs[ConfigMap](on_delete=on_delete))
    await cache.wait_for_sync(1)
    server.objects.clear()
    server.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    await begun.wait()
    in_a_row = [len(told)]
    while len(told) < 1000:
        before = len(told)
        await anyio.lowlevel.checkpoint()
        in_a_row.append(len(told) - before)
    assert max(in_a_row) <= 64
    assert await cache.list(ConfigMap) == []


@pytest.mark.parametrize("cause", ["ResourceVersionTooLarge", ""])
async def test_a_server_behind_the_last_one_is_asked_for_its_newest(server: Any, cause: str) -> None:
    server.streams_lists = False
    cache = await server.start()
    await cache.get_informer(ConfigMap)
    await cache.wait_for_sync(1)
    await anyio.sleep(5)
    message = "no" if cause else "Too large resource version: 99, current: 5"
    behind = refusal(504, "Timeout", message, details={"causes": [{"reason": cause}]})
    server.faults.extend([refusal(410, "Expired"), behind])
    server.hang_up()
    await anyio.sleep(5)
    lists = [query.get("resourceVersion") for query in server.queries if "watch" not in query]
    assert lists == [None, "10", None]


async def test_an_expired_continue_token_starts_over_in_one_piece(server: Any) -> None:
    server.streams_lists = False
    for name in "abc":
        server.put(name)
    cache = await server.start(page_size=2)
    await cache.get_informer(ConfigMap)
    server.faults.extend([None, None, refusal(410, "Expired")])
    await cache.wait_for_sync(2)
    lists = [(q.get("continue"), q.get("limit")) for q in server.queries if "watch" not in q]
    assert lists == [(None, "2"), ("2", "2"), (None, None)]
    assert len(await cache.list(ConfigMap)) == 3


async def test_too_many_requests_waits_as_long_as_the_server_says(server: Any) -> None:
    await server.watched()
    server.faults.append(refusal(429, "TooManyRequests", details={"retryAfterSeconds": 17}))
    await anyio.sleep(5)
    before = server.hang_up()
    await anyio.sleep(16.9)
    assert len(server.transport.requests) == before + 1
    await anyio.sleep(0.2)
    assert len(server.transport.requests) == before + 2
    assert server.queries[-1]["resourceVersion"] == "10"


async def test_a_silent_watch_is_declared_dead_where_bookmarks_are_usual(server: Any) -> None:
    await server.watched()
    server.bookmark()
    await settle()
    server.streams.clear()  # half open: the server is gone, and the connection was not closed
    server.put("missed")
    await anyio.sleep(69.9)
    assert len(server.transport.requests) == 1
    await anyio.sleep(0.2)
    assert len(server.transport.requests) == 2
    assert server.queries[-1]["resourceVersion"] == "10"


async def test_a_quiet_watch_with_bookmarks_lives_as_long_as_the_server_lets_it(server: Any) -> None:
    await server.watched()
    for _ in range(60):
        await anyio.sleep(62.5)  # real servers send a bookmark every minute, and a little later than that
        server.bookmark()
    assert len(server.transport.requests) == 1


async def test_without_bookmarks_silence_means_ever_less(server: Any) -> None:
    server.streams_lists = False
    cache = await server.start()
    await cache.list(ConfigMap)
    opened: list[int] = []
    for _ in range(2000):
        watches = sum("watch" in query and "sendInitialEvents" not in query for query in server.queries)
        if watches > len(opened):
            opened.append(round(anyio.current_time() - 1000))
        await anyio.sleep(1)
    assert opened == [0, 70, 210, 490, 1050, 1680]
    assert sum("watch" not in query for query in server.queries) == 1


async def test_a_server_that_is_away_is_looked_for_every_ten_seconds_at_least(server: Any) -> None:
    cache = await server.start(random=lambda: 0.999)
    await cache.get_informer(ConfigMap)
    await cache.wait_for_sync(1)
    server.faults.extend([lambda _request: LOST] * 100)
    server.hang_up(LOST)
    times: list[float] = []
    before = len(server.transport.requests)
    while len(times) < 12:
        if len(server.transport.requests) > before + len(times):
            times.append(anyio.current_time())
        await anyio.sleep(0.1)
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert max(gaps) == pytest.approx(10, abs=0.2)
    assert sum(time < times[0] + 30 for time in times) <= 8


async def test_after_an_outage_of_refusals_the_watch_is_back_when_the_server_said(server: Any) -> None:
    await server.watched()
    busy = refusal(429, "TooManyRequests", details={"retryAfterSeconds": 3})
    server.faults.extend([busy] * 10)
    await anyio.sleep(5)
    before = server.hang_up()
    await anyio.sleep(29)
    assert len(server.transport.requests) == before + 10
    await anyio.sleep(1.1)
    assert len(server.streams) == 1


async def test_a_server_that_stays_too_busy_for_a_watch_is_not_asked_for_a_list(server: Any) -> None:
    await server.watched()
    server.faults.extend([refusal(429, "TooManyRequests")] * 12)
    await anyio.sleep(5)
    before = server.hang_up()
    for _ in range(600):
        if len(server.queries) < before + 13:
            await anyio.sleep(1)
    assert len(server.streams) == 1
    after = server.queries[before:]
    assert all("watch" in query and "sendInitialEvents" not in query for query in after)


async def test_a_stream_that_never_begins_falls_back_to_a_list(server: Any) -> None:
    server.put("a")
    server.faults.append(lambda _request: FakeResponse(lines=forever()))
    cache = await server.start()
    await cache.get_informer(ConfigMap)
    await cache.wait_for_sync(30.1)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a"]


async def forever() -> AsyncIterator[bytes]:
    await anyio.sleep(3600)
    yield b""


def replace_streams(server: Any, lines: Callable[[], AsyncIterator[bytes]]) -> list[dict[str, str]]:
    """Answer each request for a stream of all objects with ``lines``; return the queries of all requests."""
    served, queries = server.transport, []

    async def answer(request: Any) -> Any:
        queries.append(dict(request.query))
        if "sendInitialEvents" in queries[-1]:
            return FakeResponse(lines=lines())
        return await served.send(request)

    server.transport = rest.FakeTransport(answer)
    return queries


async def test_streams_that_end_before_everything_was_delivered_are_reported_and_replaced_by_a_list(
    server: Any,
) -> None:
    server.put("a")

    async def nothing(*lines: bytes) -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    answers = replace_streams(server, nothing)
    cache = await server.start(read_timeout=5.0)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a"]
    assert ["sendInitialEvents" in query for query in answers[:2]] == [True, False]
    assert "limit" in answers[1]


async def test_a_stream_that_ends_among_the_existing_objects_does_not_say_what_the_next_list_may_miss(
    server: Any,
) -> None:
    """Existing objects are sent in any order, so their versions are not a position in the history."""
    stored = [server.put(name) for name in ("a", "b")]

    async def first_two() -> AsyncIterator[bytes]:
        for each in stored:
            yield msgspec.json.encode({"type": "ADDED", "object": each})

    answers = replace_streams(server, first_two)
    cache = await server.start(read_timeout=5.0)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a", "b"]
    # A list in pages is always of the newest state: a server splits no list at a given version.
    assert [(query.get("resourceVersion"), "limit" in query) for query in answers[1:2]] == [(None, True)]
    server.version = 77
    server.bookmark()
    await anyio.sleep(5)
    server.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    await anyio.sleep(5)
    lists = [query for query in answers[2:] if "watch" not in query]
    assert [(query.get("resourceVersion"), "limit" in query) for query in lists] == [("77", False)]


async def test_streams_of_all_objects_that_break_twice_are_replaced_by_a_list(server: Any) -> None:
    server.put("a")

    async def broken() -> AsyncIterator[bytes]:
        yield b""
        raise LOST

    def lists() -> list[str]:
        listing = [query for query in queries if "sendInitialEvents" in query or "watch" not in query]
        return [
            "stream" if "watch" in query else "pages" if "limit" in query else "list" for query in listing
        ]

    queries = replace_streams(server, broken)
    cache = await server.start(read_timeout=20.0)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a"]
    assert lists() == ["stream", "stream", "pages"]
    # The next time it tries one stream again, because the network may have broken the earlier ones.
    server.faults.append(refusal(410, "Expired"))
    server.hang_up()
    await anyio.sleep(30)
    assert lists()[3:] == ["stream", "list"]


async def test_a_server_that_is_away_is_not_listed_because_of_it(server: Any) -> None:
    server.put("a")
    server.faults.extend([lambda _request: LOST] * 4)
    cache = await server.start(read_timeout=60.0)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a"]
    assert all("sendInitialEvents" in query for query in server.queries[:5])


async def test_resuming_is_given_up_after_some_failures_and_everything_is_listed_anew(server: Any) -> None:
    await server.watched()
    server.put("missed", silent=True)
    server.faults.extend([refusal(500, "InternalError")] * 6)
    await anyio.sleep(5)
    server.hang_up()
    await anyio.sleep(0.8 * (1 + 2 + 4 + 8 + 16) + 30 + 1)
    assert server.heard.take() == ["add missed"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name', id="truncated"),
        pytest.param(b"not json", id="no JSON"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{}}}', id="nameless"),
        pytest.param(b'{"type":"ADDED","object":{"spec":{}}}', id="without metadata"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"x","labels":{"a":1}}}}', id="odd label"),
        pytest.param(b'{"type":"SOMETHING","object":{}}', id="unknown type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"caf\xe9"}}}', id="no UTF-8"),
    ],
)
async def test_a_bad_line_is_skipped_and_counted_and_the_rest_goes_on(server: Any, line: Any) -> None:
    watched = await server.watched()
    server.say(line)
    server.put("good")
    await settle()
    assert server.heard.take() == ["add good"]
    assert (await watched.get_informer(ConfigMap)).skipped == 1


async def test_an_object_that_is_deleted_may_have_any_finalizers_in_its_spec(server: Any) -> None:
    server.put("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, spec={"finalizers": 3})
    cache = await server.start()
    assert [each.name for each in await cache.list(ConfigMap)] == ["a"]


async def test_an_object_that_became_illegible_is_kept_as_it_was(server: Any) -> None:
    server.put("a")
    cache = await server.start()
    (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
    await cache.wait_for_sync(1)
    server.put("a", silent=True, metadata={"labels": {"odd": 1}})
    await anyio.sleep(5)
    server.faults.append(refusal(410, "Expired"))
    server.hang_up()
    await anyio.sleep(1)
    assert server.heard.take() == ["add a initial"]
    assert (await cache.get(ConfigMap, ("team-a", "a"))).metadata.resource_version == "11"


@pytest.mark.parametrize(
    ("code", "reason", "problem"),
    [
        pytest.param(404, "NotFound", 'no matches for kind "ConfigMap" in version "v1"', id="missing kind"),
        pytest.param(403, "Forbidden", "not for you", id="denied kind"),
    ],
)
async def test_a_refused_kind_degrades_itself_and_heals_when_it_is_served(
    server: Any, code: int, reason: str, problem: str
) -> None:
    server.faults.extend([refusal(code, reason, "not for you")] * 3)
    server.put("a")
    cache = await server.start()
    informer = await cache.get_informer(ConfigMap)
    await cache.wait_for_sync(0.5)
    assert informer.problem == problem
    assert cache.degraded() == {ConfigMap.gvk: problem}
    with pytest.raises(CacheDegradedError, match=f"^ConfigMap: {problem}$"):
        await cache.get(ConfigMap, ("team-a", "a"))
    await informer.wait_for_sync(1 + 2 + 4 + 0.1)
    assert cache.degraded() == {}
    assert (await cache.get(ConfigMap, ("team-a", "a"))).name == "a"


REFUSALS = [
    pytest.param(403, "Forbidden", id="denied"),
    pytest.param(404, "NotFound", id="missing"),
]


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
async def test_a_refusal_of_a_moment_costs_neither_reads_nor_a_list(
    server: Any, code: int, reason: str
) -> None:
    watched = await server.watched()
    server.put("a")
    await settle()
    before = len(server.transport.requests)
    server.faults.extend([refusal(code, reason)] * 3)
    server.hang_up()
    await anyio.sleep(1.5)
    assert list(watched.degraded()) == [ConfigMap.gvk]
    assert [obj.name for obj in await watched.list(ConfigMap)] == ["a"]
    await anyio.sleep(10)
    assert watched.degraded() == {}
    server.put("b")
    await settle()
    assert [obj.name for obj in await watched.list(ConfigMap)] == ["a", "b"]
    assert [query.get("sendInitialEvents") for query in server.queries[before:]] == [None] * 4


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
async def test_only_a_kind_that_no_longer_exists_stops_being_read(
    server: Any, code: int, reason: str
) -> None:
    watched = await server.watched()
    server.put("a")
    await settle()
    server.faults.extend([refusal(code, reason)] * 100)
    server.hang_up()
    await anyio.sleep(50)
    assert [obj.name for obj in await watched.list(ConfigMap)] == ["a"]
    await anyio.sleep(60)
    if code == 404:
        with pytest.raises(CacheDegradedError, match="no matches for kind"):
            await watched.list(ConfigMap)
    else:
        assert [obj.name for obj in await watched.list(ConfigMap)] == ["a"]
    assert list(watched.degraded()) == [ConfigMap.gvk]
    server.faults.clear()
    await anyio.sleep(15)
    assert [obj.name for obj in await watched.list(ConfigMap)] == ["a"]
    assert watched.degraded() == {}


async def test_an_unreachable_server_degrades_nothing_and_is_named_when_waiting_ends(server: Any) -> None:
    server.faults.extend([lambda _request: LOST] * 100)
    cache = await server.start()
    await cache.get_informer(ConfigMap)
    with pytest.raises(CacheSyncTimeoutError, match="connection reset"):
        await cache.wait_for_sync(10)
    assert cache.degraded() == {}


async def test_watches_that_break_after_a_while_are_resumed_however_often(server: Any) -> None:
    await server.watched()
    for _ in range(10):
        for _ in range(2):
            await anyio.sleep(60)
            server.bookmark()
        await anyio.sleep(10)
        server.hang_up(LOST)
        await anyio.sleep(2)
    assert [query.get("sendInitialEvents") for query in server.queries] == ["true"] + [None] * 10


async def test_an_unknown_answer_of_a_list_is_a_failure_not_the_end(server: Any) -> None:
    server.streams_lists = False
    server.put("a")
    server.faults.extend([None, lambda _request: FakeResponse(200, b"<html>")])
    cache = await server.start()
    await cache.get_informer(ConfigMap)
    await cache.wait_for_sync(1)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a"]


@pytest.mark.parametrize("body", [{}, {"error": "sign in"}, {"kind": "Status", "status": "Failure"}])
async def test_json_without_items_is_no_list_and_empties_no_cache(server: Any, body: dict[str, Any]) -> None:
    server.streams_lists = False
    server.put("a")
    cache = await server.start()
    (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
    await cache.wait_for_sync(1)
    server.heard.take()
    server.faults.extend([refusal(410, "Expired"), lambda _request: FakeResponse(200, body)])
    server.hang_up(LOST)
    await anyio.sleep(60)
    assert [obj.name for obj in await cache.list(ConfigMap)] == ["a"]
    assert not server.faults
    assert server.heard.take() == []
