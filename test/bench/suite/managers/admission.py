# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cost of admission: dry-run creates with and without the webhook, and AdmissionReviews to the manager's port.

Creates with and without the webhook take turns, request by request, so that other load of the machine affects both
alike. Those without it are the control: no manager takes part in them, so their ratio shows how far the other ratios
can be trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import anyio
from harness import api, contest, figures, objects
from harness.api import AT_ONCE
from harness.cluster import Cluster
from harness.contest import Found
from harness.manager import Manager, started
from harness.plan import Entrant, Plan

_PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
_MUTATING = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
_TURNS = 4
_NAMESPACES = {"hooked": objects.NAMESPACE, "plain": objects.OTHERS}
_TARGETS = {
    "create.1.added.p99": "≤ 10",
    f"direct.{AT_ONCE}.rate": "≥ 2000",
    f"direct.{AT_ONCE}.manager_cpu": "≤ 500",
}


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found, count = Found(), plan.sizes.reviews
        async with started(entrant, where) as manager:
            async with manager.asked():
                await _create(where, "hooked", 20)
                await _create(where, "plain", 20)
                await _alone(where, found, max(count // 4, 8))
                for what in _NAMESPACES:
                    begin = time.perf_counter()
                    took = await _create(where, what, count, at_once=AT_ONCE)
                    name = f"create.{AT_ONCE}.{what}"
                    found.add(f"{name}.rate", count / (time.perf_counter() - begin), "creates/s")
                    found.latencies(name, took)
            for at_once in (1, AT_ONCE):
                await _direct(manager, found, count * 2, at_once)
            await _second_webhook(manager, found, count * 2)
        return found

    whole = await contest.contest(plan.rounds, plan.managers, one)
    return contest.combine("admission", whole, _TARGETS)


async def _alone(where: Cluster, found: Found, count: int) -> None:
    took: dict[str, list[float]] = {what: [] for what in _NAMESPACES}
    for _ in range(count):
        for what, kept in took.items():
            kept += await _create(where, what, 1)
    for what, kept in took.items():
        found.latencies(f"create.1.{what}", kept)
    for quantile in ("p50", "p99"):
        added = found.values[f"create.1.hooked.{quantile}"][0] - found.values[f"create.1.plain.{quantile}"][0]
        found.add(f"create.1.added.{quantile}", added, "ms")


async def _create(where: Cluster, what: str, count: int, *, at_once: int = 1) -> list[float]:
    namespace = _NAMESPACES[what]
    path = f"{objects.TRAINER}/namespaces/{namespace}/trainjobs"
    body = json.dumps(_train_job(namespace)).encode()
    done = await api.each(
        range(count), lambda _: where.api.send("POST", path, body, query={"dryRun": "All"}), at_once=at_once
    )
    return [each.took for each in done.values()]


async def _direct(manager: Manager, found: Found, count: int, at_once: int) -> None:
    request = _review()
    await _load(manager.port, request, at_once * 2, at_once)
    cpu, begin = manager.cpu(), time.perf_counter()
    took = await _load(manager.port, request, count, at_once)
    name = f"direct.{at_once}"
    found.add(f"{name}.rate", count / (time.perf_counter() - begin), "reviews/s")
    found.add(f"{name}.manager_cpu", (manager.cpu() - cpu) / count * 1e6, "CPU µs/review")
    found.latencies(name, took)


async def _second_webhook(manager: Manager, found: Found, count: int) -> None:
    """Compare the manager's CPU time for validating reviews alone and for pairs of a mutating and a validating review.

    Both take turns.
    """
    validating, mutating = _review(), _review(_MUTATING)
    if not await _admits(manager.port, mutating):
        return  # Trainer v2.1 has no mutating webhook
    spent = {"validating": 0.0, "both": 0.0}
    for turn in range(2 * _TURNS):
        name = "both" if turn % 2 else "validating"
        cpu = manager.cpu()
        if turn % 2:
            await _load(manager.port, mutating, count, AT_ONCE)
        await _load(manager.port, validating, count, AT_ONCE)
        spent[name] += manager.cpu() - cpu
    for name, seconds in spent.items():
        found.add(f"create.{name}.manager_cpu", seconds / (count * _TURNS) * 1e6, "CPU µs/create")
    found.add("create.both.by_validating", spent["both"] / spent["validating"], "times the CPU")


async def _admits(port: int, request: bytes) -> bool:
    try:
        await _load(port, request, 1, 1)
    except* RuntimeError:
        found = False
    else:
        found = True
    return found


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


def _review(path: str = _PATH) -> bytes:
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
            "object": _train_job(objects.NAMESPACE),
            "dryRun": True,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }
    body = json.dumps(review).encode()
    head = f"POST {path}?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _train_job(namespace: str) -> dict[str, Any]:
    job = objects.train_job("asked")
    job["metadata"]["namespace"] = namespace
    job["spec"]["runtimeRef"] |= {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
    job["spec"]["managedBy"] = "trainer.kubeflow.org/trainjob-controller"
    return job
