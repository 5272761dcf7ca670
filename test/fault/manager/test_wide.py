# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager with objects and reviews as wide and as large as a tenant can make them."""

import asyncio
import contextlib
import io
import json
import os
import ssl
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.rest import Request

from testkit.builders import pod_override, train_job_document
from testkit.clusters import job_set_at

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
TERMS = 430_000
WIDE = 3
"""The number of stored objects with so many terms."""
SECONDS = float(os.environ.get("FAULT_SECONDS", "5"))
LAG = 0.2
"""How long a health probe or another tenant's review may take, in seconds."""
TIMES = 2
"""The factor by which wide objects and reviews may raise the 99th percentile of other reviews' latency."""
PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"


def wide_spec(runtime: str, terms: int) -> dict[str, Any]:
    """Return a TrainJob's spec with ``terms`` empty objects; TERMS are as many as an API server stores (1.3 MB)."""
    affinity: dict[str, Any] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * terms}
        }
    }
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": runtime}
    return {"runtimeRef": reference, "podTemplateOverrides": [pod_override({"affinity": affinity})]}


def review(spec: dict[str, Any]) -> bytes:
    job = {**train_job_document("default", name="wide"), "spec": spec}
    request = {"uid": "1", "operation": "CREATE", "object": job, "namespace": "default", "name": "wide"}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return msgspec.json.encode(body)


@pytest.fixture
def session_of() -> Any:
    def make(ours: Any) -> aiohttp.ClientSession:
        trust = ssl.create_default_context(cadata=ours.authority.certificate.decode())
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust, limit=0))

    return make


async def store(client: LiveClient, namespace: str, name: str, spec: dict[str, Any]) -> None:
    """Create a TrainJob without reading the answer, which our own client would refuse to decode."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": spec,
    }
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    headers = {"Content-Type": "application/json"}
    answer = await client.transport.send(
        Request("POST", path, headers=headers, body=msgspec.json.encode(job))
    )
    assert answer.status == 201
    await answer.close()


async def post(session: aiohttp.ClientSession, ours: Any, body: bytes) -> int:
    """Post a review; return the HTTP status of the answer, or 0 if the connection broke."""
    url = f"https://127.0.0.1:{ours.webhook_port}{PATH}"
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(
            url, data=io.BytesIO(body), headers=headers, timeout=aiohttp.ClientTimeout(60)
        ) as answer:
            await answer.read()
            return answer.status
    except (aiohttp.ClientError, OSError, TimeoutError):
        return 0


async def test_f11_f12_f13_wide_objects_are_left_out_and_reported(world: Any, figure: Any) -> None:
    """Catches a manager that decodes all stored objects: its loop stalls, its memory grows, it loses its lease."""
    client, namespace, ours = world.client, world.namespace, world.ours
    await world.begin("before")
    await anyio.sleep(3)
    idle = ours.memory()
    runtime = f"torch-{namespace}"
    wide = [f"wide-{number}" for number in range(WIDE)]
    async with ours.lag() as latencies:
        for name in wide:
            await store(client, namespace, name, wide_spec(runtime, TERMS))
        await anyio.sleep(8)
        began = time.monotonic()
        late = await world.train("late")
        await job_set_at(client, late.key)
        took = time.monotonic() - began
    figure(f"F11 {WIDE} TrainJobs of 1.3 MB stored: another's JobSet after", took, at_most=3)
    figure("F13 slowest health probe", max(latencies), at_most=LAG)
    figure("F13 p99 of health probes", statistics.quantiles(latencies, n=100)[98], at_most=LAG / 2)
    figure("F13 memory, against idle", ours.memory() / idle, at_most=2, unit="times")
    figure("F13 most memory, against idle", ours.memory("VmHWM") / idle, at_most=3, unit="times")
    assert ours.running

    async def reported() -> bool:
        events = await client.list(Event, namespace=namespace)
        warned = {
            each.involved_object.name
            for each in events
            if each.type == "Warning" and each.involved_object is not None
        }
        return warned >= set(wide)

    await eventually(reported, timeout=20, reason="F12: a wide TrainJob has a Warning event")


async def test_f13_wide_reviews_and_broken_off_bodies_stop_nobody(
    ours: Any, session_of: Any, figure: Any
) -> None:
    """Catches a webhook that decodes any body on its loop, or keeps the bodies of closed connections."""
    wide = review(wide_spec("none", 2_200_000))
    assert 6 << 20 < len(wide) < 7 << 20
    small = review({"runtimeRef": {"name": "none"}})
    async with session_of(ours) as session:
        assert await post(session, ours, small) == 200
        idle = ours.memory()
        others: list[float] = []

        async def ask_others() -> None:
            while True:
                delay = ours.delay()
                assert await post(session, ours, small) == 200
                others.append(delay())
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_others)
            async with ours.lag() as latencies:
                for _ in range(10):
                    assert await post(session, ours, wide) in (200, 400, 413)
                for _ in range(60):
                    await break_off(ours, wide)
                await anyio.sleep(2)
            tasks.cancel_scope.cancel()
        figure("F13 ten reviews of 6.6 MB: slowest health probe", max(latencies), at_most=LAG)
        figure(
            "F13 ten reviews: p99 of health probes",
            statistics.quantiles(latencies, n=100)[98],
            at_most=LAG / 2,
        )
        figure("F13 others' reviews, p99", statistics.quantiles(others, n=100)[98], at_most=LAG)
        figure("F13 60 broken-off bodies: growth of memory", ours.memory() - idle, at_most=64, unit="MiB")
        assert await post(session, ours, small) == 200
    assert ours.running


async def test_f13_all_of_it_at_once_is_not_felt_by_others(
    world: Any, session_of: Any, figure: Any, tmp_path: Path
) -> None:
    """Catches a manager that lets other tenants wait while it has wide objects and gets wide reviews."""
    client, namespace, ours = world.client, world.namespace, world.ours
    await world.begin("before")
    small = review({"runtimeRef": {"name": "none"}})
    authority = tmp_path / "authority.crt"
    authority.write_bytes(ours.authority.certificate)
    async with session_of(ours) as session:

        async def others() -> list[float]:
            """Post small reviews for SECONDS; return their latencies."""
            latencies = []
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                delay = ours.delay()
                assert await post(session, ours, small) == 200
                latencies.append(delay())
                await anyio.sleep(0.02)
            return latencies

        await others()
        idle = ours.memory()
        quiet = await others()
        for number in range(20):
            await store(client, namespace, f"wide-{number}", wide_spec(f"torch-{namespace}", TERMS))
        url = f"https://127.0.0.1:{ours.webhook_port}{PATH}"
        arguments = [url, str(authority), "10", str(SECONDS)]
        program = [sys.executable, str(Path(__file__).with_name("flood.py")), *arguments]
        async with await anyio.open_process(program, stderr=None) as flood:
            assert flood.stdout is not None
            assert await flood.stdout.receive() == b"ready\n"
            async with ours.lag() as latencies:
                busy = await others()
            memory = ours.memory()
            answers = json.loads(await flood.stdout.receive())
    figure("F13 wide reviews that broke, of 10 a second", answers.get("0", 0), at_most=0, unit="reviews")
    assert sum(answers.values()) == int(10 * SECONDS)
    figure("F13 20 stored, 10 reviews of 6.6 MB a second: slowest probe", max(latencies), at_most=LAG)
    figure("F13 20 stored, 10 a second: memory, against idle", memory / idle, at_most=2, unit="times")
    figure(
        "F13 20 stored, 10 a second: most memory, against idle",
        ours.memory("VmHWM") / idle,
        at_most=3,
        unit="times",
    )
    before, now = (statistics.quantiles(each, n=100)[98] for each in (quiet, busy))
    figure("F13 others' reviews, quiet: p99", before, at_most=LAG)
    figure("F13 others' reviews, meanwhile: p99", now, at_most=LAG)
    figure("F13 others' reviews, p99 against quiet", now / before, at_most=TIMES, unit="times")
    assert ours.running


async def break_off(ours: Any, body: bytes) -> None:
    """Announce a body, send nearly all of it, and close the connection."""
    trust = ssl.create_default_context(cadata=ours.authority.certificate.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", ours.webhook_port, ssl=trust)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with contextlib.suppress(OSError):
        writer.write(head.encode() + body[:-100])
        await asyncio.wait_for(writer.drain(), 30)
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
