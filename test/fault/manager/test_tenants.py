# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager while one tenant makes it work as much as a tenant can, and another tenant creates TrainJobs."""

import base64
import dataclasses
import itertools
import json
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually, free_ports
from controller_runtime.machinery import GVK, Object, metadata_only, unstructured
from controller_runtime.machinery.errors import AlreadyExistsError
from controller_runtime.rest import Config, Request, StaticToken, TLSConfig, Transport

from pkg import shipped
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.statusserver import status_url
from pkg.util import trainjob
from testkit import scenarios
from testkit.builders import pod_override, train_job_document, written_runtime, written_train_job
from testkit.clusters import job_set_at

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
NAMESPACE = unstructured(GVK("", "v1", "Namespace"))
SAMPLES = 40
ANCHORS = "a: [" + ",".join(f"&a{number} 1" for number in range(36_000)) + "]"
"""A snapshot of a runtime that takes long to refuse."""
REVIEW = "/validate-trainer-kubeflow-org-v1alpha1-trainjob?timeout=10s"
Work = Callable[[int], Coroutine[Any, Any, None]]


@pytest.fixture
async def ours(restart: Callable[..., Awaitable[Any]]) -> Any:
    """Start a manager behind the proxy; return it once it is ready."""
    return await restart()


@pytest.fixture
def restart(new_manager: Callable[..., Any], proxy: Any) -> Callable[..., Awaitable[Any]]:
    """Return a function that starts a manager with the shipped number of workers, in place of an earlier one."""
    running: list[Any] = []

    async def start(**configuration: Any) -> Any:
        for each in running:
            each.kill()
        workers = {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5}}
        running.append(new_manager(proxy.url, controller=workers, **configuration))
        running[-1].start()
        await running[-1].ready()
        return running[-1]

    return start


@pytest.fixture
async def greedy(client: LiveClient) -> AsyncIterator[str]:
    name = f"greedy-{secrets.token_hex(4)}"
    await client.create(NAMESPACE.from_dict({"metadata": {"name": name}}))
    yield name
    for kind in (TrainJob, TrainingRuntime, ConfigMap):
        await client.delete_all_of(kind, namespace=name)


class Waits:
    """How long the manager lets the quiet tenant wait, in seconds: for each JobSet, and for each review.

    The wait for a JobSet begins when the manager gets the TrainJob, and ends when it sends the JobSet: the API server
    shares its time between tenants by itself.
    """

    def __init__(self, world: Any) -> None:
        self.job_sets: list[float] = []
        self.small_reviews: list[float] = []
        self.large_reviews: list[float] = []
        self._expected: set[str] = set()
        self._arrived: dict[str, float] = {}
        world.proxy.rewrite = self._look_for_train_jobs
        world.proxy.hold = self._look_for_job_set

    def expect(self) -> str:
        """Return a new name of a TrainJob."""
        name = f"quiet-{secrets.token_hex(8)}"
        self._expected.add(name)
        return name

    def _look_for_train_jobs(self, chunk: bytes) -> bytes:
        for name in [each for each in self._expected if each.encode() in chunk]:
            self._expected.remove(name)
            self._arrived[name] = time.monotonic()
        return chunk

    def _look_for_job_set(self, seen: Any) -> bool:
        if "/jobsets/" in seen.path and seen.method == "PATCH":
            arrived = self._arrived.pop(seen.path.rpartition("/")[2], None)
            if arrived is not None:
                self.job_sets.append(time.monotonic() - arrived)
        return False


async def waits(world: Any) -> Waits:
    """Create TrainJobs of the quiet tenant, and let the manager review others at the same time."""
    found = Waits(world)

    async def review() -> None:
        bodies = [review_of(world, world.namespace, variables) for variables in (10, 450)]
        async with reviewer(world) as post:
            for body, waited in itertools.cycle(
                zip(bodies, (found.small_reviews, found.large_reviews), strict=True)
            ):
                began = time.monotonic()
                await post(body)
                waited.append(time.monotonic() - began)
                await anyio.sleep(0.05)

    async with anyio.create_task_group() as reviews:
        reviews.start_soon(review)
        async with anyio.create_task_group() as tasks:
            for _ in range(SAMPLES):
                tasks.start_soon(world.train, found.expect())
                await anyio.sleep(0.15)
        await eventually(
            lambda: len(found.job_sets) == SAMPLES, timeout=60, reason="each TrainJob has its JobSet"
        )
        reviews.cancel_scope.cancel()
    return found


def body_of(world: Any, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """Return a suspended TrainJob."""
    runtime, kind = f"torch-{world.namespace}", "ClusterTrainingRuntime"
    return train_job_document(namespace, runtime, name=name, kind=kind, suspend=True, **spec)


def review_of(world: Any, namespace: str, variables: int) -> bytes:
    """Return the review of a TrainJob with this many environment variables, of about 45 bytes each."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 15} for number in range(variables)]
    request = {
        "uid": "1",
        "operation": "CREATE",
        "namespace": namespace,
        "name": "reviewed",
        "object": body_of(world, namespace, "reviewed", trainer={"env": env}),
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


@asynccontextmanager
async def reviewer(world: Any) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """Yield a function that lets the manager review a body."""
    host = f"https://127.0.0.1:{world.ours.webhook_port}"
    tls = TLSConfig(ca=world.ours.authority.certificate, server_name="webhook")
    async with Transport(Config(host, tls=tls, qps=-1)) as transport:

        async def post(body: bytes) -> None:
            headers = {"Content-Type": "application/json"}
            answer = await transport.send(Request("POST", REVIEW, headers=headers, body=body))
            assert answer.status == 200, await answer.read()
            await answer.read()

        yield post


@asynccontextmanager
async def repeated(work: Work, rate: float) -> AsyncIterator[None]:
    """Start ``work(0)``, ``work(1)`` … during the block, ``rate`` of them in each second."""
    async with anyio.create_task_group() as tasks:

        async def repeat() -> None:
            began = time.monotonic()
            for number in itertools.count():
                tasks.start_soon(work, number)
                await anyio.sleep(max(0.0, began + number / rate - time.monotonic()))

        tasks.start_soon(repeat)
        yield
        tasks.cancel_scope.cancel()


def touching(client: LiveClient, objects: Sequence[Object]) -> Work:
    """Return a function that changes a label of an object, one object after another."""
    # Answers with metadata only cost this process, which is also the proxy, almost nothing.
    some = [metadata_only(type(each))(metadata=each.metadata) for each in objects]

    async def touch(number: int) -> None:
        change = {"metadata": {"labels": {"touch": str(number)}}}
        await client.patch(some[number % len(some)], raw_patch(MERGE, json.dumps(change).encode()))

    return touch


async def snapshots(world: Any, greedy: str) -> tuple[Work, float]:
    """TrainJobs whose snapshots take long to refuse."""
    jobs = []
    for number in range(100):
        job = await world.client.create(TrainJob.from_dict(body_of(world, greedy, f"job-{number}")))
        metadata = trainjob.child_metadata(job, "-runtime-snapshot")
        await world.client.create(ConfigMap(metadata=metadata, data={"runtime": f"{ANCHORS}\n# {number}"}))
        jobs.append(job)
    return touching(world.client, jobs), 50


async def annotations(world: Any, greedy: str) -> tuple[Work, float]:
    """TrainJobs with 250 KB of annotations."""
    jobs = []
    for number in range(20):
        body = body_of(world, greedy, f"job-{number}")
        body["metadata"]["annotations"] = {f"a{key}": "x" * 1_000 for key in range(250)}
        jobs.append(await world.client.create(TrainJob.from_dict(body)))
    return touching(world.client, jobs), 5


async def overrides(world: Any, greedy: str) -> tuple[Work, float]:
    """TrainJobs with 5,000 tolerations."""
    tolerations = [{"key": f"key-{number}", "operator": "Exists"} for number in range(5_000)]
    patches = [pod_override({"tolerations": tolerations})]
    jobs = []
    for number in range(20):
        body = body_of(world, greedy, f"job-{number}", podTemplateOverrides=patches)
        jobs.append(await world.client.create(TrainJob.from_dict(body)))
    return touching(world.client, jobs), 2


async def runtime(world: Any, greedy: str) -> tuple[Work, float]:
    """A runtime with 20,000 arguments that 100 TrainJobs use."""
    (body,) = [
        each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == "torch-distributed"
    ]
    (node,) = body["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    container["args"] = ["a"] * 20_000
    await world.client.create(written_runtime(greedy, **body["spec"]))
    for number in range(100):
        await world.client.create(written_train_job(greedy, "runtime", name=f"job-{number}", suspend=True))
    jobs = await world.client.list(metadata_only(TrainJob), namespace=greedy)
    return touching(world.client, jobs), 10


async def reviews(world: Any, greedy: str) -> tuple[Work, float]:
    """Reviews of TrainJobs with 6,500 environment variables."""
    body = review_of(world, greedy, 6_500)

    async def post(_number: int) -> None:
        async with reviewer(world) as once:
            await once(body)

    return post, 10


def compare(
    figure: Callable[..., None], name: str, quiet: Waits, busy: Waits, allowance: float = 0.05
) -> None:
    for what, title in (
        ("job_sets", "JobSet"),
        ("small_reviews", "review"),
        ("large_reviews", "review of 20 KiB"),
    ):
        before, now = (statistics.quantiles(getattr(each, what), n=100)[98] for each in (quiet, busy))
        figure(f"F23 {name}: another's {title}, p99", now, at_most=2 * before + allowance)


@pytest.mark.parametrize("attack", [snapshots, annotations, overrides, runtime, reviews])
async def test_f23_large_texts_delay_only_their_tenant(
    world: Any, greedy: str, figure: Any, attack: Callable[[Any, str], Awaitable[tuple[Work, float]]]
) -> None:
    """Catches a manager that decodes snapshots again and again, or works in the order in which texts came."""
    await world.begin("before")
    quiet = await waits(world)
    work, rate = await attack(world, greedy)
    async with repeated(work, rate):
        # Decoding a value holds the interpreter's lock, and values of 200 KB take 20 ms each.
        allowance = 0.25 if attack is overrides else 0.05
        name = f"{attack.__name__}, {rate:g} times a second"
        compare(figure, name, quiet, await waits(world), allowance)
    assert world.ours.running


async def test_f23_invalid_snapshots_delay_only_their_tenant_after_a_restart(
    restart: Callable[..., Awaitable[Any]], world: Any, greedy: str, figure: Any
) -> None:
    """Catches a manager that works on all its backlog before it works for others."""
    await world.begin("before")
    quiet = await waits(dataclasses.replace(world, ours=await restart()))
    await snapshots(world, greedy)
    world = dataclasses.replace(world, ours=await restart())
    compare(figure, "snapshots, after a restart", quiet, await waits(world))
    assert world.ours.running


async def test_f23_a_burst_of_train_jobs_delays_only_its_tenant(
    restart: Callable[..., Awaitable[Any]], world: Any, greedy: str, figure: Any
) -> None:
    """Catches one rate limit for all requests, and a queue in the order of arrival."""
    limited = await restart(clientConnection={"qps": 50, "burst": 100})
    world = dataclasses.replace(world, ours=limited)
    await world.begin("before")
    quiet = await waits(world)
    for number in range(400):
        body = body_of(world, greedy, f"job-{number}", suspend=False)
        await world.client.create(TrainJob.from_dict(body))
    compare(figure, "400 TrainJobs at 50 requests a second", quiet, await waits(world))
    assert world.ours.running


async def authority_of_webhooks(world: Any) -> None:
    """Create the Secret from which the manager copies the authority that pods trust."""
    key = {"namespace": "kubeflow-system", "name": "kubeflow-trainer-webhook-cert"}
    with suppress(AlreadyExistsError):
        await world.client.create(NAMESPACE.from_dict({"metadata": {"name": key["namespace"]}}))
    content = base64.b64encode(world.ours.authority.certificate).decode()
    with suppress(AlreadyExistsError):
        await world.client.create(Secret.from_dict({"metadata": key, "data": {"ca.crt": content}}))


async def test_f23_updates_of_a_status_delay_only_their_tenant(
    restart: Callable[..., Awaitable[Any]], world: Any, greedy: str, figure: Any
) -> None:
    """Catches status updates that take the limits or the threads of reconciles."""
    (port,) = free_ports(1)
    await authority_of_webhooks(world)
    gated = await restart(featureGates={"TrainJobStatus": True}, statusServer={"port": port})
    world = dataclasses.replace(world, ours=gated)
    await world.begin("before")
    quiet = await waits(world)
    await world.client.create(TrainJob.from_dict(body_of(world, greedy, "job")))
    await job_set_at(world.client, (greedy, "job"), timeout=30)
    metrics = [{"name": f"metric-{number}", "value": "1.5"} for number in range(256)]
    update = {"trainerStatus": {"metrics": metrics, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}
    token = StaticToken(await scenarios.pod_token(world.client, greedy, "job"))
    config = Config(f"https://127.0.0.1:{port}", tls=TLSConfig(verify=False), credentials=token, qps=-1)
    answers: list[tuple[int, bytes]] = []
    async with Transport(config) as transport:

        async def post(_number: int) -> None:
            request = Request("POST", status_url(greedy, "job"), body=json.dumps(update).encode())
            answer = await transport.send(request)
            answers.append((answer.status, await answer.read()))

        async with repeated(post, 50):
            compare(figure, "status updates, 50 times a second", quiet, await waits(world))
    assert any(status == 200 for status, _ in answers), answers[:1]
    assert world.ours.running
