# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An error that a program creates once and raises again and again keeps no frames of the calls that raised it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import handler, predicate, source, webhook
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.controller import Controller, Options
from controller_runtime.event import CreateEvent
from controller_runtime.machinery import raised
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.reconcile import Request
from controller_runtime.serving import HTTPRequest
from controller_runtime.workqueue import PriorityQueue
from ctrl_testkit.scripted import A, Script, running

MakePod = Callable[..., Pod]
Settle = Callable[[], Awaitable[None]]


def once() -> Exception:
    """Return an error as a module creates it, with a cause and in a group."""
    inner, cause = ValueError("in the group"), KeyError("the cause")
    inner.__cause__ = cause
    return ExceptionGroup("created once", [inner])


def frames(error: BaseException) -> list[object]:
    return [each.__traceback__ for each in raised.parts(error)]


async def test_a_reconciler() -> None:
    error = once()
    made = Controller("raises-one-error", Script(*[error] * 5), Options())
    async with running(made):
        made.queue.add(A)
        await anyio.sleep(60)
    assert made.queue.num_requeues(A) == 0  # the sixth call succeeded
    assert not any(frames(error))


@pytest.mark.parametrize("place", ["handler", "predicate", "map function", "cache"])
async def test_a_handler(world: Any, make_pod: MakePod, settle: Settle, *, place: str) -> None:
    error = once()
    calls = 0

    def fail(*_: object) -> NoReturn:
        nonlocal calls
        calls += 1
        raise error

    async def mapped(_: Pod) -> NoReturn:
        fail()

    class Failing(handler.EnqueueRequestForObject):
        def create(self, evt: CreateEvent[Any], queue: handler.Queue) -> None:
            fail()

    handlers: dict[str, handler.EventHandler[Any]] = {
        "handler": Failing(),
        "map function": handler.enqueue_requests_from_map_func(mapped),
    }
    fussy: predicate.Predicate[Any] = predicate.Funcs(create=fail if place == "predicate" else None)
    async with world.cache() as informers, anyio.create_task_group() as tasks:
        informer = await informers.get_informer(Pod)
        if place == "cache":
            informer.add_event_handler(ctrl.cache.EventHandlerFuncs(on_add=fail))
        handle = handlers.get(place, handler.EnqueueRequestForObject())
        kind = source.Kind(informers, Pod, handle, fussy)
        queue: PriorityQueue[Request] = PriorityQueue()
        tasks.start_soon(kind.start, queue)
        await kind.wait_for_sync()
        for name in ("a", "b"):
            world.put(make_pod(name))
            await settle()
        tasks.cancel_scope.cancel()
    assert calls >= 2
    assert not any(frames(error))


@pytest.mark.parametrize("error", [once(), ForbiddenError("not here")], ids=["a panic", "a verdict"])
async def test_a_webhook(error: Exception) -> None:

    class Defaulter(webhook.CustomDefaulter[ConfigMap]):
        async def default(self, obj: ConfigMap) -> None:
            raise error

    endpoint = webhook.Webhook("/p", webhook.DefaulterHandler(ConfigMap, Defaulter()))
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    asked = {"uid": "u", "operation": "CREATE", "object": obj}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    for _ in range(2):
        review = HTTPRequest(
            method="POST",
            path="/p",
            headers={"Content-Type": "application/json"},
            body=json.dumps(body).encode(),
        )
        assert json.loads((await endpoint(review)).body)["response"]["allowed"] is False
    assert not any(frames(error))


def test_a_readable_error_stays_what_it_is() -> None:
    error = ExceptionGroup("group", [ValueError("a"), ExceptionGroup("b", [TypeError("c")])])
    assert raised.readable(error) is error
