# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logs of simulated pods: their lines, the options of a request, and the answers of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.envtest import HOST, free_ports
from pkg.why.liveobject import LiveObject

from trainerctl.localcluster.podlogs.server import Log, LogServer, Query
from trainerctl.localcluster.podlogs.simulated import MARK, Container, SimulatedLogs, lines

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}


def ended(code: int = 0, after: str = "12:00:02") -> dict[str, Any]:
    times = {"startedAt": "2026-01-01T12:00:00Z", "finishedAt": f"2026-01-01T{after}Z"}
    return {"terminated": {"exitCode": code, **times}}


def pod(
    state: dict[str, Any], *, container: str = "node", owner: str = "Job", **annotations: str
) -> LiveObject:
    metadata: dict[str, Any] = {
        "name": "job-node-0-1",
        "namespace": "team",
        "uid": "1",
        "annotations": {f"sim.local/{name.replace('_', '-')}": value for name, value in annotations.items()},
        "ownerReferences": [{"kind": owner, "uid": "2"}],
    }
    metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = "1"
    env = [{"name": "PET_NNODES", "value": "2"}]
    spec = {"name": container, "image": "torch:1", "command": ["torchrun", "train.py"], "env": env}
    status = {"containerStatuses": [{"name": container, "state": state}]}
    return LiveObject({"metadata": metadata, "spec": {"containers": [spec]}, "status": status})


def texts(thing: LiveObject, seconds: float = 3600, name: str = "node") -> list[str]:
    return [line.text for line in lines(Container(thing, name), START + timedelta(seconds=seconds))]


def test_every_line_states_that_it_is_simulated_and_the_work_names_rank_epoch_step_and_loss() -> None:
    written = texts(pod(ended()))

    assert all(line.startswith(f"{MARK} ") for line in written)
    assert "torch:1" in written[0]
    assert "torchrun train.py" in written[0]
    assert written[1] == f"{MARK} rank=1 nodes=2 epoch=1 step=1/10 loss=1.7808"
    assert len(written) == 12
    assert written[-1] == f"{MARK} rank=1 nodes=2 done"


def test_a_running_pod_has_written_what_its_time_allows_and_no_line_is_changed_later() -> None:
    thing = pod(RUNNING, run_for="110s")

    assert len(texts(thing, 0)) == 1
    assert len(texts(thing, 35)) == 4
    assert texts(thing, 10_000) == texts(pod(ended(after="12:02:00"), run_for="110s"))[:-1]


def test_a_pod_that_fails_stops_in_the_middle_and_its_last_line_has_the_exit_code() -> None:
    written = texts(pod(ended(7), exit_code="7"))

    assert "step=6/10" in written[-2]
    assert "exit code 7" in written[-1]


def test_an_initializer_reports_its_progress() -> None:
    assert f"{MARK} progress=50%" in texts(
        pod(ended(), container="model-initializer"), name="model-initializer"
    )


def test_a_pod_of_no_job_writes_its_first_line_only_and_one_that_waits_writes_nothing() -> None:
    assert len(texts(pod(RUNNING, owner="ReplicaSet"))) == 1
    assert texts(pod({"waiting": {"reason": "ImagePullBackOff"}})) == []


@pytest.mark.parametrize("run_for", ["soon", "-1s", "9999999h", ""])
def test_an_annotation_that_is_not_a_duration_does_not_prevent_a_log(run_for: str) -> None:
    assert texts(pod(ended(), run_for=run_for))


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ("", "No container runs", 12),
        ("tailLines=1", "done", 1),
        ("tailLines=0", "", 0),
        ("tailLines=all", "No container runs", 12),
        ("sinceTime=2026-01-01T12:00:01Z", "step=6/10", 6),
        ("sinceSeconds=9", "step=6/10", 6),
        ("limitBytes=11", "[simulated]", 1),
    ],
)
async def test_options_select_lines(query: str, first: str, count: int) -> None:
    server = SimulatedLogs(Pods(pod(ended())), now=lambda: START + timedelta(seconds=10))

    found = b"".join([part async for part in server.log(f"/containerLogs/team/job/node?{query}")]).decode()

    assert len(found.splitlines()) == count
    assert first in found.partition("\n")[0]


def test_timestamps_precede_the_lines() -> None:
    query = Query.parse({"timestamps": ["true"]}, START)
    assert query.render(lines(Container(pod(RUNNING), "node"), START)[0]).startswith(
        b"2026-01-01T12:00:00.000000Z ["
    )


class Pods:
    """Returns one pod after the other, and then the last one repeatedly."""

    def __init__(self, *pods: LiveObject | None) -> None:
        self._pods = list(pods)

    async def __call__(self, namespace: str, name: str) -> LiveObject | None:
        return self._pods.pop(0) if len(self._pods) > 1 else self._pods[0]


async def test_a_followed_log_ends_with_its_container_and_repeats_no_line() -> None:
    server = SimulatedLogs(Pods(pod(RUNNING), pod(RUNNING), pod(ended())), now=lambda: START, poll=0)

    parts = [part async for part in server.log("/containerLogs/team/job/node?follow=true")]

    assert [len(part.splitlines()) for part in parts] == [1, 0, 11]


@pytest.mark.parametrize("later", [None, LiveObject({"metadata": {"uid": "other"}})])
async def test_a_followed_log_ends_with_its_pod(later: LiveObject | None) -> None:
    server = SimulatedLogs(Pods(pod(RUNNING), later), now=lambda: START, poll=0)

    assert len([part async for part in server.log("/containerLogs/team/job/node?follow=true")]) == 1


@asynccontextmanager
async def serving(log: Log) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    async with anyio.create_task_group() as group:
        group.start_soon(LogServer(log).serve, HOST, port, None)
        yield port
        group.cancel_scope.cancel()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(HOST, port)
        except ConnectionRefusedError:
            await anyio.sleep(0.01)


RUN, WAITS = pod(ended()), pod({"waiting": {"reason": "PodInitializing"}})


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("found", "request_line", "status", "text"),
    [
        (RUN, "GET /healthz", 200, "ok"),
        (RUN, "GET /containerLogs/team/job/node", 200, "loss="),
        (RUN, "GET /containerLogs/team/job/other", 404, 'container "other" in pod "job" not found'),
        (RUN, "GET /containerLogs/team/job/node?previous=true", 400, "previous terminated container"),
        (RUN, "GET /containerLogs/team/job/node?tailLines=-1", 400, "tailLines must be a number"),
        (RUN, "GET /containerLogs/team/job/node?sinceTime=now", 400, "now"),
        (RUN, "GET /containerLogs/team/job/node?sinceTime=9999-12-31T23:59:59-01:00", 400, "1 to 9999"),
        (RUN, "GET http://[x/containerLogs/team/job/node", 400, "Invalid IPv6 URL"),
        (RUN, "GET /containerLogs/team/job", 404, "is not served"),
        (RUN, "GET /exec/team/job/node", 404, "is not served"),
        (RUN, "POST /containerLogs/team/job/node", 405, "POST is not served"),
        (None, "GET /containerLogs/team/job/node", 404, 'pod "job" not found'),
        (WAITS, "GET /containerLogs/team/job/node", 400, "PodInitializing"),
    ],
)
async def test_the_server_answers_as_a_kubelet(
    found: LiveObject | None, request_line: str, status: int, text: str
) -> None:
    async with serving(SimulatedLogs(Pods(found), poll=0).log) as port:
        reader, writer = await connected(port)
        writer.write(f"{request_line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.split()[1] == str(status)
    assert text in answer.partition("\r\n\r\n")[2]


@pytest.mark.real_time
async def test_a_quiet_log_is_not_read_on_after_the_client_has_disconnected() -> None:
    ended = anyio.Event()

    async def quiet(target: str) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b""
                await anyio.sleep(0.01)
        finally:
            ended.set()

    async with serving(quiet) as port:
        reader, writer = await connected(port)
        writer.write(b"GET /containerLogs/team/job/node?follow=true HTTP/1.1\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        with anyio.fail_after(30):
            await ended.wait()
