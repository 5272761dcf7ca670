# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from controller_runtime import handler
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.event import CreateEvent, DeleteEvent, GenericEvent, UpdateEvent
from controller_runtime.reconcile import Request


class Queue:
    def __init__(self) -> None:
        self.added: list[Request] = []

    def add(
        self, item: Request, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        assert (priority, after, rate_limited) == (None, 0.0, False)
        self.added.append(item)


def pod(name: str, *owners: OwnerReference) -> Pod:
    return Pod(metadata=ObjectMeta(namespace="ns", name=name, owner_references=list(owners)))


def owner(
    name: str, *, api_version: str = "batch/v1", kind: str = "Job", controller: bool | None = None
) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=name, controller=controller)


async def requests(handle: handler.EventHandler[Pod], *, old: Pod, new: Pod) -> list[list[str]]:
    queues = [Queue() for _ in range(4)]
    for waiting in (
        handle.create(CreateEvent(new), queues[0]),
        handle.update(UpdateEvent(old, new), queues[1]),
        handle.delete(DeleteEvent(new), queues[2]),
        handle.generic(GenericEvent(new), queues[3]),
    ):
        if waiting is not None:
            await waiting
    return [list(map(str, queue.added)) for queue in queues]


async def test_an_object_is_its_own_request() -> None:
    handle = handler.EnqueueRequestForObject()
    assert await requests(handle, old=pod("a"), new=pod("a")) == [["ns/a"]] * 4


async def test_an_update_wakes_the_owners_before_and_after_each_once() -> None:
    handle = handler.enqueue_request_for_owner(Job)
    old, new = pod("p", owner("one"), owner("two")), pod("p", owner("two"), owner("three"))
    assert await requests(handle, old=old, new=new) == [
        ["ns/two", "ns/three"],
        ["ns/one", "ns/two", "ns/three"],
        ["ns/two", "ns/three"],
        ["ns/two", "ns/three"],
    ]


@pytest.mark.parametrize(
    ("ref", "woken"),
    [
        pytest.param(owner("j", controller=True), True, id="controller"),
        pytest.param(owner("j", controller=True, api_version="batch/v2"), True, id="another version"),
        pytest.param(owner("j"), False, id="not the controller"),
        pytest.param(owner("j", controller=True, kind="CronJob"), False, id="another kind"),
        pytest.param(owner("j", controller=True, api_version="v1"), False, id="another group"),
        pytest.param(owner("j", controller=True, api_version="a/b/c"), False, id="nonsense"),
    ],
)
async def test_only_the_controller_of_the_right_group_and_kind_is_woken(
    ref: OwnerReference, woken: bool
) -> None:
    handle = handler.enqueue_request_for_owner(Job, only_controller=True)
    expected = ["ns/j"] if woken else []
    assert await requests(handle, old=pod("p"), new=pod("p", ref)) == [expected] * 4


async def test_a_cluster_scoped_owner_has_no_namespace() -> None:
    handle = handler.enqueue_request_for_owner(Node)
    new = pod("p", owner("n", api_version="v1", kind="Node"))
    assert await requests(handle, old=pod("p"), new=new) == [["n"]] * 4


async def test_a_map_function_is_asked_about_both_sides_of_a_change_and_its_requests_are_added_once() -> None:
    async def by_name(obj: Pod) -> Iterable[Request]:
        return [Request("ns", obj.name), Request("ns", "all"), Request("ns", "all")]

    handle = handler.enqueue_requests_from_map_func(by_name)
    assert await requests(handle, old=pod("a"), new=pod("b")) == [
        ["ns/b", "ns/all"],
        ["ns/a", "ns/all", "ns/b"],
        ["ns/b", "ns/all"],
        ["ns/b", "ns/all"],
    ]


class Metadata(msgspec.Struct):
    name: str = ""


class Named(msgspec.Struct):
    metadata: Metadata


async def test_a_map_function_that_reads_some_fields_gets_objects_that_are_decoded_already() -> None:
    async def by_name(obj: Pod | Named) -> Iterable[Request]:
        assert isinstance(obj, Pod)
        return [Request("ns", obj.name)]

    handle: handler.EventHandler[Pod] = handler.enqueue_requests_from_map_func(by_name, reads=Named)
    assert await requests(handle, old=pod("a"), new=pod("b")) == [
        ["ns/b"],
        ["ns/a", "ns/b"],
        ["ns/b"],
        ["ns/b"],
    ]


async def test_functions_handle_the_events_they_are_given_for_and_others_are_dropped() -> None:
    async def deleted(evt: DeleteEvent[Pod], queue: handler.Queue) -> None:
        queue.add(Request.for_object(evt.object))

    assert await requests(handler.Funcs(delete=deleted), old=pod("a"), new=pod("b")) == [[], [], ["ns/b"], []]
