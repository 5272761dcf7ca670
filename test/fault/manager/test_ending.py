# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""While the shipped manager works, it is terminated, or a kind that it needs is missing."""

import ssl
import time
from collections import Counter
from functools import partial
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import RESTMapper, Transport

from testkit.builders import train_job_document

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
CRD = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))


class Admissions:
    """Reviews of a valid TrainJob, sent directly to a manager at a steady rate."""

    def __init__(self, ours: Any, namespace: str, runtime: str) -> None:
        self.answers: Counter[str] = Counter()
        self.stopping = False
        self._ours = ours
        job = train_job_document(namespace, runtime, name="asked", kind="ClusterTrainingRuntime")
        request = {"uid": "1", "operation": "CREATE", "object": job, "namespace": namespace, "name": "asked"}
        self._body = msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        )

    async def run(self, *, rate: int, keep: bool) -> None:
        """Send reviews until stopped: over kept connections if ``keep``, else over a new one each."""
        trust = ssl.create_default_context(cadata=self._ours.authority.certificate.decode())
        connector = aiohttp.TCPConnector(ssl=trust, limit=0, force_close=not keep)
        async with aiohttp.ClientSession(connector=connector) as session, anyio.create_task_group() as tasks:
            began, asked = time.monotonic(), 0
            while not self.stopping:
                asked += 1
                tasks.start_soon(self._ask, session)
                await anyio.sleep(max(0.0, began + asked / rate - time.monotonic()))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        try:
            await self._ask_once(session)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # The manager closed a connection that seemed idle. The API server's client retries on another.
            try:
                await self._ask_once(session)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                self.answers[f"broken off: {error!r}"] += 1

    async def _ask_once(self, session: aiohttp.ClientSession) -> None:
        url = f"https://127.0.0.1:{self._ours.webhook_port}{PATH}"
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(
                url, data=self._body, headers=headers, timeout=aiohttp.ClientTimeout(20)
            ) as answer:
                body = await answer.read()
                allowed = answer.status == 200 and msgspec.json.decode(body)["response"]["allowed"]
                self.answers["allowed" if allowed else f"{answer.status}: {body[:200]!r}"] += 1
        except aiohttp.ClientConnectorError:
            self.answers["no connection"] += 1
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.answers[f"broken off: {error!r}"] += 1

    @property
    def wrong(self) -> dict[str, int]:
        """The answers that neither admit nor come from a closed port, with their numbers."""
        return {what: n for what, n in self.answers.items() if what not in ("allowed", "no connection")}


async def test_f21_reviews_are_answered_until_the_end_and_the_lease_goes_last(
    client: LiveClient, namespace: str, new_manager: Any, proxy: Any, train: Any, served: Any, figure: Any
) -> None:
    """Catches an end in which caches stop before reviews, answers are cut, or the lease is released too early."""
    ours = new_manager(
        proxy.url,
        leaderElection={"leaderElect": True, "resourceNamespace": namespace, "resourceName": "lock"},
    )
    ours.start()
    await ours.ready()
    await train("before")
    await eventually(served, timeout=30, reason="the first TrainJob has its JobSet")
    load = Admissions(ours, namespace, f"torch-{namespace}")
    async with anyio.create_task_group() as tasks:
        for keep in (True, False):
            tasks.start_soon(partial(load.run, rate=40, keep=keep))
        await anyio.sleep(2)
        for number in range(10):
            await train(f"late-{number}")
        before = load.answers["allowed"]
        begin = len(proxy.answers)
        ended = await anyio.to_thread.run_sync(ours.terminate)
        load.stopping = True
    assert before > 40
    assert ended == 0
    assert load.wrong == {}, load.wrong
    figure(
        "F21 reviews answered otherwise while the manager ends",
        sum(load.wrong.values()),
        at_most=0,
        unit="reviews",
    )
    writes = [seen for seen, _ in proxy.answers[begin:] if seen.method != "GET"]
    assert "/leases/" in writes[-1].path, [seen.path for seen in writes]
    lease = await client.get(Lease, (namespace, "lock"))
    assert not lease.spec.holder_identity


async def test_f16_a_missing_kind_is_logged_once_in_a_while(
    trainer_crds: list[dict[str, Any]], new_proxy: Any, new_manager: Any, figure: Any, outage_seconds: float
) -> None:
    """Catches a manager that logs each failed attempt to list a kind that is not served."""
    seconds = max(20.0, outage_seconds)
    async with Environment() as environment:
        missing = [each for each in trainer_crds if each["spec"]["names"]["kind"] == "JobSet"]
        await environment.install_crds(*[each for each in trainer_crds if each not in missing])
        async with Transport(environment.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            with pytest.raises(NotFoundError):
                await client.get(CRD, ("", missing[0]["metadata"]["name"]))
        ours = new_manager((await new_proxy(environment.config)).url)
        ours.start()
        await ours.ready()
        before, size = ours.lines(), ours.log.stat().st_size
        await anyio.sleep(seconds)
        assert "jobset" in ours.log.read_text().lower(), "the missing kind is named"
        figure(
            f"F16 JobSet missing: log lines in {seconds:.0f} s",
            ours.lines() - before,
            at_most=seconds / 5,
            unit="lines",
        )
        figure(
            "F16 JobSet missing: bytes of log",
            ours.log.stat().st_size - size,
            at_most=500 * seconds / 5,
            unit="bytes",
        )
        assert ours.running
