# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs

from controller_runtime import cache, cancellation, controller, handler, log, metrics, reconcile, rest, source
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.errors import TooManyRequestsError
from controller_runtime.controller import Controller, Options, reconcile_id
from controller_runtime.reconcile import ControllerError, Request, Result, TerminalError
from controller_runtime.workqueue import LOW_PRIORITY, ItemExponentialFailureRateLimiter

A, B = Request("ns", "a"), Request("ns", "b")


class Script:
    """A reconciler with scripted results that records the time of each call."""

    def __init__(self, *outcomes: Result | Exception) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[str, float]] = []
        self.takes = 0.0
        self.at_once = self.most_at_once = 0

    async def reconcile(self, request: Request) -> Result:
        self.calls.append((request.name, round(anyio.current_time() - 1000, 3)))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await anyio.sleep(self.takes)
        finally:
            self.at_once -= 1
        outcome = self.outcomes.pop(0) if self.outcomes else Result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.calls]


@asynccontextmanager
async def running(made: Controller) -> AsyncIterator[Controller]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.start)
        await made.ready()
        yield made
        made.stop()


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[..., Controller]:
    numbers = itertools.count(1)

    def controller_of(reconciler: reconcile.Reconciler, **options: Any) -> Controller:
        options.setdefault("rate_limiter", ItemExponentialFailureRateLimiter[Request]())
        return Controller(
            request.node.name, reconciler, Options(**options), new_id=lambda: f"id-{next(numbers)}"
        )

    return controller_of


Make = Callable[..., Controller]
Settle = Callable[[], Awaitable[None]]


def total(made: Controller, series: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(
        f"controller_runtime_{series}", {"controller": made.name, **labels}
    )


async def test_a_success_is_counted_and_not_repeated(make: Make) -> None:
    script = Script()
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(3600)
    assert script.calls == [("a", 0.0)]
    assert total(made, "reconcile_total", result="success") == 1
    assert total(made, "reconcile_time_seconds_count") == 1


async def test_an_error_is_retried_ever_later_and_forgotten_after_a_success(make: Make) -> None:
    script = Script(*[ValueError("no")] * 4)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(10)
        assert script.times == [0.0, 0.005, 0.015, 0.035, 0.075]
        assert made.queue.num_requeues(A) == 0
    assert total(made, "reconcile_total", result="error") == 4
    assert total(made, "reconcile_errors_total") == 4
    assert total(made, "reconcile_total", result="success") == 1


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "beside another"])
async def test_what_wants_a_kind_that_is_not_served_is_retried_every_half_minute(
    make: Make, *, grouped: bool
) -> None:
    error: Exception = cache.CacheDegradedError(Pod.gvk, "no such kind")
    if grouped:
        error = ExceptionGroup("two", [ValueError("no"), error])
    script = Script(*[error] * 60)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(3600)
    delays = [late - early for early, late in itertools.pairwise(script.times)]
    assert script.times[1:4] == [0.005, 0.015, 0.035]
    assert max(delays) == pytest.approx(30)


AWAY = rest.TransportError("connection refused", host="https://api")


async def test_while_the_server_is_away_no_request_waits_for_long_nor_uses_up_its_tries(make: Make) -> None:
    grouped = ExceptionGroup("both", [ValueError("no"), AWAY])
    script = Script(*[AWAY] * 12, grouped, *[AWAY] * 3, ValueError("its own"))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(120)
        assert made.queue.num_requeues(A) == 0
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(script.times)]
    assert gaps[:3] == [0.005, 0.01, 0.02]
    assert max(gaps) == 8
    assert gaps[-1] == 0.005


async def test_a_server_that_says_when_to_come_back_is_believed(make: Make) -> None:
    busy = TooManyRequestsError("wait", code=429, retry_after=3.0)
    wrapped = ControllerError("job ns/a")
    wrapped.__cause__ = busy
    script = Script(busy, wrapped)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
    assert script.times == [0.0, 3.0, 6.0]


async def test_a_requeue_comes_after_its_time_and_forgets_failures(make: Make) -> None:
    script = Script(ValueError("no"), Result(requeue_after=timedelta(minutes=5)), ValueError("no"))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(400)
    assert script.times == [0.0, 0.005, 300.005, 300.01]
    assert total(made, "reconcile_total", result="requeue_after") == 1


@pytest.mark.parametrize("after", [300, 300.0, timedelta(minutes=5)])
async def test_a_number_is_a_number_of_seconds(make: Make, after: timedelta | float) -> None:
    script = Script(Result(requeue_after=after))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(400)
    assert script.times == [0.0, 300.0]
    assert total(made, "reconcile_total", result="requeue_after") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"requeue_after": "30s"},
        {"requeue_after": True},
        {"requeue_after": float("nan")},
        {"requeue_after": float("inf")},
        {"requeue_after": 10**400},
        {"requeue_after": 30, "priority": "high"},
        {"priority": 1.5},
    ],
    ids=str,
)
async def test_a_result_that_makes_no_sense_is_an_error_of_its_reconcile(
    make: Make, options: dict[str, Any]
) -> None:
    calls: list[str] = []

    async def reconcile_(request: Request) -> Result:
        calls.append(request.name)
        return Result(**options) if calls == ["a"] else Result()

    async with running(make(reconcile.Func(reconcile_))) as made:
        made.queue.add(A)
        await anyio.sleep(1)
        made.queue.add(B)
        await anyio.sleep(1)
    assert calls == ["a", "a", "b"]
    assert total(made, "reconcile_errors_total") == 1


async def test_a_requeue_after_no_time_is_a_success(make: Make) -> None:
    script = Script(Result(requeue_after=timedelta(0)), Result(requeue_after=timedelta(seconds=-1)))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(1)
        made.queue.add(A)
        await anyio.sleep(1)
    assert total(made, "reconcile_total", result="success") == 2
    assert len(script.calls) == 2


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        pytest.param(TerminalError("give up"), False, id="terminal"),
        pytest.param(
            caused(ValueError("more"), TerminalError("give up")), False, id="raised from a terminal one"
        ),
        pytest.param(ExceptionGroup("", [TerminalError("a"), TerminalError("b")]), False, id="all terminal"),
        pytest.param(ExceptionGroup("", [TerminalError("a"), ValueError("b")]), True, id="one is not"),
        pytest.param(caused(ValueError("a"), ValueError("b")), True, id="an ordinary cause"),
        pytest.param(cache.UndecodableObjectError(Pod.gvk, A, "odd"), False, id="of another shape itself"),
        pytest.param(cache.UndecodableObjectError(Pod.gvk, B, "odd"), True, id="needs one of another shape"),
    ],
)
async def test_a_terminal_error_is_counted_and_not_retried(
    make: Make, error: Exception, retried: bool
) -> None:
    script = Script(error)
    async with running(make(script, kind=Pod.gvk)) as made:
        made.queue.add(A)
        await anyio.sleep(3600)
    assert len(script.calls) == (2 if retried else 1)
    assert total(made, "terminal_reconcile_errors_total") == (0 if retried else 1)
    assert total(made, "reconcile_errors_total") == 1


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(KeyError("key"), id="a missing key"),
        pytest.param(ExceptionGroup("", [ValueError("no"), AttributeError("none")]), id="one of several"),
    ],
)
async def test_a_programming_error_is_counted_as_a_panic_and_retried(make: Make, error: Exception) -> None:
    script = Script(error)
    with capture_logs() as lines:
        async with running(make(script)) as made:
            made.queue.add(A)
            await anyio.sleep(1)
    assert len(script.calls) == 2
    assert total(made, "reconcile_panics_total") == 1
    (logged,) = [line["error"] for line in lines if line["event"] == "Reconciler error"]
    assert str(logged).startswith("panic: ")
    assert str(logged).endswith(" [recovered]")
    assert logged.__cause__ is error


async def test_a_reconciler_that_returns_no_result_has_a_bug(make: Make) -> None:
    class Forgetful:
        async def reconcile(self, request: Request) -> Result:
            return None  # type: ignore[return-value]  # the bug

    async with running(make(Forgetful())) as made:
        made.queue.add(A)
        await anyio.sleep(0.001)
    assert total(made, "reconcile_panics_total") == 1


async def test_without_recovery_a_programming_error_ends_the_controller(make: Make) -> None:
    made = make(Script(KeyError("key")), recover_panic=False)
    made.queue.add(A)
    with pytest.raises(KeyError, match="key"):
        await made.start()
    assert total(made, "reconcile_panics_total") == 1


async def test_an_ordinary_error_does_not_end_a_controller_without_recovery(make: Make) -> None:
    async with running(make(Script(ValueError("no")), recover_panic=False)) as made:
        made.queue.add(A)
        await anyio.sleep(1)
    assert total(made, "reconcile_total", result="success") == 1


async def test_a_reconcile_that_takes_too_long_is_cancelled_and_retried(make: Make) -> None:
    script = Script()
    script.takes = 60
    async with running(make(script, reconciliation_timeout=timedelta(seconds=10))) as made:
        made.queue.add(A)
        await anyio.sleep(15)
        script.takes = 0
        await anyio.sleep(15)
    assert script.times == [0.0, 10.005, 20.015]
    assert total(made, "reconcile_timeouts_total") == 2
    assert total(made, "reconcile_total", result="success") == 1


async def test_a_timeout_of_its_own_is_an_ordinary_error(make: Make) -> None:
    script = Script(TimeoutError("mine"))
    async with running(make(script, reconciliation_timeout=10)) as made:
        made.queue.add(A)
        await anyio.sleep(1)
    assert total(made, "reconcile_timeouts_total") == 0
    assert total(made, "reconcile_errors_total") == 1


async def test_a_request_keeps_its_priority_until_the_reconciler_changes_it(make: Make) -> None:
    script = Script(ValueError("no"), Result(requeue_after=timedelta(seconds=1), priority=5))
    made = make(script)
    seen: list[int | None] = []
    add = made.queue.add

    def spy(item: Request, **options: Any) -> None:
        seen.append(options["priority"])
        add(item, **options)

    async with running(made):
        made.queue.add(A, priority=LOW_PRIORITY)
        made.queue.add = spy  # type: ignore[method-assign]  # watching one call of a working queue
        await anyio.sleep(10)
    assert seen == [LOW_PRIORITY, 5]


async def test_as_many_requests_at_a_time_as_there_are_workers_and_never_the_same_one(make: Make) -> None:
    script = Script()
    script.takes = 10
    async with running(make(script, max_concurrent_reconciles=3)) as made:
        for n in range(7):
            made.queue.add(Request("ns", str(n)))
        await anyio.sleep(5)
        made.queue.add(Request("ns", "0"))
        assert total(made, "active_workers") == 3
        await anyio.sleep(60)
    assert script.most_at_once == 3
    assert script.times == [0, 0, 0, 10, 10, 10, 20, 20]
    assert total(made, "max_concurrent_reconciles") == 3
    assert total(made, "active_workers") == 0


async def test_a_reconciler_that_never_waits_lets_others_have_their_turn(make: Make) -> None:
    done: list[Request] = []

    async def at_once(request: Request) -> Result:
        done.append(request)
        return Result()

    async with running(make(reconcile.Func(at_once))) as made:
        for n in range(100):
            made.queue.add(Request("ns", str(n)))
        await checkpoint()
        await checkpoint()
        assert 0 < len(done) < 10


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
    with capture_logs([log.merge_context]) as lines:
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


async def test_workers_begin_when_the_sources_have_seen_what_there_is(
    make: Make, world: Any, make_pod: Any
) -> None:
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
    make: Make, world: Any, make_pod: Any
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


async def test_asked_to_stop_while_it_waits_for_sources_it_stops(
    make: Make, world: Any, settle: Settle
) -> None:
    world.held.add(Pod)
    script = Script()
    made = make(script)
    async with world.cache() as informers, anyio.create_task_group() as tasks:
        made.watch(source.Kind(informers, Pod, handler.EnqueueRequestForObject()))
        tasks.start_soon(made.start)
        await settle()
        made.stop()
    assert anyio.current_time() - 1000 < 1


async def test_a_source_added_later_is_taken_up_at_once(make: Make, world: Any, make_pod: Any) -> None:
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


async def test_a_cancelled_error_of_a_source_ends_the_controller_with_an_error(make: Make) -> None:
    async def feed(_: handler.Queue) -> None:
        raise asyncio.CancelledError

    made = make(Script())
    made.watch(source.Func(feed))
    with anyio.fail_after(60):
        with pytest.raises(cancellation.StrayCancellationError):
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


def test_the_package_exports_what_it_says() -> None:
    assert {name for name in vars(controller) if name[0].isupper()} == {
        "Controller",
        "Defaults",
        "FinalizeError",
        "FinalizeResult",
        "Finalizer",
        "Finalizers",
        "LogConstructor",
        "Options",
        "Settings",
    }
