# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""When a controller and its sources start and end."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import anyio
import pytest

from controller_runtime import cache, fairness, handler, log, reconcile, source
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.controller import Controller, Options, reconcile_id
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import raised
from controller_runtime.reconcile import ControllerError, Request, Result
from ctrl_testkit.scripted import A, B, Make, Script, running, total
from ctrl_testkit.small import make_pod, settle


async def test_every_series_is_there_before_the_first_reconcile(make: Make) -> None:
    async with running(make(Script())) as made:
        for result in ("success", "error", "requeue_after", "requeue"):
            assert total(made, "reconcile_total", result=result) == 0
        for series in (
            "reconcile_errors",
            "terminal_reconcile_errors",
            "reconcile_panics",
            "reconcile_timeouts",
        ):
            assert total(made, f"{series}_total") == 0


async def test_asked_to_stop_it_finishes_what_is_in_hand_and_starts_nothing_new(make: Make) -> None:
    script = Script()
    script.takes = 10
    made = make(script)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.start)
        made.queue.add(A)
        made.queue.add(B)
        await anyio.sleep(1)
        made.stop()
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(9)
    assert script.names == ["a"]
    assert total(made, "reconcile_total", result="success") == 1


async def test_cancelled_it_ends_what_is_in_hand(make: Make) -> None:
    script = Script()
    script.takes = 10
    made = make(script)
    with anyio.move_on_after(1):
        made.queue.add(A)
        await made.start()
    assert (script.names, script.at_once) == (["a"], 0)
    assert total(made, "active_workers") == 0


async def test_it_starts_once(make: Make) -> None:
    async with running(make(Script())) as made:
        with pytest.raises(ControllerError, match="was started before"):
            await made.start()


async def test_log_lines_of_a_reconcile_say_what_is_reconciled(make: Make) -> None:
    ids: list[str] = []

    class Talker:
        async def reconcile(self, request: Request) -> Result:
            ids.append(reconcile_id())
            ids.append(str(log.bound()["reconcileID"]))
            raise ValueError("no")

    made = make(
        Talker(), kind=Pod.gvk, log_constructor=lambda request: {"color": "red" if request else "blue"}
    )
    with capture_logs() as lines:
        async with running(made):
            made.queue.add(A)
            await anyio.sleep(0.001)
    assert ids == ["id-1", "id-1"]
    assert reconcile_id() == ""
    (line,) = [line for line in lines if line["event"] == "Reconciler error"]
    assert str(line.pop("error")) == "no"
    assert line == {
        "event": "Reconciler error",
        "log_level": "error",
        "logger_name": "controller",
        "controller": made.name,
        "controllerGroup": "",
        "controllerKind": "Pod",
        "pod": ("ns", "a"),
        "namespace": "ns",
        "name": "a",
        "reconcileID": "id-1",
        "color": "red",
    }
    assert {line["color"] for line in lines if "name" not in line} == {"blue"}


async def test_a_log_constructor_may_replace_any_key_and_may_fail(make: Make) -> None:
    seen: list[object] = []

    class Talker:
        async def reconcile(self, request: Request) -> Result:
            del request
            seen.append(log.bound()["reconcileID"])
            return Result()

    def fields(request: Request | None) -> dict[str, object]:
        if request == A:
            raise LookupError(A.name)
        return {"reconcileID": "own"}

    async with running(make(Talker(), log_constructor=fields)) as made:
        made.queue.add(A)
        made.queue.add(B)
        await anyio.sleep(0.001)
    assert seen == ["id-1", "own"]


async def test_a_duration_of_0_is_the_default(make: Make) -> None:
    made = make(Script(), reconciliation_timeout=0, cache_sync_timeout=timedelta())
    assert (made.settings.reconciliation_timeout, made.settings.cache_sync_timeout) == (None, 120)


async def test_workers_begin_when_the_sources_have_seen_what_there_is(make: Make, world: Any) -> None:
    world.held.add(Pod)
    world.put(make_pod("a"))
    script = Script()
    made = make(script)
    async with world.cache() as informers, anyio.create_task_group() as tasks:
        made.watch(source.Kind(informers, Pod, handler.EnqueueRequestForObject()))
        tasks.start_soon(made.start)
        await anyio.sleep(5)
        assert (len(made.queue), script.names) == (1, [])
        world.release(Pod)
        await made.ready()
        await anyio.sleep(1)
        assert script.calls == [("a", 5.0)]
        made.stop()


async def test_a_kind_that_is_never_listed_fails_the_controller_in_time(make: Make, world: Any) -> None:
    world.held.add(Pod)
    made = make(Script(), cache_sync_timeout=30)
    async with world.cache() as informers:
        made.watch(source.Kind(informers, Pod, handler.EnqueueRequestForObject()))
        with pytest.raises(cache.CacheSyncTimeoutError):
            await made.start()
    assert round(anyio.current_time() - 1000) == 30


async def test_a_refused_kind_does_not_stop_the_controller_and_is_taken_up_later(
    make: Make, world: Any
) -> None:
    world.refused[Pod] = 404
    world.put(make_pod("a"))
    script = Script()
    made = make(script)
    with capture_logs() as lines:
        async with world.cache() as informers:
            made.watch(source.Kind(informers, Pod, handler.EnqueueRequestForObject()))
            async with running(made):
                made.queue.add(B)
                await anyio.sleep(1)
                assert script.names == ["b"]
                world.refused.clear()
                await anyio.sleep(120)
    assert script.names == ["b", "a"]
    assert any("degraded" in line["event"] and line["source"] == "kind source: Pod" for line in lines)


async def test_asked_to_stop_while_it_waits_for_sources_it_stops(make: Make, world: Any) -> None:
    world.held.add(Pod)
    script = Script()
    made = make(script)
    async with world.cache() as informers, anyio.create_task_group() as tasks:
        made.watch(source.Kind(informers, Pod, handler.EnqueueRequestForObject()))
        tasks.start_soon(made.start)
        await settle()
        made.stop()
    assert anyio.current_time() - 1000 < 1


async def test_a_source_added_later_is_taken_up_at_once(make: Make, world: Any) -> None:
    script = Script()
    world.put(make_pod("a"))
    async with world.cache() as informers, running(make(script)) as made:
        made.watch(source.Kind(informers, Pod, handler.EnqueueRequestForObject()))
        await anyio.sleep(1)
    assert script.names == ["a"]


async def test_a_cancelled_error_of_a_reconcile_is_retried_as_any_error(make: Make) -> None:
    calls: list[float] = []

    async def reconcile_(request: Request) -> Result:
        calls.append(round(anyio.current_time() - 1000, 3))
        if len(calls) == 1:
            raise asyncio.CancelledError("from a library")
        if len(calls) == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await anyio.sleep(1)
        return Result()

    with capture_logs() as lines:
        async with running(make(reconcile.Func(reconcile_))) as made:
            made.queue.add(A)
            await anyio.sleep(10)
            made.queue.add(B)
            await anyio.sleep(1)
    assert calls == [0.0, 0.005, 0.015, 10.0]
    assert total(made, "reconcile_errors_total") == 2
    errors = [str(line["error"]) for line in lines if line["event"] == "Reconciler error"]
    assert errors[0].endswith("although the task was not cancelled: from a library")


async def test_a_task_that_outlives_its_reconcile_works_for_its_own_namespace(make: Make) -> None:
    tenants: list[tuple[str, str]] = []

    class Starts:
        async def reconcile(self, request: Request) -> Result:
            tasks.start_soon(outlive, request)
            return Result()

    async def outlive(request: Request) -> None:
        await anyio.sleep(10)
        tenants.append((request.namespace, fairness.tenant().namespace))

    async with anyio.create_task_group() as tasks, running(make(Starts())) as made:
        for namespace in ("team-a", "team-b"):
            made.queue.add(Request(namespace, "a"))
            await anyio.sleep(1)
        await anyio.sleep(10)
    assert tenants == [("team-a", "team-a"), ("team-b", "team-b")]


async def test_a_source_that_a_reconcile_adds_has_not_the_context_of_the_reconcile(make: Make) -> None:
    contexts: list[tuple[str, str]] = []

    class Watches:
        async def reconcile(self, request: Request) -> Result:
            made.watch(source.Func(feed))
            return Result()

    async def feed(_: handler.Queue) -> None:
        contexts.append((reconcile_id(), fairness.tenant().namespace))

    async with running(make(Watches())) as made:
        made.queue.add(A)
        await anyio.sleep(1)
    assert contexts == [("", "")]


async def test_a_cancelled_error_of_a_source_ends_the_controller_with_an_error(make: Make) -> None:
    async def feed(_: handler.Queue) -> None:
        raise asyncio.CancelledError

    made = make(Script())
    made.watch(source.Func(feed))
    with anyio.fail_after(60):
        with pytest.raises(raised.StrayCancellationError):
            await made.start()


async def test_a_source_that_may_not_end_and_does_ends_the_controller_with_an_error(make: Make) -> None:
    class Ends(source.SyncingSource):
        problem = None

        async def warm_up(self) -> None:
            return

        async def wait_for_sync(self, timeout: float | None = None) -> None:
            return

        async def start(self, queue: source.Queue) -> None:
            return

    made = make(Script())
    made.watch(Ends())
    with anyio.fail_after(60):
        with pytest.raises(ControllerError, match=r"Ends.* ended although controller"):
            await made.start()


async def test_sources_need_not_be_hashable_to_be_warmed_up(make: Make) -> None:
    @dataclasses.dataclass
    class Plain(source.SyncingSource):
        warmed: int = 0
        problem = None

        async def warm_up(self) -> None:
            self.warmed += 1

        async def wait_for_sync(self, timeout: float | None = None) -> None:
            return

        async def start(self, queue: source.Queue) -> None:
            await anyio.sleep_forever()

    made, plain = make(Script()), Plain()
    made.watch(plain)
    with anyio.move_on_after(1):
        await made.warm_up()
    assert plain.warmed == 1


async def test_a_source_that_comes_while_another_is_warmed_up_is_warmed_up_too(make: Make) -> None:
    class Slow(source.SyncingSource):
        warm = False
        problem = None

        async def warm_up(self) -> None:
            await anyio.sleep(1)
            self.warm = True

        async def wait_for_sync(self, timeout: float | None = None) -> None:
            return

        async def start(self, queue: source.Queue) -> None:
            await anyio.sleep_forever()

    made, first, second = make(Script()), Slow(), Slow()
    made.watch(first)
    with anyio.move_on_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.warm_up)
            await anyio.sleep(0.5)
            made.watch(second)
    assert (first.warm, second.warm) == (True, True)


async def test_a_source_that_fails_ends_the_controller_with_its_error(make: Make) -> None:
    async def broken(queue: handler.Queue) -> None:
        raise OSError("gone")

    made = make(Script())
    made.watch(source.Func(broken))
    with pytest.raises(OSError, match="gone"):
        await made.start()


def test_a_controller_needs_a_name_and_a_worker() -> None:
    with pytest.raises(ControllerError, match="name"):
        Controller("", Script())
    with pytest.raises(ControllerError, match="worker"):
        Controller("c", Script(), Options(max_concurrent_reconciles=0))


def test_it_runs_on_the_leader_unless_told_otherwise() -> None:
    assert Controller("c", Script()).need_leader_election()
    assert not Controller("c", Script(), Options(need_leader_election=False)).need_leader_election()
