# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What admission costs: on a real API server, with and without the webhook, and straight to its port.

With and without take turns, request by request, so that what else the machine does meets both alike. The server has a
core of its own where there are several.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import math
import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import psutil

from pkg.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from pkg.apis.core.v1 import Namespace
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.cli import resources
from pkg.cli.cluster import contents
from pkg.ctrl import client, rest
from pkg.ctrl.envtest import Environment, eventually

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = ROOT / "test" / "integration" / "webhooks" / "program.py"
PATH: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
AT_ONCE: Final = 32
SECONDS: Final = 3.0
CREATES: Final = 400
Figure = dict[str, Any]


async def run(rounds: int) -> list[Figure]:
    """Measure; the figures have the shape that ``main.py`` keeps as JSON."""
    with _server() as (process, port, authority):
        return [
            *await _direct(rounds, process, port),
            *await _through_the_api_server(rounds, port, authority),
        ]


@contextlib.contextmanager
def _server() -> Any:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port, authority = process.stdout.readline().split()
        yield process, int(port), authority
    finally:
        process.kill()
        process.wait()


# Straight to the port.


async def _direct(rounds: int, process: subprocess.Popen[str], port: int) -> list[Figure]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, cores[:1])
        os.sched_setaffinity(0, cores[1:])
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "operation": "CREATE",
            "resource": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "resource": "trainjobs"},
            "userInfo": {"username": "me", "groups": ["system:authenticated"]},
            "object": _train_job("team").to_dict(),
        },
    }
    body = json.dumps(review).encode()
    head = f"POST {PATH}?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    watched = psutil.Process(process.pid)
    rates, costs, waits = [], [], []
    for _ in range(rounds):
        before, began = watched.cpu_times(), time.perf_counter()
        took = await _load(port, request)
        spent, after = time.perf_counter() - began, watched.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        rates.append(len(took) / spent)
        costs.append(cpu / len(took) * 1e6)
        waits.append(_percentile(took, 99) * 1e3)
    os.sched_setaffinity(0, cores)
    os.sched_setaffinity(process.pid, cores)
    return [
        _figure(f"reviews straight to the port, {AT_ONCE} at a time", "/s", rates, "≥ 2000"),
        _figure("the server's CPU a review", "µs", costs, "≤ 500"),
        _figure("reviews a second of the server's CPU", "/s", [1e6 / cost for cost in costs], "≥ 2000"),
        _figure(f"p99 of a review straight to the port, {AT_ONCE} at a time", "ms", waits, ""),
    ]


async def _load(port: int, request: bytes) -> list[float]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    took: list[float] = []
    until = time.perf_counter() + SECONDS

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        while (began := time.perf_counter()) < until:
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
        for _ in range(AT_ONCE):
            tasks.start_soon(ask)
    return took


# Through the API server.


async def _through_the_api_server(rounds: int, port: int, authority: str) -> list[Figure]:
    async with _api_server(port, authority) as live:
        for name in ("plain", "hooked"):  # connections and caches
            await _creates(live, name, 20)
        alone: dict[str, list[list[float]]] = {"plain": [], "hooked": []}
        together: dict[str, list[list[float]]] = {"plain": [], "hooked": []}
        for _ in range(rounds):
            mixed: dict[str, list[float]] = {"plain": [], "hooked": []}
            for number in range(2 * CREATES):
                name = ("plain", "hooked")[number % 2]
                mixed[name] += await _creates(live, name, 1)
            for name, took in mixed.items():
                alone[name].append(took)
                together[name].append(await _creates(live, name, CREATES * 2, at_once=AT_ONCE))
    found = []
    for what, kept, target in (("1", alone, "≤ 10"), (str(AT_ONCE), together, "")):
        for percent in (50, 99):
            values = {
                name: [_percentile(took, percent) * 1e3 for took in series] for name, series in kept.items()
            }
            added = [ours - theirs for ours, theirs in zip(values["hooked"], values["plain"], strict=True)]
            name = f"p{percent} of a dry-run create, {what} at a time"
            found.append(_figure(f"{name}: with the webhook", "ms", values["hooked"], ""))
            found.append(_figure(f"{name}: without", "ms", values["plain"], ""))
            found.append(_figure(f"{name}: added", "ms", added, target if percent == 99 else ""))
    return found


@contextlib.asynccontextmanager
async def _api_server(port: int, authority: str) -> AsyncIterator[client.LiveClient]:
    async with (
        Environment(crds=resources.crds()) as environment,
        rest.Transport(environment.config) as transport,
    ):
        live = client.LiveClient(transport, rest.RESTMapper(transport))
        for name in ("plain", "hooked"):
            await live.create(Namespace.from_dict({"metadata": {"name": name}}))
        (manifest,) = contents.trainer_webhooks(f"https://127.0.0.1:{port}", b"")
        hooks = [hook for hook in manifest["webhooks"] if hook["clientConfig"]["url"].endswith(PATH)]
        for hook in hooks:
            hook["clientConfig"]["caBundle"] = authority
            hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "hooked"}}
        manifest["webhooks"] = hooks
        await live.create(ValidatingWebhookConfiguration.from_dict(manifest))
        bad = _train_job("hooked")
        bad.spec.runtime_ref.name = "nowhere"

        async def asked() -> bool:
            try:
                await live.create(bad, dry_run=True)
            except Exception as error:
                return "must be created before" in str(error)
            return False

        await eventually(asked, timeout=20, reason="the API server asks the webhook")
        yield live


async def _creates(live: client.LiveClient, namespace: str, count: int, *, at_once: int = 1) -> list[float]:
    job = _train_job(namespace)
    took: list[float] = []

    async def work(share: int) -> None:
        for _ in range(share):
            began = time.perf_counter()
            await live.create(job, dry_run=True)
            took.append(time.perf_counter() - began)

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work, count // at_once)
    return took


def _train_job(namespace: str) -> TrainJob:
    env = [{"name": f"SETTING_{number}", "value": str(number)} for number in range(5)]
    return TrainJob.from_dict(
        {
            "metadata": {"name": "llama", "namespace": namespace, "labels": {"team": "a"}},
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "ClusterTrainingRuntime",
                    "name": "torch-distributed",
                },
                "trainer": {"image": "example.com/train:1", "numNodes": 4, "env": env},
            },
        }
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, math.ceil(len(ranked) * percent / 100) - 1)]


def _figure(name: str, unit: str, rounds: Sequence[float], target: str) -> Figure:
    value = statistics.median(rounds)
    sign, _, limit = target.partition(" ")
    met = None if not target else value >= float(limit) if sign == "≥" else value <= float(limit)
    return {"name": name, "value": value, "unit": unit, "target": target, "rounds": list(rounds), "met": met}


def main() -> int:
    """Measure and print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_uvloop = importlib.util.find_spec("uvloop") is not None
    found = anyio.run(run, options.rounds, backend_options={"use_uvloop": use_uvloop})
    for each in found:
        target = f"  ({each['target']}: {'met' if each['met'] else 'missed'})" if each["target"] else ""
        sys.stdout.write(f"{each['name']:62} {each['value']:10.2f} {each['unit']}{target}\n")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(each["met"] is False for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
