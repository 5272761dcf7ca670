# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from controller_runtime import cache, handler, log, predicate, rest, source
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.event import CreateEvent, GenericEvent
from controller_runtime.machinery import (
    GVK,
    Object,
    PartialObjectMetadata,
    Resource,
    metadata_only,
    unstructured,
)
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import LOW_PRIORITY, PriorityQueue
from ctrl_testkit.small import make_pod, settle

Queue = PriorityQueue[Request]


async def request_of(obj: Pod) -> Iterable[Request]:
    return [Request.for_object(obj)]


@asynccontextmanager
async def running(*sources: source.Source) -> AsyncIterator[Queue]:
    queue: Queue = PriorityQueue()
    async with anyio.create_task_group() as tasks:
        for src in sources:
            tasks.start_soon(src.start, queue)
        yield queue
        tasks.cancel_scope.cancel()


async def drain(queue: Queue) -> list[tuple[str, int]]:
    got = []
    while len(queue):
        request, priority = await queue.get_with_priority()
        queue.done(request)
        got.append((str(request), priority))
    return got


async def test_what_is_there_at_the_start_has_low_priority_and_what_happens_later_has_not(world: Any) -> None:
    world.put(make_pod("old"))
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind) as queue:
            await kind.wait_for_sync(60)
            assert await drain(queue) == [("ns/old", LOW_PRIORITY)]
            for change in (world.put, world.put, world.remove):
                change(make_pod("new"))
                await settle()
                assert await drain(queue) == [("ns/new", 0)]


async def test_a_resync_has_low_priority(world: Any) -> None:
    async with world.cache(cache.Options(random=lambda: 0.5, resync_period=3600)) as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind) as queue:
            await kind.wait_for_sync()
            world.put(make_pod("a"))
            await anyio.sleep(1)
            await drain(queue)
            await anyio.sleep(3600)
            assert await drain(queue) == [("ns/a", LOW_PRIORITY)]


async def test_an_event_passes_only_when_every_predicate_says_so(world: Any) -> None:
    world.put(make_pod("a", labels={"x": "1", "y": "1"}))
    world.put(make_pod("b", labels={"x": "1"}))
    async with world.cache() as informers:
        kind = source.Kind(
            informers,
            Pod,
            handler.EnqueueRequestForObject(),
            predicate.label_selector("x"),
            predicate.label_selector("y"),
        )
        async with running(kind) as queue:
            await kind.wait_for_sync()
            assert await drain(queue) == [("ns/a", LOW_PRIORITY)]
            world.put(make_pod("b", labels={"x": "1", "y": "1"}))
            await settle()
            assert await drain(queue) == [("ns/b", 0)]


async def test_a_handler_that_waits_sees_events_in_order_and_holds_nobody_up(world: Any) -> None:
    seen: list[str] = []

    async def slow(obj: Pod) -> Iterable[Request]:
        await anyio.sleep(10)
        seen.append(obj.name)
        return [Request.for_object(obj)]

    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.enqueue_requests_from_map_func(slow))
        fast = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind) as queue, running(fast) as other:
            await kind.wait_for_sync()
            for name in "abc":
                world.put(make_pod(name))
            await settle()
            assert len(other) == 3
            assert (seen, len(queue)) == ([], 0)
            await anyio.sleep(31)
            assert seen == ["a", "b", "c"]
            assert await drain(queue) == [("ns/a", 0), ("ns/b", 0), ("ns/c", 0)]


async def test_a_backlog_of_handlers_that_never_wait_leaves_turns_to_other_tasks(world: Any) -> None:
    handled: list[str] = []
    begin = anyio.Event()

    async def late(obj: Pod) -> Iterable[Request]:
        if not begin.is_set():
            await begin.wait()
        handled.append(obj.name)
        return [Request.for_object(obj)]

    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.enqueue_requests_from_map_func(late))
        async with running(kind):
            await kind.wait_for_sync()
            for number in range(200):
                world.put(make_pod(f"p{number}"))
            await settle()
            begin.set()
            turns = [0]
            while turns[-1] < 200:
                await anyio.lowlevel.checkpoint()
                turns.append(len(handled))
    assert max(later - sooner for sooner, later in itertools.pairwise(turns)) == 16


async def test_a_method_that_waits_is_awaited_although_those_of_its_base_class_do_not(world: Any) -> None:
    class Slow(handler.EnqueueRequestForObject):
        async def create(self, evt: CreateEvent[Any], queue: handler.Queue) -> None:  # type: ignore[override]
            await anyio.sleep(1)
            super().create(evt, queue)

    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, Slow())
        async with running(kind) as queue:
            await kind.wait_for_sync()
            world.put(make_pod("a"))
            await settle()
            assert len(queue) == 0
            await anyio.sleep(2)
            assert await drain(queue) == [("ns/a", 0)]


@pytest.mark.parametrize("failure", [ValueError, asyncio.CancelledError])
@pytest.mark.parametrize("immediate", [True, False])
async def test_an_event_whose_handler_fails_is_handled_later(
    world: Any, immediate: bool, failure: type[BaseException]
) -> None:
    tries: list[float] = []

    class Failing(handler.EnqueueRequestForObject):
        def create(self, evt: CreateEvent[Any], queue: handler.Queue) -> None:
            if evt.key.name == "unlucky":
                tries.append(round(anyio.current_time() - began))
                if len(tries) < 9:
                    raise failure("not yet")
            super().create(evt, queue)

    Failing.immediate = immediate
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, Failing())
        async with running(kind) as queue:
            await kind.wait_for_sync()
            began = anyio.current_time()
            world.put(make_pod("unlucky"))
            world.put(make_pod("lucky"))
            await anyio.sleep(30)
            assert await drain(queue) == [("ns/lucky", 0)]
            await anyio.sleep(300)
            assert await drain(queue) == [("ns/unlucky", 0)]
            assert tries == [0, 1, 3, 7, 15, 31, 63, 123, 183]


async def test_an_event_whose_decoding_fails_is_handled_later_and_is_not_blamed_on_a_predicate(
    world: Any,
) -> None:
    class Blind(handler.EnqueueRequestForObject):
        immediate = False

        def decode(self, evt: Any) -> None:
            raise ValueError("blind")

    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, Blind(), predicate.from_object(lambda _obj: True))
        async with running(kind) as queue:
            await kind.wait_for_sync()
            with log.captured() as lines:
                world.put(make_pod("a"))
                await settle()
                assert len(queue) == 0
                await anyio.sleep(2)
                assert await drain(queue) == [("ns/a", 0)]
    errors = [line["event"] for line in lines if line["log_level"] == "error"]
    assert errors == ["Event could not be handled, it is tried again"]


@pytest.mark.parametrize("open_for", [0, 5], ids=["before its retries", "during its last retry"])
async def test_a_source_ends_only_when_the_last_event_of_its_stream_is_handled(open_for: float) -> None:
    tries: list[str] = []

    async def unlucky(obj: Pod) -> Iterable[Request]:
        tries.append(obj.name)
        if len(tries) < 3:
            raise ValueError("not yet")
        await anyio.sleep(10)
        return [Request.for_object(obj)]

    async def stream() -> AsyncIterator[GenericEvent[Pod]]:
        yield GenericEvent(make_pod("a"))
        await anyio.sleep(open_for)

    queue: Queue = PriorityQueue()
    await source.Channel(stream(), handler.enqueue_requests_from_map_func(unlucky)).start(queue)
    assert (tries, await drain(queue)) == (["a"] * 3, [("ns/a", 0)])


async def test_events_that_fail_for_ever_are_kept_up_to_a_bound(world: Any) -> None:
    failed: list[str] = []

    async def never(obj: Pod) -> Iterable[Request]:
        failed.append(obj.name)
        raise ValueError("never")

    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.enqueue_requests_from_map_func(never))
        async with running(kind):
            await kind.wait_for_sync()
            world.put(make_pod("a"))
            await anyio.sleep(5)
            later = {f"b{number}" for number in range(source.MAX_RETRIES)}
            for name in later:
                world.put(make_pod(name))
            await anyio.sleep(0.5)
            failed.clear()
            await anyio.sleep(30)
            assert set(failed) == later


class Names(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class Annotated(Names):
    annotations: dict[str, str] = {}


class NamedView(msgspec.Struct):
    metadata: Names


class AnnotatedView(msgspec.Struct):
    metadata: Annotated


async def request_of_names(obj: Pod | NamedView) -> list[Request]:
    return [Request(obj.metadata.namespace or "", obj.metadata.name or "")]


async def request_of_annotated(obj: Pod | AnnotatedView) -> list[Request]:
    return [Request(obj.metadata.namespace or "", obj.metadata.name or "")]


NAMED: handler.EventHandler[Pod] = handler.enqueue_requests_from_map_func(request_of_names, reads=NamedView)
ANNOTATED: handler.EventHandler[Pod] = handler.enqueue_requests_from_map_func(
    request_of_annotated, reads=AnnotatedView
)


async def test_metadata_is_all_that_a_metadata_source_gets(world: Any) -> None:
    seen: list[type] = []
    world.put(make_pod("a"))

    async def create(evt: CreateEvent[PartialObjectMetadata], queue: handler.Queue) -> None:
        seen.append(type(evt.object))
        queue.add(Request.for_object(evt.object))

    async with world.cache() as informers:
        kind = source.Kind(informers, metadata_only(Pod), handler.Funcs(create=create))
        async with running(kind) as queue:
            await kind.wait_for_sync()
            await settle()
            assert await drain(queue) == [("ns/a", LOW_PRIORITY)]
    assert seen == [metadata_only(Pod)]
    assert str(kind) == "kind source: Pod (metadata)"


async def test_an_object_is_decoded_only_by_who_looks_at_it(world: Any) -> None:
    decoded: list[str] = []

    class Counted(Pod, version="v1", kind="Pod", plural="pods"):
        def model_post_init(self, context: Any, /) -> None:
            super().model_post_init(context)
            decoded.append(self.name)

    owned: dict[str, Any] = {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "controller": True}]
    }
    whole = handler.enqueue_requests_from_map_func(request_of)
    blind = [
        (handler.EnqueueRequestForObject(), predicate.label_selector("x")),
        (handler.EnqueueRequestForObject(), predicate.GenerationChanged()),
        (handler.enqueue_request_for_owner(Pod, only_controller=True), predicate.LabelChanged()),
    ]
    async with world.cache() as informers:
        sources = [source.Kind(informers, Counted, how, judge) for how, judge in blind]
        async with running(*sources) as queue:
            await settle()
            for labels in ({"x": "1"}, {"x": "2"}):
                world.put(make_pod("a", labels=labels, **owned))
            await settle()
            assert sorted(await drain(queue)) == [("ns/a", 0), ("ns/o", 0)]
            assert decoded == []
        async with running(source.Kind(informers, Counted, whole)) as queue:
            await settle()
            assert await drain(queue) == [("ns/a", LOW_PRIORITY)]
            assert decoded == ["a"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param(
            handler.EnqueueRequestForObject(),
            [("ns/even", LOW_PRIORITY), ("ns/odd", LOW_PRIORITY)],
            id="blind",
        ),
        pytest.param(
            handler.enqueue_requests_from_map_func(request_of), [("ns/even", LOW_PRIORITY)], id="looks"
        ),
        pytest.param(
            NAMED,
            [("ns/even", LOW_PRIORITY), ("ns/odd", LOW_PRIORITY)],
            id="looks elsewhere",
        ),
        pytest.param(
            ANNOTATED,
            [("ns/even", LOW_PRIORITY)],
            id="looks there alone",
        ),
    ],
)
async def test_an_object_of_another_shape_is_skipped_by_who_looks_at_it(
    world: Any, how: handler.EventHandler[Any], expected: list[Any]
) -> None:
    odd = make_pod("odd")
    odd.metadata.__pydantic_extra__ = {"annotations": {"k": 1}}
    world.put(odd)
    world.put(make_pod("even"))
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, how)
        async with running(kind) as queue:
            await kind.wait_for_sync()
            await settle()
            assert sorted(await drain(queue)) == expected
        assert (await informers.get_informer(Pod)).skipped == 2 - len(expected)


async def test_a_refused_kind_is_not_waited_for_and_comes_alive_when_it_is_served(world: Any) -> None:
    world.refused[Pod] = 403
    world.put(make_pod("a"))
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind) as queue:
            await kind.wait_for_sync(60)
            assert (kind.problem is None, len(queue)) == (False, 0)
            world.refused.clear()
            await anyio.sleep(120)
            assert (kind.problem is None, await drain(queue)) == (True, [("ns/a", LOW_PRIORITY)])


async def test_a_list_that_does_not_end_is_waited_for_only_so_long(world: Any) -> None:
    world.held.add(Pod)
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind):
            began = anyio.current_time()
            with pytest.raises(cache.CacheSyncTimeoutError, match="Pod"):
                await kind.wait_for_sync(20)
            assert anyio.current_time() - began == 20


async def test_a_source_that_was_never_started_does_not_sync(world: Any) -> None:
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        with pytest.raises(cache.CacheSyncTimeoutError, match="not started"):
            await kind.wait_for_sync(5)


async def test_a_source_that_ended_hears_no_more(world: Any) -> None:
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind) as queue:
            await kind.wait_for_sync()
        world.put(make_pod("a"))
        await settle()
        assert len(queue) == 0


async def test_a_cache_of_one_s_own_need_not_discover(world: Any) -> None:
    class Own:
        async def get_informer(self, kind: type[Any]) -> Any:
            return await informers.get_informer(kind)

    world.put(make_pod("a"))
    async with world.cache() as informers:
        kind = source.Kind(Own(), Pod, handler.EnqueueRequestForObject())
        with log.captured() as lines:
            async with running(kind) as queue:
                await kind.wait_for_sync()
                assert await drain(queue) == [("ns/a", LOW_PRIORITY)]
        assert "error" not in {line["log_level"] for line in lines}


async def test_a_deferred_source_begins_when_it_is_needed_and_says_so(world: Any) -> None:
    needed = anyio.Event()
    world.put(make_pod("a"))
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        deferred = source.Deferred(kind, needed.wait)
        assert str(deferred) == "kind source: Pod, when needed"
        async with running(deferred) as queue:
            await anyio.sleep(3600)
            assert (world.watched(), len(queue)) == ([], 0)
            needed.set()
            await settle()
            assert (world.watched(), await drain(queue)) == (["pods"], [("ns/a", LOW_PRIORITY)])


async def test_a_stream_of_events_is_filtered_and_handled_until_it_ends() -> None:
    send, receive = anyio.create_memory_object_stream[GenericEvent[Pod]](10)
    channel = source.Channel(
        receive, handler.EnqueueRequestForObject(), predicate.from_object(lambda obj: obj.name != "b")
    )
    for name in "abc":
        send.send_nowait(GenericEvent(make_pod(name)))
    send.close()
    queue: Queue = PriorityQueue()
    await channel.start(queue)
    receive.close()
    assert await drain(queue) == [("ns/a", 0), ("ns/c", 0)]


async def test_a_function_feeds_the_queue() -> None:
    async def tick(queue: handler.Queue) -> None:
        for _ in range(3):
            queue.add(Request("", "clock"))
            await anyio.sleep(60)

    queue: Queue = PriorityQueue()
    await source.Func(tick).start(queue)
    assert await drain(queue) == [("clock", 0)]


@pytest.mark.parametrize("namespaced", [True, False])
@pytest.mark.parametrize("misses", [0, 3])
async def test_discovery_says_where_owners_without_a_model_live(
    world: Any, namespaced: bool, misses: int
) -> None:
    thing = unstructured(GVK("example.org", "v1", "Thing"))
    asked: list[type[Object]] = []

    class Discovering:
        async def get_informer(self, kind: type[Any]) -> cache.Informer[Any]:
            found: cache.Informer[Any] = await informers.get_informer(kind)
            return found

        async def resource_for(self, kind: type[Object]) -> Resource:
            asked.append(kind)
            if len(asked) <= misses:
                raise rest.NoKindMatchError(kind.gvk)
            return Resource("example.org", "v1", "things", namespaced)

    reference = {"apiVersion": "example.org/v1", "kind": "Thing", "name": "a", "uid": "u"}
    other = {"apiVersion": "v1", "kind": "Thing", "name": "a", "uid": "u"}
    owned, unowned = make_pod("owned", ownerReferences=[reference]), make_pod("x", ownerReferences=[other])
    async with world.cache() as informers:
        kind = source.Kind(Discovering(), Pod, handler.enqueue_request_for_owner(thing))
        async with running(kind) as queue:
            await kind.wait_for_sync()
            world.put(owned)
            world.put(unowned)
            await anyio.sleep(20)
            world.put(owned)
            await anyio.sleep(1)
            assert await drain(queue) == [("ns/a" if namespaced else "a", 0)]
            assert len(asked) == misses + 1


async def test_at_debug_the_queue_has_the_event_that_added_a_request(world: Any) -> None:
    log.limit(log.DEBUG)
    world.put(make_pod("old"))
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.enqueue_requests_from_map_func(request_of))
        async with running(kind) as queue:
            await kind.wait_for_sync(60)
            await settle()
            assert queue.triggers.take(Request("ns", "old")) == ["Pod ns/old listed"]
            for change in (world.put, world.put, world.remove):
                change(make_pod("new"))
                await settle()
            assert queue.triggers.take(Request("ns", "new")) == [
                f"Pod ns/new {change}" for change in ("created", "updated", "deleted")
            ]


async def test_at_info_an_event_is_not_noted(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log.limit(log.INFO)
    monkeypatch.setattr(source._Dispatcher, "_noting", None)  # a call would fail
    async with world.cache() as informers:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
        async with running(kind) as queue:
            await kind.wait_for_sync(60)
            world.put(make_pod("new"))
            await settle()
            assert await drain(queue) == [("ns/new", 0)]
            assert len(queue.triggers) == 0
