# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A webhook on JobSets answers late while the shipped manager works."""

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
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Authority
from controller_runtime.machinery import GVK, unstructured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
HOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"))
DELAY = 9.0


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
