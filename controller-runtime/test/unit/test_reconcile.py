# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta
from typing import TypeVar, Unpack

import pytest

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import ListOptions, ObjectList, Reader
from controller_runtime.event import CreateEvent, DeleteEvent, GenericEvent, UpdateEvent
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.reconcile import AsReconciler, Func, Reconciler, Request, Result

T = TypeVar("T", bound=Object)


class OnePod:
    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        if key != ("ns", "here"):
            raise NotFoundError("gone", code=404, details={"name": key[1], "kind": "pods"})
        return kind(metadata=ObjectMeta(namespace=key[0], name=key[1]))

    async def list(self, kind: type[T], **options: Unpack[ListOptions]) -> ObjectList[T]:
        raise AssertionError("not asked for")


class Seen:
    def __init__(self) -> None:
        self.pods: list[str] = []

    async def reconcile(self, obj: Pod) -> Result:
        self.pods.append(obj.name)
        return Result(requeue_after=timedelta(seconds=1))


async def test_an_object_reconciler_gets_the_object_and_is_left_alone_when_it_is_gone() -> None:
    seen, reader = Seen(), OnePod()
    typed: Reader = reader
    reconciler: Reconciler = AsReconciler(typed, Pod, seen)
    assert await reconciler.reconcile(Request("ns", "here")) == Result(requeue_after=timedelta(seconds=1))
    assert await reconciler.reconcile(Request("ns", "gone")) == Result()
    assert seen.pods == ["here"]


async def test_a_function_is_a_reconciler() -> None:
    async def answer(request: Request) -> Result:
        return Result(priority=len(request.name))

    reconciler: Reconciler = Func(answer)
    assert await reconciler.reconcile(Request("", "abc")) == Result(priority=3)


def test_a_request_reads_as_its_key() -> None:
    assert str(Request("ns", "a")) == "ns/a"
    assert str(Request("", "a")) == "a"
    assert {Request("ns", "a")} == {Request.for_object(Pod(metadata=ObjectMeta(namespace="ns", name="a")))}


async def test_a_kind_that_is_not_served_is_not_an_object_that_was_deleted() -> None:
    class NotServed(OnePod):
        async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
            raise NotFoundError("the server could not find the requested resource", code=404)

    class Never:
        async def reconcile(self, obj: Pod) -> Result:
            raise AssertionError(obj)

    with pytest.raises(NotFoundError, match="could not find the requested resource"):
        await AsReconciler(NotServed(), Pod, Never()).reconcile(Request("ns", "here"))


def test_an_event_may_name_its_kind_and_cannot_be_changed() -> None:
    pod = Pod()
    for made in (
        CreateEvent[Pod](pod, is_in_initial_list=True),
        UpdateEvent[Pod](pod, pod),
        DeleteEvent[Pod](pod),
        GenericEvent[Pod](pod),
    ):
        with pytest.raises(AttributeError):
            made.object = pod  # type: ignore[misc,union-attr]  # asserted to fail
