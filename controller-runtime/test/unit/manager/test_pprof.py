# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import asyncio
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.lowlevel
import msgspec
import pytest

import controller_runtime as ctrl
from controller_runtime.manager import pprof
from controller_runtime.serving import HTTPRequest, HTTPResponse


async def get(url: str) -> HTTPResponse:
    parts = urlsplit(f"{pprof.PREFIX}{url}")
    handler = pprof.routes()[parts.path]
    return await handler(HTTPRequest(path=parts.path, query=parse_qs(parts.query)))


async def wait_for_ever_in_here() -> None:
    await anyio.sleep_forever()


async def outer() -> None:
    await wait_for_ever_in_here()


async def test_tasks_with_one_stack_are_counted_together_down_to_where_they_wait() -> None:
    tasks = [asyncio.create_task(outer(), name=f"waiting-{number}") for number in range(7)]
    await anyio.lowlevel.checkpoint()
    text = (await get("tasks")).body.decode()
    for task in tasks:
        task.cancel()
    heading = next(line for line in text.splitlines() if "waiting-" in line)
    assert heading.startswith("7 tasks: ")
    assert heading.endswith(", …")
    stack = text[text.index(heading) :]
    places = [stack.index("outer ("), stack.index("wait_for_ever_in_here ("), stack.index("sleep_forever (")]
    assert places == sorted(places)
    assert "thread MainThread:" in text


def spin_in_here(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


@pytest.fixture
def spinning() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=spin_in_here, args=(stop,), name="spin;ning")
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.real_time
@pytest.mark.usefixtures("spinning")
def test_a_profile_shows_what_a_thread_does() -> None:
    # Overdue samples are left out, so a profile on a busy machine may have too few: try again.
    profile = next(
        taken for _ in range(60) if (taken := pprof.sample(1.0, 50, threading.Event())).samples > 1
    )
    lines = [line for line in profile.collapsed().splitlines() if "spin_in_here" in line]
    assert lines
    assert all(line.startswith("spin,ning;") for line in lines)
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == profile.samples
    data = msgspec.json.decode(profile.speedscope())
    (seen,) = (each for each in data["profiles"] if each["name"] == "spin;ning")
    named = {data["shared"]["frames"][index]["name"] for stack in seen["samples"] for index in stack}
    assert "spin_in_here" in named
    assert sum(seen["weights"]) == pytest.approx(seen["endValue"]) == pytest.approx(profile.seconds)


@pytest.mark.real_time
def test_a_profile_ends_when_its_client_leaves() -> None:
    stop = threading.Event()
    stop.set()
    began = time.monotonic()
    assert pprof.sample(60, 10, stop).samples == 0
    assert time.monotonic() - began < 30


@pytest.mark.real_time
async def test_profiles_are_taken_one_after_the_other() -> None:
    for form in ("collapsed", "speedscope"):
        assert (await get(f"profile?seconds=0.01&format={form}")).status == 200


async def test_the_memory_is_that_of_tracemalloc() -> None:
    assert (await get("heap")).status == 409
    tracemalloc.start()
    try:
        kept = [bytes(1000) for _ in range(1000)]
        lines = pprof._allocations(3).splitlines()
    finally:
        tracemalloc.stop()
    assert len(kept) == 1000
    assert lines[0].endswith(" blocks")
    assert len(lines) <= 4
    assert any("test_pprof.py:" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("url", "status", "text"),
    [
        ("", 200, "/debug/pprof/profile?seconds=30"),
        ("cmdline", 200, sys.orig_argv[0]),
        ("profile?seconds=301", 400, "seconds must be a number above 0 and at most 300"),
        ("profile?seconds=nan", 400, "seconds must be"),
        ("profile?hz=0", 400, "hz must be a number above 0 and at most 1000"),
        ("profile?format=pdf", 400, "format must be collapsed or speedscope"),
    ],
)
async def test_queries_are_answered_or_refused(url: str, status: int, text: str) -> None:
    answer = await get(url)
    assert (answer.status, text in answer.body.decode()) == (status, True)


async def test_what_is_not_served_is_not_found() -> None:
    answer = await pprof.routes()[pprof.PREFIX](HTTPRequest(path=f"{pprof.PREFIX}more"))
    assert answer.status == 404


@pytest.mark.parametrize("address", ["", "0", "127.0.0.1:0"])
async def test_a_manager_serves_profiles_only_where_it_shall(address: str) -> None:
    mgr = ctrl.Manager(
        ctrl.Config("https://x"), ctrl.Options(metrics_bind_address="0", pprof_bind_address=address)
    )
    assert hasattr(mgr, "pprof_server") == (address not in ("", "0"))
