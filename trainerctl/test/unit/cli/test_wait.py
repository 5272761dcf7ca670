# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A wait goes on after its watch has expired."""

import argparse
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from controller_runtime.client import ObjectList
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ExpiredError
from rich.cells import cell_len
from testkit.why.world import NOW, TrainJobObjects, condition, when

from trainerctl.cli import live, wait
from trainerctl.cli.live import KIND
from trainerctl.cli.progress import progress_on
from trainerctl.cli.terminal import Console

Connected = Callable[..., live.Connection]


class _Expiring:
    """A client of a server that has restarted: it does not know the version of any watch."""

    def __init__(self, world: TrainJobObjects) -> None:
        self._world = world
        self.lists = 0

    async def list(self, kind: Any, **options: Any) -> ObjectList[Any]:
        self.lists += 1
        if self.lists == 3:
            self._world.train_job["status"]["conditions"] = [condition("Complete")]
        return await FakeClient(KIND.wrap(self._world.train_job)).list(KIND)

    @asynccontextmanager
    async def watch(self, kind: Any, **options: Any) -> AsyncIterator[Any]:
        yield self._changes()

    async def _changes(self) -> AsyncIterator[Any]:
        if self.lists:
            raise ExpiredError("too old resource version: 963 (970)", code=410, reason="Expired")
        yield


async def test_a_wait_lists_again_when_its_watch_has_expired(connected: Connected) -> None:
    client = _Expiring(TrainJobObjects())

    code, said = await wait.wait_for(connected(client), argparse.Namespace(name="llama", state="complete"))

    assert (code, said, client.lists) == (0, "TrainJob team-a/llama is complete", 3)


def _states() -> list[dict[str, Any]]:
    found = []
    for status in (
        {"jobsStatus": [{"name": "initializer", "ready": 1}, {"name": "node", "suspended": 1}]},
        {
            "trainerStatus": {
                "progressPercentage": 42,
                "estimatedRemainingSeconds": 61,
                "lastUpdatedTime": when(9),
            }
        },
        {"trainerStatus": {"metrics": [{"name": "[red]\x1b[2J", "value": "[/]"}]}},
        {"conditions": [condition("Complete")]},
    ):
        job = TrainJobObjects().train_job
        job["status"] = status
        found.append(job)
    return found


@pytest.mark.real_time
@pytest.mark.parametrize("is_terminal", [True, False])
async def test_a_terminal_shows_a_bar_until_the_end(changing: Connected, is_terminal: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    changing(_states(), pause=0.3)
    arguments = argparse.Namespace(name="llama", state="complete", timeout=60)
    console = Console(file=err, force_terminal=is_terminal, width=120, color_system=None)
    assert await wait.wait_command(arguments, Console(file=out), console) == 0

    assert out.getvalue() == "TrainJob team-a/llama is complete\n"
    if not is_terminal:
        assert err.getvalue() == ""
        return
    assert "Pending (initializer runs)" in err.getvalue()
    assert "42%" in err.getvalue()
    assert "1m1s left, " in err.getvalue()
    assert r"[red]\x1b[2J=[/]" in err.getvalue()  # neither markup nor an escape sequence


async def test_a_report_ages_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, changing: Connected
) -> None:
    shown: list[str] = []

    @contextmanager
    def recording(_console: Console, **_options: Any) -> Iterator[Any]:
        yield SimpleNamespace(
            start=lambda _task: None, update=lambda _task, *, detail, **_numbers: shown.append(detail)
        )

    monkeypatch.setattr(wait, "progress_on", recording)
    begun = anyio.current_time()
    clock: Any = SimpleNamespace(corrected=lambda _: NOW + timedelta(seconds=anyio.current_time() - begun))
    cluster = changing(_states()[1:], pause=3.5)._replace(clock=clock)
    async with wait._bar(cluster, "llama", Console(file=io.StringIO(), force_terminal=True)) as show:
        arguments = argparse.Namespace(name="llama", state="complete")
        assert (await wait.wait_for(cluster, arguments, show))[0] == 0
    assert [words.rpartition(", ")[2] for words in shown[:4]] == ["9s ago", "10s ago", "11s ago", "12s ago"]


@pytest.mark.parametrize("width", [120, 80, 40])
def test_the_bar_stays_readable_in_a_narrow_terminal(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)

    with progress_on(console, percent=True) as progress:
        progress.start("n" * 63)
        progress.update("n" * 63, done=42, total=100, detail="Running, 1h5m left, loss=0.25, 12s ago")

    lines = drawn(out)
    assert all(cell_len(line) <= width for line in lines)
    assert any("━" in line and "42% " in line and "Running" in line and "…" in line for line in lines)


@pytest.mark.parametrize(
    ("end", "wanted", "code", "said"),
    [
        ("Failed", "failed", 0, "TrainJob team-a/llama has failed"),
        (
            "Failed",
            "running",
            1,
            "TrainJob team-a/llama has failed and is not running; see trainerctl why llama -n team-a",
        ),
        ("Complete", "failed", 1, "TrainJob team-a/llama is complete and is not failed"),
        ("Complete", "running", 0, "TrainJob team-a/llama is complete"),
    ],
)
async def test_the_end_of_a_train_job_is_said_and_leads_to_the_cause(
    end: str, wanted: str, code: int, said: str, changing: Connected
) -> None:
    job = TrainJobObjects().train_job
    job["status"]["conditions"] = [condition(end)]

    assert await wait.wait_for(changing([job]), argparse.Namespace(name="llama", state=wanted)) == (
        code,
        said,
    )


def drawn(out: io.StringIO) -> list[str]:
    """Return the lines that were drawn on a terminal, without escape sequences."""
    return re.split("[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()))


@pytest.mark.parametrize("width", [80, 40])
def test_without_a_report_no_bar_is_drawn_and_the_state_is_readable(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)

    with progress_on(console, percent=True) as progress:
        progress.start("llama")
        progress.update("llama", detail="Pending (initializer done)")

    assert any("llama" in line and "Pending (initializer" in line for line in drawn(out))
    assert "━" not in out.getvalue()


@pytest.mark.parametrize("width", [80, 40])
def test_the_steps_of_a_start_keep_their_marks_and_counts_in_a_narrow_terminal(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)

    with progress_on(console) as progress:
        progress.start("start etcd and kube-apiserver")
        progress.finish("start etcd and kube-apiserver", "https://127.0.0.1:25177")
        progress.start("wait for 200 nodes")
        progress.update("wait for 200 nodes", done=55, total=200)
        progress.update("wait for 200 nodes", done=55, total=200, detail="node-7")
        progress.fail("wait for 200 nodes", "timeout")
        progress.fail("never started", "nothing")
        progress.start("copy")
        progress.fail("copy", "reason " * 9)

    lines = drawn(out)
    assert all(cell_len(line) <= width for line in lines)
    assert any(line.startswith("✓") and "https:" in line for line in lines)
    assert any(line.startswith("✗") and "timeout" in line for line in lines)
    assert not any("…" in line for line in lines if "✗" in line)
    assert "reason" not in out.getvalue()  # the error is printed below, in full
