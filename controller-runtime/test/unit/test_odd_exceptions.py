# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A call of user code that raises any exception fails: the log reports it once, and it is retried where possible."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

import anyio
import anyio.lowlevel
import pytest

import controller_runtime as ctrl
from controller_runtime import controller, handler, predicate, recorder, source, webhook
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod
from controller_runtime.client import interceptor
from controller_runtime.event import CreateEvent, GenericEvent
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import StatusError, one_line
from controller_runtime.reconcile import Request
from controller_runtime.serving import HTTPRequest
from controller_runtime.workqueue import PriorityQueue
from ctrl_testkit.managers import failure_of, new_manager
from ctrl_testkit.odd_exceptions import Odd, Written, errors
from ctrl_testkit.versions import Boat, BoatV1alpha1

MakePod = Callable[..., Pod]
Settle = Callable[[], Awaitable[None]]

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def served(world: Any, make_pod: MakePod) -> Callable[..., Any]:
    """Return a function that runs a source of pods, creates two pods, and counts the requests after an hour."""

    async def serve(handle: handler.EventHandler[Any], *predicates: predicate.Predicate[Any]) -> int:
        queue: PriorityQueue[Request] = PriorityQueue()
        async with world.cache() as informers, anyio.create_task_group() as tasks:
            kind = source.Kind(informers, Pod, handle, *predicates)
            tasks.start_soon(kind.start, queue)
            await kind.wait_for_sync()
            world.put(make_pod("a"))
            await anyio.sleep(30)
            world.put(make_pod("b"))
            await anyio.sleep(3600)
            tasks.cancel_scope.cancel()
        return len(queue)

    return serve


async def test_a_map_function_fails_once_and_is_called_again(served: Any, odd: Odd, written: Written) -> None:
    seen: list[str] = []

    async def mapped(obj: Pod) -> Iterable[Request]:
        seen.append(obj.name)
        if len(seen) == 1:
            raise odd()
        return [Request.for_object(obj)]

    assert await served(handler.enqueue_requests_from_map_func(mapped)) == 2
    assert seen == ["a", "a", "b"]
    assert errors(written) == ["Event could not be handled, it is tried again"]


@pytest.mark.parametrize("immediate", [True, False])
async def test_a_handler_fails_once_and_is_called_again(
    served: Any, odd: Odd, written: Written, *, immediate: bool
) -> None:
    calls = 0

    class Fussy(handler.EnqueueRequestForObject):
        def create(self, evt: CreateEvent[Any], queue: handler.Queue) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise odd()
            super().create(evt, queue)

    Fussy.immediate = immediate
    assert await served(Fussy()) == 2
    assert errors(written) == ["Event could not be handled, it is tried again"]


async def test_a_handler_that_cannot_be_prepared_gets_events(served: Any, odd: Odd, written: Written) -> None:
    class Unprepared(handler.EnqueueRequestForObject):
        async def prepare(self, discover: handler.Discover) -> None:
            raise odd()

    assert await served(Unprepared()) == 2


async def test_an_event_passes_a_predicate_that_fails(
    world: Any, make_pod: MakePod, settle: Settle, odd: Odd, written: Written
) -> None:
    def judge(_: object) -> NoReturn:
        raise odd()

    queue: PriorityQueue[Request] = PriorityQueue()
    failing: predicate.Predicate[Any] = predicate.Funcs(create=judge, update=judge, delete=judge)
    async with world.cache() as informers, anyio.create_task_group() as tasks:
        kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject(), failing)
        tasks.start_soon(kind.start, queue)
        await kind.wait_for_sync()
        for change in (world.put, world.put, world.remove):
            change(make_pod("a"))
            await settle()
            queue.done(await queue.get())
        tasks.cancel_scope.cancel()
    assert errors(written) == ["Predicate failed, so the event passes"] * 3


async def test_a_generic_event_passes_a_predicate_that_fails(
    make_pod: MakePod, odd: Odd, written: Written
) -> None:
    def judge(_: object) -> NoReturn:
        raise odd()

    async def events() -> Any:
        yield GenericEvent(make_pod("a"))

    queue: PriorityQueue[Request] = PriorityQueue()
    failing: predicate.Predicate[Any] = predicate.Funcs(generic=judge)
    await source.Channel(events(), handler.EnqueueRequestForObject(), failing).start(queue)
    assert len(queue) == 1
    assert errors(written) == ["Predicate failed, so the event passes"]


async def test_a_check_for_work_that_fails_does_not_end_the_source(
    world: Any, make_pod: MakePod, odd: Odd, written: Written
) -> None:
    def needs_work(_: Any) -> Callable[[Any], Awaitable[bool]]:
        async def check(_: Any) -> bool:
            raise odd()

        return check

    world.put(make_pod("a"))
    async with world.cache() as informers:
        await source.Prioritized(informers, Pod, needs_work).start(PriorityQueue())
    assert errors(written) == ["Objects that need work are not moved to the front"]


async def test_an_event_whose_writer_fails_is_dropped_and_the_next_is_sent(
    odd: Odd, written: Written
) -> None:
    store = FakeClient()
    calls = 0

    async def create(inner: Any, obj: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise odd()
        return await inner.create(obj, **options)

    broadcaster = recorder.Broadcaster(interceptor.wrap(store, interceptor.Funcs(create=create)))
    pod = Pod.from_dict({"metadata": {"namespace": "ns", "name": "a"}})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broadcaster.start)
        for reason in ("First", "Second"):
            broadcaster.recorder_for("me").event(pod, "Normal", reason, "text")
        await anyio.sleep(100)
        tasks.cancel_scope.cancel()
    assert [event.reason for event in await store.list(Event)] == ["Second"]
    assert len(errors(written)) == 1


def config_map_review(operation: str = "CREATE") -> bytes:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": "b"}}
    request = {"uid": "u", "operation": operation, "object": obj, "oldObject": obj}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


async def answered(endpoint: Any, body: bytes) -> Any:
    request = HTTPRequest(method="POST", path="/p", headers={"Content-Type": "application/json"}, body=body)
    response = await endpoint(request)
    assert response.status == 200
    return json.loads(response.body)["response"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "default"])
async def test_a_validator_or_a_defaulter_that_fails_rejects_the_request(
    odd: Odd, written: Written, *, operation: str
) -> None:
    class Judge(webhook.CustomValidator[ConfigMap], webhook.CustomDefaulter[ConfigMap]):
        async def validate_create(self, obj: ConfigMap) -> list[str]:
            raise odd()

        async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
            raise odd()

        async def validate_delete(self, obj: ConfigMap) -> list[str]:
            raise odd()

        async def default(self, obj: ConfigMap) -> None:
            raise odd()

    handle = webhook.DefaulterHandler if operation == "default" else webhook.ValidatorHandler
    endpoint = webhook.Webhook("/p", handle(ConfigMap, Judge()))
    answer = await answered(endpoint, config_map_review("CREATE" if operation == "default" else operation))
    assert answer["allowed"] is False
    assert answer["status"]["code"] >= 400
    assert len(errors(written)) <= 1


async def test_a_converter_that_fails_rejects_the_object(odd: Odd, written: Written) -> None:
    def fail(_: object) -> NoReturn:
        raise odd()

    conversions = webhook.Conversions()
    spoke: webhook.Spoke[BoatV1alpha1, Boat] = webhook.Spoke(BoatV1alpha1, fail, fail)
    conversions.register(Boat, spoke)
    boat = {"apiVersion": "fleets.example.org/v1alpha1", "kind": "Boat", "metadata": {"name": "b"}}
    asked = {"uid": "u", "desiredAPIVersion": "fleets.example.org/v1", "objects": [boat]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": asked}
    answer = await answered(webhook.ConversionWebhook(conversions), json.dumps(body).encode())
    assert answer["result"]["status"] == "Failed"
    assert len(errors(written)) <= 1


async def test_a_finalizer_that_fails_stays_and_the_others_run(odd: Odd) -> None:
    class Failing(controller.Finalizer[ConfigMap]):
        async def finalize(self, obj: ConfigMap) -> controller.FinalizeResult:
            raise odd()

    class Working(controller.Finalizer[ConfigMap]):
        async def finalize(self, obj: ConfigMap) -> controller.FinalizeResult:
            return controller.FinalizeResult()

    finalizers: controller.Finalizers[ConfigMap] = controller.Finalizers()
    finalizers.register("example.org/a", Failing())
    finalizers.register("example.org/b", Working())
    obj = ConfigMap(metadata=ctrl.ObjectMeta(name="c", finalizers=["example.org/a", "example.org/b"]))
    obj.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    with pytest.raises(controller.FinalizeError):
        await finalizers.finalize(obj)
    assert obj.metadata.finalizers == ["example.org/a"]


async def test_a_source_that_fails_ends_the_manager_in_order(odd: Odd) -> None:
    class Broken(source.Source):
        async def start(self, queue: handler.Queue) -> None:
            raise odd()

    class Idle(ctrl.Reconciler):
        async def reconcile(self, request: Request) -> ctrl.Result:
            return ctrl.Result()

    mgr = new_manager()
    ctrl.new_controller_managed_by(mgr).named("odd").watches_raw_source(Broken()).complete(Idle())
    assert str(await failure_of(mgr, anyio.lowlevel.checkpoint)).startswith("odd: ")


async def test_a_runnable_that_fails_ends_the_manager_in_order(odd: Odd, written: Written) -> None:
    mgr = new_manager()
    ended = anyio.Event()

    class Broken:
        async def start(self) -> None:
            raise odd()

    class Lasting:
        async def start(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

    mgr.add(Lasting())
    mgr.add(Broken())
    assert str(await failure_of(mgr, anyio.lowlevel.checkpoint)).startswith("Broken: ")
    assert ended.is_set()
    failed = [line["stacktrace"] for line in written() if line["msg"] == "Runnable failed"]
    said = type(odd()).__base__ is StatusError  # a StatusError is logged by its text, without a stack trace
    assert said or ["raise odd()" in stack for stack in failed] == [True]


def test_any_exception_has_a_text_on_one_line(odd: Odd) -> None:
    assert one_line(odd())
