# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A reconcile that raises any exception has failed once: the log reports it once, and the request is retried."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from controller_runtime.reconcile import Request, Result, TerminalError
from ctrl_testkit.odd_exceptions import SHAPES, Odd, Written, errors
from ctrl_testkit.scripted import A, Make, running

pytestmark = pytest.mark.timeout(20)


class Failing:
    """Fails, then succeeds."""

    def __init__(self, odd: Odd) -> None:
        self._odd = odd
        self.calls = 0

    async def reconcile(self, request: Request) -> Result:
        self.calls += 1
        if self.calls == 1:
            raise self._odd()
        return Result()


@pytest.mark.parametrize("options", [{}, {"reconciliation_timeout": 5.0}, {"recover_panic": False}], ids=str)
async def test_a_reconcile_fails_once_and_is_tried_again(
    make: Make, odd: Odd, written: Written, *, options: dict[str, Any]
) -> None:
    failing = Failing(odd)
    async with running(make(failing, **options)) as made:
        made.queue.add(A)
        await anyio.sleep(100)
    assert failing.calls == 2
    assert errors(written) == ["Reconciler error"]


async def test_a_terminal_error_from_any_cause_is_terminal(make: Make, odd: Odd, written: Written) -> None:
    calls = 0

    class Final:
        async def reconcile(self, request: Request) -> Result:
            nonlocal calls
            calls += 1
            raise TerminalError("never") from odd()

    async with running(make(Final())) as made:
        made.queue.add(A)
        await anyio.sleep(100)
    assert calls == 1
    assert errors(written) == ["Reconciler error"]


@pytest.mark.parametrize("shape", ["plain", "a circle of causes", "200 chained causes", "groups 500 deep"])
async def test_without_recovery_a_panic_of_any_shape_ends_the_controller(
    make: Make, written: Written, shape: str
) -> None:
    class Panics:
        async def reconcile(self, request: Request) -> Result:
            raise BaseExceptionGroup("panics", [TypeError("bug"), SHAPES[shape]()])

    made = make(Panics(), recover_panic=False)
    made.queue.add(A)
    with pytest.raises(ExceptionGroup) as caught:
        await made.start()
    assert isinstance(caught.value.exceptions[0], TypeError)
    (line,) = [line for line in written() if line["level"] == "error"]
    assert line["msg"] == "Observed a panic in reconciler"
    assert "raise BaseExceptionGroup" in line["stacktrace"]


async def test_a_rate_limiter_that_fails_delays_the_retry(make: Make, odd: Odd, written: Written) -> None:
    class Broken:
        def when(self, item: Request) -> float:
            raise odd()

        def forget(self, item: Request) -> None:
            """Forget nothing."""

        def num_requeues(self, item: Request) -> int:
            return 0

    failing = Failing(lambda: ValueError("plain"))
    async with running(make(failing, rate_limiter=Broken())) as made:
        made.queue.add(A)
        await anyio.sleep(100)
    assert failing.calls == 2
    assert errors(written) == ["Reconciler error"]
