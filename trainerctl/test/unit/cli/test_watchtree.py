# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``get --watch``: lines in a pipe, a tree on a terminal."""

import io
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from controller_runtime.rest import NoKindMatchError
from pkg.why import LiveObject, kinds
from testkit.why.world import TrainJobObjects, condition

from trainerctl.cli import live, watchtree
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console
from trainerctl.cli.watchtree import Objects, Screen, tree_rows

JOB = TrainJobObjects().train_job
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


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("states", "code", "last", "said"),
    [
        (
            [JOB, {**JOB, "status": {"conditions": [condition("Complete")]}}],
            0,
            "TrainJob/llama  Complete",
            "",
        ),
        ([JOB, {**JOB, "status": {"conditions": [condition("Failed")]}}], 1, "TrainJob/llama  Failed", ""),
        ([JOB, None], 0, "", "TrainJob team-a/llama was deleted"),
        ([None], 1, "", "TrainJob team-a/llama does not exist"),
    ],
)
async def test_a_watch_ends_when_the_train_job_has_ended_or_is_gone(
    states: list[Any],
    code: int,
    last: str,
    said: str,
    changing: Callable[..., live.Connection],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = io.StringIO()

    with anyio.fail_after(20):
        cluster = changing(states, pause=0.2)
        assert await watchtree.watch_one(cluster, "llama", Console(file=out)) == code

    assert said in capsys.readouterr().err
    if last:
        assert without_times(out.getvalue())[-1] == last


async def test_watching_without_the_crd_of_train_jobs_is_an_error(
    connected: Callable[[Any], live.Connection],
) -> None:
    async def refuse(_kind: Any, **_options: Any) -> None:
        raise NoKindMatchError(KIND.gvk)

    cluster = connected(SimpleNamespace(list=refuse))
    with anyio.fail_after(5), pytest.raises(ExceptionGroup) as caught:
        await watchtree.watch_all(cluster, "team-a", Console(file=io.StringIO()))
    assert isinstance(caught.value.exceptions[0], NoKindMatchError)
