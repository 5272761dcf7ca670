# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""After any sequence of operations, a queue's content equals that of a simple model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from controller_runtime.workqueue import PriorityQueue

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
ITEMS = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(
        st.just("add"), ITEMS, st.sampled_from([None, -100, 0, 5]), st.sampled_from([0.0, 0.0, 1.0, 3.0])
    ),
    st.tuples(st.just("get")),
    st.tuples(st.just("done"), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 1.0, 4.0])),
)


@dataclass
class Waiting:
    priority: int
    turn: int
    ready_at: float


class Model:
    """A simple, slow model of the queue."""

    def __init__(self) -> None:
        self.items: dict[str, Waiting] = {}
        self.working: list[str] = []
        self.turns = 0
        self.now = 0.0

    def turn(self) -> int:
        self.turns += 1
        return self.turns

    def add(self, item: str, priority: int | None, after: float) -> None:
        at, wanted = (self.now + after if after else 0.0), priority or 0
        known = self.items.get(item)
        if known is None:
            self.items[item] = Waiting(wanted, self.turn(), at)
            return
        if wanted > known.priority:
            known.priority, known.turn = wanted, self.turn()
        if known.ready_at and not at:
            known.turn = self.turn()
        known.ready_at = min(known.ready_at, at)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        due = [w for w in self.items.values() if w.ready_at and w.ready_at <= self.now]
        for waiting in sorted(due, key=lambda w: (w.ready_at, -w.priority, w.turn)):
            waiting.ready_at, waiting.turn = 0.0, self.turn()

    def get(self) -> tuple[str, int] | None:
        ready = [(-w.priority, w.turn, item) for item, w in self.items.items() if not w.ready_at]
        free = [row for row in ready if row[2] not in self.working]
        if not free:
            return None
        item = min(free)[2]
        self.working.append(item)
        return item, self.items.pop(item).priority


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_the_queue_agrees_with_its_model(virtual_loop: LoopFactory, steps: list[tuple[object, ...]]) -> None:
    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        runner.run(_agree(steps))


async def _agree(steps: list[tuple[object, ...]]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    queue: PriorityQueue[str] = PriorityQueue(clock=lambda: loop.time() - began)
    model = Model()
    for step in steps:
        match step:
            case ("add", str(item), int() | None as priority, float(after)):
                queue.add(item, priority=priority, after=after)
                model.add(item, priority, after)
            case ("get",):
                expected = model.get()
                if expected is not None:
                    assert await queue.get_with_priority() == expected
            case ("done", int(which)) if which < len(model.working):
                item = model.working.pop(which)
                queue.done(item)
            case ("pass", float(seconds)):
                await asyncio.sleep(seconds)
                model.passes(seconds)
        assert len(queue) == sum(not w.ready_at for w in model.items.values())
    queue.shut_down()
