# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of watches in counts that do not depend on the machine; a change that raises one needs a reason."""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from controller_runtime import cache, handler, source, webhook, workqueue
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.reconcile import Request
from controller_runtime.rest import FakeResponse, FakeTransport
from controller_runtime.serving import HTTPRequest

PODS = 200
END = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}


def line(number: int, *, version: int = 1, event: str = "ADDED") -> bytes:
    """Return the line of a watch for a pod of a Job of 20 pods. More than half of it is managedFields."""
    job, index = divmod(number, 20)
    labels = {
        "batch.kubernetes.io/controller-uid": f"0d9c7a3c-7a44-4a0e-8f7c-{job:012x}",
        "batch.kubernetes.io/job-completion-index": str(index),
        "batch.kubernetes.io/job-name": f"llama-{job}-node-0",
        "jobset.sigs.k8s.io/jobset-name": f"llama-{job}",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"llama-{job}-node-0",
        "uid": f"0d9c7a3c-7a44-4a0e-8f7c-{job:012x}",
        "controller": True,
    }
    fields: dict[str, Any] = {
        f'k:{{"name":"field-{each}"}}': {".": {}, "f:name": {}, "f:value": {}} for each in range(40)
    }
    metadata = {
        "name": f"llama-{job}-node-0-{index}",
        "namespace": f"team-{job % 10}",
        "uid": f"6f1c2a9e-3b7d-4c55-9a1e-{number:012x}",
        "resourceVersion": str(version * 1_000_000 + number + 1),
        "labels": labels,
        "ownerReferences": [owner],
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:spec": fields}}],
    }
    container = {"name": "node", "image": "registry.example.com/train:1", "command": ["torchrun", "train.py"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": f"gpu-{index:03d}"},
        "status": {"phase": "Running", "podIP": f"10.64.{number // 256}.{number % 256}"},
    }
    return json.dumps({"type": event, "object": pod}, separators=(",", ":")).encode()


@pytest.fixture
def changes() -> anyio.Event:
    """Return an event; once it is set, the server sends a change of every pod."""
    return anyio.Event()


def informers_of(count: int, changes: anyio.Event) -> cache.Cache:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(count):
            yield line(number)
        yield json.dumps({"type": "BOOKMARK", "object": END}).encode()
        await changes.wait()
        for number in range(count):
            yield line(number, version=2, event="MODIFIED")
        await anyio.sleep_forever()

    return cache.Cache(FakeTransport(lambda _: FakeResponse(lines=lines())))


@pytest.fixture
def informers(changes: anyio.Event) -> cache.Cache:
    return informers_of(PODS, changes)


async def by_name(pod: Pod) -> list[Request]:
    return [Request.for_object(pod)]


class Metadata(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class Named(msgspec.Struct):
    metadata: Metadata


async def by_view(pod: Pod | Named) -> list[Request]:
    assert isinstance(pod, Named)
    return [Request(pod.metadata.namespace, pod.metadata.name)]


BY_VIEW: handler.EventHandler[Pod] = handler.enqueue_requests_from_map_func(by_view, reads=Named)


@pytest.mark.parametrize(
    ("how", "times", "most"),
    [
        pytest.param(handler.EnqueueRequestForObject(), 0, 0, id="the object itself"),
        pytest.param(
            handler.enqueue_request_for_owner(Job, only_controller=True), 0, 0, id="its owner, from the text"
        ),
        pytest.param(
            handler.enqueue_requests_from_map_func(by_name),
            2,
            1_500,
            id="what a function makes of old and new",
        ),
        pytest.param(BY_VIEW, 0, 0, id="what a function makes of some fields"),
    ],
)
async def test_an_event_is_decoded_no_more_than_its_handler_looks_at(
    how: handler.EventHandler[Any],
    times: int,
    most: int,
    informers: cache.Cache,
    changes: anyio.Event,
    decoded: list[int],
) -> None:
    queue: workqueue.PriorityQueue[Request] = workqueue.PriorityQueue()
    told = 0

    def count(*_: object) -> None:
        nonlocal told
        told += 1

    async with anyio.create_task_group() as tasks:
        await tasks.start(informers.start)
        pod = await informers.get_informer(Pod)
        kind = source.Kind(informers, Pod, how)
        tasks.start_soon(kind.start, queue)
        await kind.wait_for_sync()
        counter: cache.LazyHandlerFuncs[Pod] = cache.LazyHandlerFuncs(count, count, count)
        pod.add_event_handler(counter)
        await anyio.sleep(1)
        decoded.clear()
        told = 0
        changes.set()
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert told == PODS
    assert len(queue) > 0
    assert len(decoded) <= times * PODS
    assert sum(decoded) <= times * most * PODS


class Content(webhook.CustomValidator[ConfigMap]):
    """Permits everything."""

    async def validate_create(self, obj: ConfigMap) -> list[str]:
        del obj
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        del old, new
        return []

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        del obj
        return []


async def test_a_review_costs_no_more_python_calls_than_this() -> None:
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    request = {
        "uid": "1",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "operation": "CREATE",
        "userInfo": {"username": "me", "groups": ["all"]},
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}},
        "options": {"kind": "CreateOptions"},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    path = "/validate--v1-configmap"
    headers = {"Content-Type": "application/json"}
    query = {"timeout": ["10s"]}
    asked = HTTPRequest(
        method="POST", path=path, headers=headers, query=query, body=json.dumps(body).encode()
    )
    serve = webhook.Webhook(path, webhook.ValidatorHandler(ConfigMap, Content()))
    await serve(asked)  # the first call builds the decoders
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        response = await serve(asked)
    finally:
        sys.setprofile(None)
    assert b'"allowed":true' in response.body
    assert calls <= 72


async def test_a_watched_kind_takes_four_tasks_however_many_handlers(informers: cache.Cache) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(informers.start)
        before = len(asyncio.all_tasks())
        pod = await informers.get_informer(Pod)
        await informers.wait_for_sync()
        for _ in range(5):
            pod.add_event_handler(cache.EventHandlerFuncs())
        await anyio.sleep(1)
        assert len(asyncio.all_tasks()) - before <= 4  # the informer, its reflector, the backlog, resyncs
        tasks.cancel_scope.cancel()


async def kept(count: int, *, indexed: bool) -> tuple[int, int]:
    """Return how many memory blocks and garbage-collected objects ``count`` cached pods add."""
    informers = informers_of(count, anyio.Event())
    async with anyio.create_task_group() as tasks:
        await tasks.start(informers.start)
        gc.collect()
        blocks, tracked = sys.getallocatedblocks(), len(gc.get_objects())
        if indexed:
            await informers.index_field(Pod, "name", lambda pod: [pod.name])
        await informers.get_informer(Pod)
        await informers.wait_for_sync()
        gc.collect()
        found = sys.getallocatedblocks() - blocks, len(gc.get_objects()) - tracked
        tasks.cancel_scope.cancel()
    return found


@pytest.mark.parametrize(("indexed", "most"), [(False, 8), (True, 17)])
async def test_a_cached_object_is_a_handful_of_memory_blocks_and_nothing_to_collect(
    *, indexed: bool, most: int
) -> None:
    await kept(20, indexed=indexed)  # the first call builds the decoders
    few, many = await kept(200, indexed=indexed), await kept(1200, indexed=indexed)
    blocks, tracked = ((after - before) / 1000 for before, after in zip(few, many, strict=True))
    # Its entry, text, name, uid, version, labels and their values. In an index, its key, its value and their dicts.
    assert blocks <= most
    assert tracked <= 0.01
