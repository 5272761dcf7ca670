# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of probes, and when they count; test/integration/localcluster/processes runs probes of real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.abc
import pytest
from controller_runtime.apis.core.v1 import Container, ContainerStateRunning, Pod, Probe

from trainerctl.localcluster.processes.probes import Probes, ProbeTarget
from trainerctl.localcluster.processes.status import ContainerRecord

_PLAN: Any = SimpleNamespace(ports={})
_TARGET = ProbeTarget(cast("Any", None), _PLAN, "127.0.0.1", [])


@asynccontextmanager
async def _listening(answer: Callable[[anyio.abc.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """Answer connections, and yield the port."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, answer)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [(None, "/", 200), ("/healthz", "/healthz", 503), ("a/b?c=d", "/a/b?c=d", 399), (None, "/", 199), (None, "/", 400)],
)  # fmt: skip
async def test_a_probe_asks_for_its_path_and_an_error_is_a_failure(
    path: str | None, asked: str, status: int
) -> None:
    heads: list[bytes] = []

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            heads.append(await stream.receive())
            await stream.send(b"HTTP/1.1 %d Word\r\nContent-Length: 0\r\n\r\n" % status)

    async with _listening(answer) as port:
        good, _ = await _TARGET.check(Probe.from_dict({"httpGet": {"path": path, "port": port}}), 10)
    assert good == (200 <= status < 400)
    assert heads[0].startswith(f"GET {asked} HTTP/1.1\r\n".encode())


@pytest.mark.real_time
@pytest.mark.parametrize("kind", ["tcpSocket", "grpc"])
async def test_a_connection_is_enough_where_no_path_is_asked(kind: str) -> None:
    async def close(stream: anyio.abc.SocketStream) -> None:
        await stream.aclose()

    async with _listening(close) as port:
        probe = Probe.from_dict({kind: {"port": port}})
        assert await _TARGET.check(probe, 10) == (True, "")
    good, message = await _TARGET.check(probe, 10)
    assert not good
    assert message


class Probed:
    """A container whose probes succeed (1) or fail (0) as ``answers`` say; the last answer is repeated."""

    def __init__(self, answers: str, *, stopping: bool = False) -> None:
        self.record = ContainerRecord("node", "", ContainerStateRunning())
        self.ends: list[tuple[float, str, float | None]] = []
        self.changes: list[tuple[float, bool]] = []
        self.reports: list[str] = []
        self._answers = list(answers)
        self._stopping = stopping

    async def check(self, _probe: Any, _timeout: float) -> tuple[bool, str]:
        good = (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]) == "1"
        return good, "" if good else "broken"

    async def run(self, seconds: float, **probes: Any) -> None:
        begun, target = anyio.current_time(), cast("ProbeTarget", self)

        async def kill(reason: str, grace: float | None) -> None:
            self.ends.append((anyio.current_time() - begun, reason, grace))

        running = Probes(
            Pod(),
            Container.from_dict({"name": "node", **probes}),
            self.record,
            target,
            lambda _pod, reason, message: self.reports.append(f"{reason}: {message}"),
            lambda: self.changes.append((anyio.current_time() - begun, self.record.ready)),
            lambda: self._stopping,
        )
        with anyio.move_on_after(seconds):
            await running.run(kill)


@pytest.mark.parametrize(
    ("answers", "kind", "probe", "end"),
    [
        ("10010100", "liveness", {}, (80, None)),
        ("1100", "liveness", {"failureThreshold": 2, "periodSeconds": 4}, (12, None)),
        ("0", "liveness", {"failureThreshold": 1, "initialDelaySeconds": 5}, (5, None)),
        ("0", "startup", {"terminationGracePeriodSeconds": 7}, (20, 7)),
        ("000", "startup", {"failureThreshold": 2, "periodSeconds": 1}, (1, None)),
        ("1", "liveness", {}, None),
        ("0001", "startup", {"failureThreshold": 4}, None),
    ],
)
async def test_a_container_ends_when_a_probe_has_failed_often_enough_in_a_row(
    answers: str, kind: str, probe: dict[str, int], end: tuple[float, float | None] | None
) -> None:
    probed = Probed(answers)
    await probed.run(600, **{f"{kind}Probe": probe})
    assert probed.ends == ([(end[0], f"failed {kind} probe", end[1])] if end else [])
    assert probed.reports[:1] == (
        [f"Unhealthy: {kind.title()} probe failed: broken"] if "0" in answers else []
    )
    if answers == "0001":
        assert (probed.changes, probed.record.started) == ([(30, True)], True)


@pytest.mark.parametrize(
    ("answers", "probe", "changes"),
    [
        ("01001000", {}, [(10, True), (70, False)]),
        ("01101", {"successThreshold": 2, "failureThreshold": 1, "periodSeconds": 1}, [(2, True), (3, False), (5, True)]),
        ("1", {"initialDelaySeconds": 9}, [(9, True)]),
    ],
)  # fmt: skip
async def test_a_container_is_ready_after_successes_in_a_row_until_failures_in_a_row(
    answers: str, probe: dict[str, int], changes: list[tuple[float, bool]]
) -> None:
    probed = Probed(answers, stopping=True)  # readiness is probed until the end
    await probed.run(100, readinessProbe=probe)
    assert probed.changes == changes


async def test_a_container_that_is_stopped_is_not_ended_by_its_liveness_probe() -> None:
    probed = Probed("0", stopping=True)
    await probed.run(600, livenessProbe={"failureThreshold": 1})
    assert (probed.ends, probed.reports) == ([], [])
