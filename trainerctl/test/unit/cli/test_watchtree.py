# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``get --watch``: lines in a pipe, a tree on a terminal."""

import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from controller_runtime.client import ObjectList
from controller_runtime.machinery.errors import ForbiddenError
from pkg.why import LiveObject, kinds
from testkit.why.world import TrainJobObjects, condition

from trainerctl.cli import live, watchtree
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console
from trainerctl.cli.watchtree import Objects, Screen, tree_rows

HEAD = ("NAME", "STATE", "AGE", "DETAIL")


def objects_of(world: TrainJobObjects) -> Objects:
    found = Objects()
    for each in world.objects:
        found.apply(LiveObject(each).group_kind, "ADDED", LiveObject(each))
    return found


def without_times(text: str) -> list[str]:
    return [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in text.splitlines()]


@pytest.mark.real_time
async def test_a_pipe_gets_one_line_for_each_change() -> None:
    world, out = TrainJobObjects(nodes=1), io.StringIO()
    found = objects_of(world)
    with Screen(Console(file=out), HEAD, tree_rows) as screen:
        screen.draw(found)
        screen.draw(found)
        pod = LiveObject({**world.pods[0], "status": {"phase": "Succeeded"}})
        found.apply(kinds.POD, "MODIFIED", pod)
        screen.draw(found)
        found.apply(kinds.POD, "DELETED", pod)
        screen.draw(found)

    assert without_times(out.getvalue()) == [
        "TrainJob/llama  Running",
        "JobSet/llama  Active",
        "Job/llama-node-0  Active  0 of 1 pods ready",
        "Pod/llama-node-0-0-abcde  Running  worker-0",
        "Pod/llama-node-0-0-abcde  Succeeded  worker-0",
        "TrainJob/llama  Pending",
        "Pod/llama-node-0-0-abcde  deleted",
    ]


@pytest.mark.real_time
async def test_a_terminal_is_drawn_again_with_the_whole_tree() -> None:
    world, out = TrainJobObjects(nodes=1), io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, height=20, color_system="standard")
    with Screen(console, HEAD, tree_rows) as screen:
        screen.draw(objects_of(world))
        screen.draw(objects_of(world))

    text = out.getvalue()
    assert text.count("      Pod/llama-node-0-0-abcde") >= 2
    assert "\x1b[" in text


def test_a_snapshot_needs_the_train_job() -> None:
    world = TrainJobObjects()
    found = objects_of(world)
    assert found.snapshot() is not None
    found.apply(kinds.TRAIN_JOB, "DELETED", LiveObject(world.train_job))
    assert found.snapshot() is None
    assert list(tree_rows(found)) == []


class Watched:
    """A client of a server on which a TrainJob changes. The other kinds may not be read."""

    def __init__(
        self, first: dict[str, Any] | None, change: str = "", last: dict[str, Any] | None = None
    ) -> None:
        self._first, self._change, self._last = first, change, last

    async def list(self, kind: Any, **_options: Any) -> ObjectList[Any]:
        if kind.gvk.kind != "TrainJob":
            raise ForbiddenError("it is forbidden", code=403, reason="Forbidden")
        return ObjectList([KIND.from_dict(self._first)] if self._first else [])

    @asynccontextmanager
    async def watch(self, _kind: Any, **_options: Any) -> AsyncIterator[Any]:
        async def events() -> AsyncIterator[Any]:
            await anyio.sleep(0.2)
            if self._change:
                yield SimpleNamespace(type=self._change, object=KIND.from_dict(self._last or {}))
            await anyio.sleep_forever()

        yield events()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("change", "end", "code", "said"),
    [
        ("MODIFIED", "Complete", 0, ""),
        ("MODIFIED", "Failed", 1, ""),
        ("DELETED", "", 0, "TrainJob team-a/llama was deleted"),
        (None, "", 1, "TrainJob team-a/llama does not exist"),
    ],
)
async def test_a_watch_ends_when_the_train_job_has_ended_or_is_gone(
    change: str | None, end: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last, out = TrainJobObjects().train_job, TrainJobObjects().train_job, io.StringIO()
    last["status"]["conditions"] = [condition(end)] if end else []
    client = Watched(first, change, last) if change is not None else Watched(None)
    cluster = live.Connection(client, "team-a", None)  # type: ignore[arg-type]  # what it uses of them

    with anyio.fail_after(20):
        assert await watchtree.watch_one(cluster, "llama", Console(file=out)) == code

    assert said in capsys.readouterr().err
    if end:
        assert without_times(out.getvalue())[-1] == f"TrainJob/llama  {end}"
