# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cost of admission: AdmissionReviews that are sent straight to the manager's port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Iterator

import anyio
from harness import contest, figures, objects
from harness.api import AT_ONCE
from harness.cluster import Cluster
from harness.contest import Found
from harness.manager import started
from harness.plan import Entrant, Plan

_PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
_TARGETS = {f"direct.{AT_ONCE}.rate": "≥ 2000", f"direct.{AT_ONCE}.manager_cpu": "≤ 500"}


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found, count, request = Found(), plan.sizes.reviews * 2, _review()
        async with started(entrant, where) as manager:
            for at_once in (1, AT_ONCE):
                await _load(manager.port, request, at_once * 2, at_once)
                cpu, begin = manager.cpu(), time.perf_counter()
                took = await _load(manager.port, request, count, at_once)
                name = f"direct.{at_once}"
                found.add(f"{name}.rate", count / (time.perf_counter() - begin), "reviews/s")
                found.add(f"{name}.manager_cpu", (manager.cpu() - cpu) / count * 1e6, "CPU µs/review")
                found.latencies(name, took)
        return found

    whole = await contest.contest(plan.rounds, plan.managers, one)
    return contest.combine("admission", whole, _TARGETS)


async def _load(port: int, request: bytes, count: int, at_once: int) -> list[float]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    todo, took = iter(range(count)), list[float]()

    async def ask(numbers: Iterator[int]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for _ in numbers:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            answer = await reader.readexactly(length)
            if b'"allowed":true' not in answer:
                raise RuntimeError(f"not admitted: {answer[:300]!r}")
            took.append(time.perf_counter() - began)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(ask, todo)
    return took


def _review() -> bytes:
    job = objects.train_job("asked")
    job["spec"]["runtimeRef"] |= {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
    job["spec"]["managedBy"] = "trainer.kubeflow.org/trainjob-controller"
    kind = {"group": "trainer.kubeflow.org", "version": "v1alpha1"}
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "operation": "CREATE",
            "kind": {**kind, "kind": "TrainJob"},
            "resource": {**kind, "resource": "trainjobs"},
            "name": "asked",
            "namespace": objects.NAMESPACE,
            "userInfo": {"username": "me", "groups": ["system:authenticated"]},
            "object": job,
            "dryRun": True,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }
    body = json.dumps(review).encode()
    head = f"POST {_PATH}?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
