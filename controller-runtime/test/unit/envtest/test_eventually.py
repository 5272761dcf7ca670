# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Waits on the virtual clock: their duration and their error messages."""

import anyio
import pytest

from controller_runtime.envtest import EventuallyError, consistently, eventually
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError


async def test_eventually_returns_the_first_true_answer_and_no_later() -> None:
    answers = iter([None, 0, "", "ready", "late"])
    began = anyio.current_time()
    assert await eventually(lambda: next(answers), interval=0.5, reason="it is ready") == "ready"
    assert anyio.current_time() - began == pytest.approx(1.5)


async def test_eventually_says_what_it_waited_for_how_long_and_what_it_saw() -> None:
    began = anyio.current_time()
    with pytest.raises(EventuallyError, match=r"not within 3 s: the job is done; last seen: \[\]"):
        await eventually(list, timeout=3, reason="the job is done")
    assert anyio.current_time() - began == pytest.approx(3)


async def test_a_check_that_is_cut_off_does_not_hide_the_one_before() -> None:
    delays = iter([0, 9])

    async def check() -> str:
        await anyio.sleep(next(delays))
        return ""

    with pytest.raises(EventuallyError, match="last seen: ''"):
        await eventually(check, timeout=3, reason="the job is done")


async def test_a_check_that_never_ends_is_named() -> None:
    with pytest.raises(EventuallyError, match="last seen: nothing, the first check did not end"):
        await eventually(anyio.sleep_forever, timeout=3, reason="the job is done")


@pytest.mark.parametrize(
    "absence", [AssertionError("not yet"), LookupError("job"), NotFoundError("no job", code=404)]
)
async def test_absence_means_not_yet(absence: Exception) -> None:
    left = [absence, absence]

    async def check() -> str:
        if left:
            raise left.pop()
        return "there"

    assert await eventually(check, reason="the job is there") == "there"


async def test_any_other_error_ends_the_wait_at_once() -> None:
    async def check() -> None:
        raise ForbiddenError("no rights", code=403)

    began = anyio.current_time()
    with pytest.raises(ForbiddenError):
        await eventually(check, reason="the job is there")
    assert anyio.current_time() == began


async def test_a_failed_assertion_is_the_cause_of_the_failed_wait() -> None:
    async def check() -> None:
        raise AssertionError("two pods")

    with pytest.raises(EventuallyError, match="AssertionError: two pods") as caught:
        await eventually(check, timeout=1, reason="three pods run")
    assert isinstance(caught.value.__cause__, AssertionError)


async def test_consistently_lasts_its_time_and_fails_at_the_first_lapse() -> None:
    began = anyio.current_time()
    await consistently(lambda: True, duration=2, reason="nothing changes")
    assert anyio.current_time() - began == pytest.approx(2)
    answers = iter([True, True, False])
    with pytest.raises(EventuallyError, match="not always for 2 s: nothing changes; seen: False"):
        await consistently(lambda: next(answers), duration=2, reason="nothing changes")
