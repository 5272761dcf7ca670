# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The spans of a manager with one controller, read from the SDK's in-memory exporter."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler

import controller_runtime as ctrl
from controller_runtime import log, rest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.machinery import Resource
from controller_runtime.reconcile import Reconciler, Request, Result
from controller_runtime.rest import request as requests
from controller_runtime.tracing import Subject, Tracing, UIDGenerator, trace_id
from controller_runtime.workqueue import PriorityQueue, Triggers
from ctrl_testkit.managers import new_manager, running
from ctrl_testkit.odd_exceptions import Odd

UID = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


class Spans:
    """A tracing and the spans that it recorded."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, id_generator=UIDGenerator(), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def spans() -> Spans:
    return Spans()


class Server:
    """Passes watches on to the simulated API server, and answers other GETs with 404 and writes with their object."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.sent: list[rest.Request] = []

    async def __call__(self, request: rest.Request) -> rest.Response:
        if "watch" in dict(request.query) or request.path == "/version":
            watched: rest.Response = await self.world.transport.send(request)
            return watched
        self.sent.append(request)
        if request.method == "GET":
            return rest.FakeResponse(404, {"kind": "Status", "code": 404, "reason": "NotFound"})
        return rest.FakeResponse(201, {**json.loads(request.body or b""), "apiVersion": "v1", "kind": "Pod"})


class Parent(Reconciler):
    """Creates a pod in its first reconcile, and fails in its second."""

    def __init__(self, mgr: ctrl.Manager) -> None:
        self._client = mgr.client
        self.reader = mgr.api_reader
        self.made = 0
        self.done = anyio.Event()
        self.fields: list[object] = []

    async def reconcile(self, request: Request) -> Result:
        self.fields.append(log.bound().get("traceID"))
        if not self.made:
            self.made += 1
            pod = Pod.from_dict(
                {"metadata": {"name": "child", "namespace": request.namespace}, "spec": {"containers": []}}
            )
            await self._client.create(pod)
            return Result(30)
        self.done.set()
        raise ctrl.TerminalError("enough")


def config_map(name: str = "parent") -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": name, "namespace": "ns"}})


def child(of: ConfigMap) -> Pod:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": of.name, "uid": UID, "controller": True}
    return Pod.from_dict({"metadata": {"name": "child", "namespace": "ns", "ownerReferences": [owner]}})


async def live(server: Server, tracing: Tracing | None) -> Parent:
    """Run a manager that reconciles a new ConfigMap, and again when its pod appears; return its reconciler."""
    mgr = new_manager(server, tracing=tracing)
    parent = Parent(mgr)
    ctrl.new_controller_managed_by(mgr).for_(ConfigMap).owns(Pod).complete(parent)
    async with running(mgr):
        await mgr.elected.wait()
        server.world.put(config_map())
        await anyio.sleep(1)
        server.world.put(child(config_map()))
        await parent.done.wait()
        await anyio.sleep(1)
    return parent


async def test_trigger_queue_reconcile_and_request_are_one_tree(world: Any, spans: Spans) -> None:
    server = Server(world)
    await live(server, spans.tracing)
    first, second = spans.named("configmap")
    queue, _ = spans.named("queue")
    reconcile, _ = spans.named("reconcile")
    (post,) = spans.named("POST pods")
    assert first.parent is None
    assert [queue.parent, reconcile.parent] == [first.context, first.context]
    assert post.parent == reconcile.context
    assert dict(post.attributes or {}) == {
        "http.request.method": "POST",
        "url.path": "/api/v1/namespaces/ns/pods",
        "k8s.namespace.name": "ns",
        "http.response.status_code": 201,
    }
    assert [dict(event.attributes or {}) for event in queue.events] == [
        {"trigger": "ConfigMap ns/parent created"}
    ]
    assert (queue.start_time, queue.end_time) == (first.start_time, reconcile.start_time)
    assert (reconcile.attributes or {})["requeue_after"] == 30
    assert second.parent is None


async def test_the_childs_event_is_the_trigger_of_the_next_reconcile_in_the_same_trace(
    world: Any, spans: Spans
) -> None:
    parent = await live(Server(world), spans.tracing)
    expected = trace_id("uid-ns/parent")  # the owner's UID is not a UUID, so the ID is a hash of it
    assert {span.context.trace_id for span in spans.all() if span.context} == {expected}
    assert parent.fields == [trace.format_trace_id(expected)] * len(parent.fields)
    triggers = [(event.attributes or {})["trigger"] for event in spans.named("queue")[1].events]
    assert triggers == ["requeue_after of the reconciler", "Pod ns/child created"]


async def test_an_error_is_recorded_and_still_raised(world: Any, spans: Spans) -> None:
    await live(Server(world), spans.tracing)
    failed = spans.named("reconcile")[-1]
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert [(event.attributes or {})["exception.message"] for event in failed.events] == ["enough"]


async def test_an_exception_of_any_shape_is_recorded_and_is_still_the_one_that_was_raised(
    spans: Spans, odd: Odd
) -> None:
    raised: list[BaseException] = []

    class Failing(Reconciler):
        async def reconcile(self, request: Request) -> Result:
            raised.append(odd())
            raise raised[0]

    subject = Subject("odd", None, PriorityQueue(), lambda _kind, _key: "")
    with (
        anyio.fail_after(10),
        pytest.raises(BaseException) as caught,
    ):  # the exceptions of ``odd`` are of any class
        await spans.tracing.reconciler(Failing(), subject).reconcile(Request("ns", "a"))
    assert caught.value is raised[0]
    if issubclass(type(raised[0]), Exception):
        assert [len(span.events) for span in spans.all()] == [1, 1]


async def test_the_api_server_receives_the_context_of_the_request(world: Any, spans: Spans) -> None:
    server = Server(world)
    await live(server, spans.tracing)
    (post,) = spans.named("POST pods")
    assert post.context is not None
    # The flags are 01: API servers up to Kubernetes 1.36 ignore a header that also has the flag for random trace IDs.
    header = f"00-{trace_id('uid-ns/parent'):032x}-{post.context.span_id:016x}-01"
    assert [request.headers.get("traceparent") for request in server.sent] == [header]


async def test_a_second_process_continues_the_trace(world: Any, spans: Spans) -> None:
    again = Spans()
    await live(Server(world), spans.tracing)
    world.remove(child(config_map()))
    await live(Server(world), again.tracing)
    assert spans.named("configmap")[0].context.trace_id == again.named("configmap")[0].context.trace_id


async def test_an_unsampled_reconcile_runs_and_records_nothing(world: Any, spans: Spans) -> None:
    off = Spans(sampler=ALWAYS_OFF)
    server = Server(world)
    parent = await live(server, off.tracing)
    assert parent.made == 1
    assert off.all() == ()
    assert [request.headers.get("traceparent") for request in server.sent] == [None]


def test_only_the_queue_of_a_traced_controller_keeps_triggers(spans: Spans) -> None:
    log.limit(log.INFO)
    traced, other = PriorityQueue[Request](), PriorityQueue[Request]()
    spans.tracing.reconciler(Parent.__new__(Parent), Subject("traced", None, traced, lambda _kind, _key: ""))
    for queue in (traced, other):
        queue.triggers.note(Request("ns", "a"), "x")
    assert (len(traced.triggers), len(other.triggers)) == (1, 0)


async def test_without_tracing_nothing_is_wrapped(world: Any) -> None:
    server = Server(world)
    mgr = new_manager(server)
    parent = Parent(mgr)
    made = ctrl.new_controller_managed_by(mgr).for_(ConfigMap).build(parent)
    assert made._reconciler is parent
    assert type(made.queue.triggers) is Triggers
    assert isinstance(mgr._main, rest.FakeTransport)


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (
            requests.subresource(requests.get(Resource("", "v1", "pods", True), "ns", "p"), "status"),
            "GET pods/status",
        ),
        (requests.list_(Resource("batch", "v1", "jobs", True), namespace="ns"), "GET jobs.batch"),
        (requests.get(Resource("", "v1", "nodes", False), "", "n"), "GET nodes"),
        (rest.Request("GET", "/version"), "GET /version"),
    ],
)
async def test_the_name_of_a_request_has_its_resource_but_no_object(
    sent: rest.Request, name: str, spans: Spans
) -> None:
    inner = rest.FakeTransport(lambda _: rest.FakeResponse(200, {}))
    traced = spans.tracing.round_tripper(inner)
    with spans.tracing._tracer.start_as_current_span("test"):
        await traced.send(sent)
    assert [span.name for span in spans.all()] == [name, "test"]


@pytest.mark.parametrize(("status", "failed"), [(399, False), (400, True), (503, True)])
async def test_a_refused_request_is_an_error_of_its_span(spans: Spans, status: int, failed: bool) -> None:
    traced = spans.tracing.round_tripper(rest.FakeTransport(lambda _: rest.FakeResponse(status, {})))
    with spans.tracing._tracer.start_as_current_span("test"):
        await traced.send(rest.Request("GET", "/version"))
    assert (spans.all()[0].status.status_code is trace.StatusCode.ERROR) is failed


async def test_a_watch_and_a_request_of_no_reconcile_have_no_span(spans: Spans) -> None:
    inner = rest.FakeTransport(lambda _: rest.FakeResponse(200, {}))
    traced = spans.tracing.round_tripper(inner)
    await traced.send(rest.Request("GET", "/api/v1/pods"))
    with spans.tracing._tracer.start_as_current_span("test"):
        await traced.send(rest.Request("GET", "/api/v1/pods", stream=True))
    assert [span.name for span in spans.all()] == ["test"]
    assert [dict(request.headers) for request in inner.requests] == [{}, {}]


def test_the_trace_id_is_the_uid() -> None:
    assert f"{trace_id(UID):032x}" == UID.replace("-", "")
    assert trace_id("") == 0
    assert trace_id("no UUID") == trace_id("no UUID") != trace_id("another")
