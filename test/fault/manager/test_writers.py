# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Other writers, namespaces that end and webhooks that are slow, around the shipped manager."""

import asyncio
import base64
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.client import MERGE, LiveClient, ignore_not_found, raw_patch
from controller_runtime.envtest import Authority
from controller_runtime.machinery import GVK, unstructured

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
HOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"))
DELAY = 9.0


async def test_f10_another_writer_causes_no_conflict(world: Any, figure: Any, outage_seconds: float) -> None:
    """Catches a manager that writes a status with the resourceVersion it read, or again after changes by others."""
    client, namespace, proxy = world.client, world.namespace, world.proxy
    jobs = await world.begin(*(f"job-{number}" for number in range(5)))
    await anyio.sleep(2)
    begin = len(proxy.answers)
    changes = 0

    async def touch(job: TrainJob) -> None:
        for count in range(10**9):
            body = b'{"metadata":{"annotations":{"example.org/count":"%d"}}}' % count
            await client.patch(job, raw_patch(MERGE, body))
            await anyio.sleep(0.05)

    async def change(job: TrainJob) -> None:
        nonlocal changes
        for ready in range(1, 10**9):
            await anyio.sleep(0.5)
            body = {"status": {"replicatedJobsStatus": [{"name": "node", "ready": ready, "succeeded": 0,
                "failed": 0, "active": 0, "suspended": 0}]}}  # fmt: skip
            await client.status.patch(
                JobSet.from_dict({"metadata": {"name": job.name, "namespace": namespace}}),
                raw_patch(MERGE, msgspec.json.encode(body)),
            )
            changes += 1

    with anyio.move_on_after(max(10, outage_seconds)):
        async with anyio.create_task_group() as tasks:
            for job in jobs:
                tasks.start_soon(touch, job)
                tasks.start_soon(change, job)
    await anyio.sleep(1)
    answers = Counter(
        status
        for seen, status in proxy.answers[begin:]
        if f"/namespaces/{namespace}/trainjobs/" in seen.path and seen.method != "GET"
    )
    assert answers[200] > changes / 2
    figure(
        f"F10 {changes} changes under another writer: conflicts", answers[409], at_most=0, unit="conflicts"
    )
    figure("F10 writes a change", sum(answers.values()) / changes, at_most=1.1, unit="writes")
    figure("F10 failed reconciles", world.ours.errors, at_most=0, unit="reconciles")


async def test_f18_a_namespace_that_ends_is_left_alone(
    world: Any, figure: Any, outage_seconds: float
) -> None:
    """Catches a manager that keeps creating objects that the API server refuses in a terminating namespace."""
    client, namespace, proxy = world.client, world.namespace, world.proxy
    await world.begin("job")
    await anyio.sleep(1)
    await client.delete(Namespace.from_dict({"metadata": {"name": namespace}}))
    begin = len(proxy.answers)
    # The namespace controller deletes the content in any order; here the JobSet is deleted first.
    await client.delete(JobSet.from_dict({"metadata": {"name": "job", "namespace": namespace}}))
    await anyio.sleep(max(15, 2 * outage_seconds))
    refused = Counter(
        seen.path.rpartition("/")[0]
        for seen, status in proxy.answers[begin:]
        if status == 403 and f"/namespaces/{namespace}/" in seen.path
    )
    applies = sum(count for path, count in refused.items() if not path.endswith("/events"))
    figure("F18 refused applies in a namespace that ends", applies, at_most=3, unit="requests")
    events = refused[f"/api/v1/namespaces/{namespace}"] + sum(
        count for path, count in refused.items() if path.endswith("/events")
    )
    figure("F18 refused events", events, at_most=3, unit="requests")
    with ignore_not_found():
        await client.delete(TrainJob.from_dict({"metadata": {"name": "job", "namespace": namespace}}))


@pytest.fixture
async def slow_webhook(client: LiveClient, namespace: str, tmp_path: Path) -> AsyncIterator[Counter[str]]:
    """Serve a webhook for the namespace's JobSets that answers after nine seconds; yield the requests by name."""
    asked: Counter[str] = Counter()
    authority = Authority.create("slow")
    pair = authority.server("slow", ["127.0.0.1"])

    async def admit(request: web.Request) -> web.Response:
        review = msgspec.json.decode(await request.read())
        if not review["request"].get("dryRun"):
            asked[f"{review['request']['operation']} {review['request']['name']}"] += 1
        await asyncio.sleep(DELAY)
        response = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    application = web.Application()
    application.router.add_post("/", admit)
    runner = web.AppRunner(application)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair.write(tmp_path)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    hook = {
        "name": "slow.example.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [
            {
                "apiGroups": ["jobset.x-k8s.io"],
                "apiVersions": ["*"],
                "resources": ["jobsets"],
                "operations": ["CREATE"],
            }
        ],
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(authority.certificate).decode(),
        },
    }
    configuration = HOOKS.from_dict({"metadata": {"name": f"slow-{namespace}"}, "webhooks": [hook]})
    await client.create(configuration)
    await anyio.sleep(2)  # the API server takes a moment to read the configuration
    yield asked
    await client.delete(configuration)
    await runner.cleanup()


async def test_f6_a_webhook_that_answers_in_nine_seconds_delays_only_its_own_objects(
    slow_webhook: Counter[str], world: Any, figure: Any
) -> None:
    """Catches a manager that gives up on a slow answer and repeats the request, stalls, or fails while it waits."""
    jobs = 10
    async with world.ours.lag() as latencies:
        for number in range(jobs):
            await world.train(f"job-{number}")
        began = anyio.current_time()
        await world.settled(timeout=90)
        took = anyio.current_time() - began
    # Five workers need two rounds of DELAY seconds for ten JobSets.
    figure(f"F6 {jobs} JobSets through a webhook that takes {DELAY:.0f} s", took, at_most=3 * DELAY)
    creations = sum(count for what, count in slow_webhook.items() if what.startswith("CREATE"))
    figure("F6 creations asked for", creations, at_most=jobs, unit="creations")
    figure("F6 slowest health probe", max(latencies), at_most=0.2)
    figure("F6 failed reconciles", world.ours.errors, at_most=0, unit="reconciles")
