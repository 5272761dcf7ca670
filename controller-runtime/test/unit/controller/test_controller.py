# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools
import threading
import weakref
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from controller_runtime import cache, log, reconcile, rest
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.controller import outcomes
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import (
    ConflictError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from controller_runtime.reconcile import ControllerError, Request, Result, TerminalError
from controller_runtime.workqueue import LOW_PRIORITY, ItemExponentialFailureRateLimiter
from ctrl_testkit.scripted import A, B, Make, Script, running, total


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


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(cache.CacheDegradedError(Pod.gvk, "no such kind"), id="read from the cache"),
        pytest.param(rest.NoKindMatchError(Pod.gvk), id="not discovered"),
        pytest.param(NotFoundError("404 page not found", code=404), id="not found by a live call"),
        pytest.param(
            ExceptionGroup("two", [ValueError("no"), rest.NoKindMatchError(Pod.gvk)]), id="beside another"
        ),
    ],
)
async def test_what_wants_a_kind_that_is_not_served_is_retried_every_half_minute(
    make: Make, error: Exception
) -> None:
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


async def test_many_requests_that_wait_for_the_server_are_retried_at_a_bounded_rate_and_soon_after_its_return(
    make: Make,
) -> None:
    requests = {Request("default", f"r{number}") for number in range(2_000)}
    attempts: list[float] = []
    done: dict[Request, float] = {}
    outage = 300.0

    class Writes:
        async def reconcile(self, request: Request) -> Result:
            attempts.append(anyio.current_time() - began)
            if attempts[-1] < outage:
                raise AWAY.with_traceback(None)
            done[request] = attempts[-1]
            return Result()

    async with running(make(Writes())) as made:
        began = anyio.current_time()
        for each in requests:
            made.queue.add(each)
        await anyio.sleep(outage + 10)
    assert sum(150 <= each < outage for each in attempts) < 30 * 150
    assert done.keys() == requests
    assert max(done.values()) < outage + 8
    assert sum(each >= outage for each in attempts) == len(requests)  # each is woken only once


@pytest.mark.parametrize(("others", "woken"), [(99, 0), (100, 100)])
async def test_the_others_are_retried_at_once_only_if_a_hundred_wait(others: int, woken: int) -> None:
    retries = outcomes.Retries(ItemExponentialFailureRateLimiter())
    for number in range(others):
        retries.delay(Request("default", f"r{number}"), AWAY)
    retries.delay(A, AWAY)
    assert len(retries.reached(A)) == woken


@pytest.mark.parametrize(
    "end", [Result(), ValueError("no"), TerminalError("never")], ids=["success", "error", "terminal"]
)
async def test_a_request_that_reached_the_server_counts_no_longer_as_waiting_for_it(
    make: Make, end: Any
) -> None:
    script = Script(AWAY, end)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(0.01)
        assert len(script.calls) == 2
        assert not made._retries._waiting


@pytest.mark.parametrize("kind", [ValueError, TypeError], ids=["error", "panic"])
async def test_the_error_of_a_reconcile_does_not_wait_for_the_garbage_collection(
    make: Make, kind: type[Exception]
) -> None:
    log.limit(log.ERROR - 1)  # pytest would keep the records
    kept: weakref.WeakSet[Exception] = weakref.WeakSet()
    counted = 0

    class RefusedError(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            nonlocal counted
            counted += 1
            kept.add(self)

    class Refuses:
        async def reconcile(self, request: Request) -> Result:
            raise RefusedError

    gc.disable()
    try:
        async with running(make(Refuses())) as made:
            made.queue.add(A)
            await anyio.sleep(10)
        left = len(kept)
    finally:
        gc.enable()
    assert counted > 5
    assert left == 0


BUSY = ServerError("unavailable", code=503)
UNREADABLE = rest.AnswerError("the object is not decoded: it has more than 40,000 lists and maps")


async def test_a_failure_of_the_server_is_retried_soon_although_an_obstacle_lasted(make: Make) -> None:
    stale = ConflictError("changed", code=409)
    script = Script(*[ValueError("obstacle")] * 16, BUSY, stale, BUSY)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(2000)
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(script.times)]
    assert gaps[15] == pytest.approx(0.005 * 2**15)
    assert gaps[16:] == [0.005, 0.01, 0.02]


@pytest.mark.parametrize("failure", [BUSY, UNREADABLE], ids=["503", "not decodable"])
async def test_failures_of_the_server_alone_are_retried_ever_later_up_to_a_minute(
    make: Make, failure: Exception
) -> None:
    beside = ExceptionGroup("both", [ValueError("obstacle"), failure])
    script = Script(*[failure, beside] * 10)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(10_000)
    gaps = [later - sooner for sooner, later in itertools.pairwise(script.times)]
    assert gaps == pytest.approx([min(0.005 * 2**count, 60) for count in range(20)])


async def test_events_while_the_server_fails_do_not_put_the_retry_off(make: Make) -> None:
    """Each event of a changing object causes another failure; twenty of these once delayed the retry by an hour."""
    script = Script(*[BUSY] * 40)
    async with running(make(script)) as made:
        for _ in range(20):
            made.queue.add(A)
            await anyio.sleep(0.1)
        failed = len(script.times)
        await anyio.sleep(61)
    assert len(script.times) > failed >= 20


async def test_events_during_an_obstacle_are_reconciled_and_leave_the_retries_where_they_were(
    make: Make,
) -> None:
    script = Script(*[ValueError("obstacle")] * 60)
    events = [100.5 + number for number in range(20)]
    async with running(make(script)) as made:
        made.queue.add(A)
        for before, at in itertools.pairwise([0.0, *events]):
            await anyio.sleep(at - before)
            made.queue.add(A)
        await anyio.sleep(2000 - events[-1])
    retries = list(itertools.accumulate([0.005 * 2**count for count in range(18)], initial=0.0))
    assert script.times == pytest.approx(sorted([*events, *(at for at in retries if at < 2000)]))


async def test_an_obstacle_delays_ever_longer_although_the_server_fails_in_between(make: Make) -> None:
    script = Script(*[ValueError("obstacle"), BUSY] * 8)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(script.times)]
    assert gaps[::2] == pytest.approx([0.005 * 2**count for count in range(8)])
    assert set(gaps[1::2]) == {0.005}


async def test_a_success_forgets_both_counts(make: Make) -> None:
    limiter = ItemExponentialFailureRateLimiter[Request]()
    script = Script(*[ValueError("obstacle"), BUSY] * 3, Result(), BUSY, ValueError("obstacle"))
    async with running(make(script, rate_limiter=limiter)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
        made.queue.add(A)
        await anyio.sleep(60)
    assert [round(at - 60, 3) for at in script.times[7:]] == [0.0, 0.005, 0.01]
    assert not limiter._failures


async def test_a_limiter_that_cannot_be_copied_counts_failures_of_the_server_with_all_others(
    make: Make,
) -> None:
    limiter = ItemExponentialFailureRateLimiter[Request]()
    limiter.lock = threading.Lock()  # type: ignore[attr-defined]
    script = Script(ValueError("obstacle"), BUSY)
    async with running(make(script, rate_limiter=limiter)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
    assert [round(at, 3) for at in script.times] == [0.0, 0.005, 0.015]


@pytest.mark.parametrize(
    "end",
    [Result(), Result(requeue_after=1000), TerminalError("never")],
    ids=["done", "requeue", "terminal"],
)
async def test_the_first_retry_after_an_end_comes_at_once_although_an_earlier_one_was_far_away(
    make: Make, end: Any
) -> None:
    script = Script(*[ValueError("obstacle")] * 15, end, ValueError("another"))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(90)
        made.queue.add(A)
        await anyio.sleep(1)
        made.queue.add(A)
        await anyio.sleep(9)
    assert script.times[15:] == pytest.approx([90, 91, 91.005])


@pytest.mark.parametrize(
    "end",
    [
        Result(),
        Result(requeue_after=1000),
        TerminalError("never"),
        cache.UndecodableObjectError(Pod.gvk, NamespacedName(*A), "spec: a text"),
    ],
    ids=["done", "requeue", "terminal", "undecodable"],
)
async def test_nothing_is_kept_for_a_request_that_is_not_retried(make: Make, end: Any) -> None:
    limiter = ItemExponentialFailureRateLimiter[Request]()
    script = Script(AWAY, ValueError("obstacle"), BUSY, AWAY, ValueError("obstacle"), end)
    async with running(make(script, rate_limiter=limiter, kind=Pod.gvk)) as made:
        made.queue.add(A)
        await anyio.sleep(10)
        assert len(script.calls) == 6
        retries = made._retries
        kept = [retries._waiting, retries._due, *(each._failures for each in (limiter, retries._unreachable))]
        assert not any(kept)
        assert retries._server_failures.num_requeues(A) == 0


async def test_a_server_that_says_when_to_come_back_is_believed(make: Make) -> None:
    busy = TooManyRequestsError("wait", code=429, retry_after=3.0)
    wrapped = ControllerError("job ns/a")
    wrapped.__cause__ = busy
    script = Script(busy, wrapped)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
    assert script.times == [0.0, 3.0, 6.0]


async def test_the_longest_time_that_servers_ask_for_is_waited(make: Make) -> None:
    asked = [TooManyRequestsError("wait", code=429, retry_after=seconds) for seconds in (3.0, 7.0, 5.0)]
    script = Script(ExceptionGroup("three requests", asked))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
    assert script.times == [0.0, 7.0]


@pytest.mark.parametrize(
    "answer", [TooManyRequestsError("wait", code=429, retry_after=3.0), BUSY, ValueError("no")]
)
async def test_any_answer_of_the_server_ends_the_count_of_attempts_without_one(
    make: Make, answer: Exception
) -> None:
    script = Script(*[AWAY] * 8, answer, AWAY, AWAY)
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(60)
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(script.times)]
    assert gaps[7] == 0.64
    assert gaps[9:] == [0.005, 0.01]


async def test_requests_that_are_woken_after_an_outage_are_reconciled_once_by_several_workers(
    make: Make,
) -> None:
    requests = [Request("default", f"r{number}") for number in range(300)]
    done: list[Request] = []
    returned = False

    class Writes:
        async def reconcile(self, request: Request) -> Result:
            if not returned:
                raise AWAY.with_traceback(None)
            await anyio.sleep(0.01)
            done.append(request)
            return Result()

    async with running(make(Writes(), max_concurrent_reconciles=4)) as made:
        for each in requests:
            made.queue.add(each)
        await anyio.sleep(60)
        returned = True
        await anyio.sleep(60)
    assert sorted(done) == sorted(requests)


@pytest.mark.parametrize("after", [300, timedelta(minutes=5)], ids=["seconds", "timedelta"])
async def test_a_requeue_comes_after_its_time_and_forgets_failures(
    make: Make, after: timedelta | float
) -> None:
    script = Script(ValueError("no"), Result(requeue_after=after), ValueError("no"))
    async with running(make(script)) as made:
        made.queue.add(A)
        await anyio.sleep(400)
    assert script.times == [0.0, 0.005, 300.005, 300.01]
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
        pytest.param(ExceptionGroup("", [ValueError("a"), TerminalError("b")]), True, id="the other is not"),
        pytest.param(caused(ValueError("a"), ValueError("b")), True, id="an ordinary cause"),
        pytest.param(cache.UndecodableObjectError(Pod.gvk, A, "odd"), False, id="of another shape itself"),
        pytest.param(cache.UndecodableObjectError(Pod.gvk, B, "odd"), True, id="needs one of another shape"),
        pytest.param(
            cache.UndecodableObjectError(Node.gvk, A, "odd"),
            True,
            id="needs one of its name and another kind",
        ),
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
        made.queue.add = spy  # type: ignore[method-assign]  # records one call of a working queue
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
