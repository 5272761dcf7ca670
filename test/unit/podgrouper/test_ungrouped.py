# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""After a start, pods that wait for a group are reconciled before pods that have one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import UndecodableObjectError
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import LazyObject, NamespacedName
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import LOW_PRIORITY, PriorityQueue
from pydantic import ValidationError

from pkg.constants import kai
from pkg.podgrouper.setup import ungrouped_first

GROUPED = {kai.POD_GROUP_ANNOTATION_FOR_POD: "pg"}


class Cached(LazyObject[Any]):
    """A lazy object that raises the error of a cache if it cannot be decoded."""

    def _decode_metadata(self) -> Any:
        try:
            return super()._decode_metadata()
        except ValidationError as error:
            key = NamespacedName("ns", "undecodable")
            raise UndecodableObjectError(self.kind.gvk, key, "annotations") from error


class Pods:
    """Stands for the informers, the informer of pods, and the reader of the cache."""

    def __init__(self, pods: dict[str, bytes | Pod], problem: str | None = None) -> None:
        self.pods, self.problem, self.has_synced = pods, problem, False

    async def get_informer(self, _kind: type[Any]) -> Any:
        return self

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        assert or_problem
        self.has_synced = self.problem is None

    def keys(self) -> Iterator[NamespacedName]:
        assert self.has_synced
        return (NamespacedName("ns", name) for name in [*self.pods, "deleted meanwhile"])

    async def get(self, _kind: type[Any], key: Any) -> Any:
        return (await self.peek(_kind, key)).object

    async def peek(self, kind: type[Any], key: NamespacedName) -> Any:
        if (pod := self.pods.get(key.name)) is None:
            return await FakeClient().get(kind, key)  # raises NotFoundError
        return Cached(kind, pod) if isinstance(pod, bytes) else LazyObject.of(pod)


def pod(name: str, annotations: dict[str, str] | None = None) -> Pod:
    return Pod.from_dict({"metadata": {"name": name, "namespace": "ns", "annotations": annotations or {}}})


def text(name: str, annotations: dict[str, str] | None = None) -> bytes:
    return pod(name, annotations).to_json()


async def order(pods: Pods) -> list[str]:
    """Enqueue all pods and a new event, and return the names in the order in which workers receive them."""
    queue = PriorityQueue[Request]()
    for name in pods.pods:
        queue.add(Request("ns", name), priority=LOW_PRIORITY)
    queue.add(Request("ns", "new event"))
    await ungrouped_first(pods, pods).start(queue)  # type: ignore[arg-type]
    return [(await queue.get()).name for _ in range(len(queue))]


async def test_pods_without_a_group_pass_the_others_but_not_new_events() -> None:
    pods: dict[str, bytes | Pod] = {
        "grouped": text("grouped", GROUPED),
        "annotated": text("annotated", {"other": "x"}),
        "grouped-decoded": pod("grouped-decoded", GROUPED),
        "decoded": pod("decoded"),
        "undecodable": b'{"metadata": {"annotations": []}}',
        "null": b'{"metadata": {"annotations": null}}',
    }
    assert await order(Pods(pods)) == [
        "new event",
        "annotated",
        "decoded",
        "null",
        "grouped",
        "grouped-decoded",
        "undecodable",
    ]


async def test_the_order_stays_where_pods_may_not_be_listed() -> None:
    assert await order(Pods({"a": text("a")}, problem="forbidden")) == ["new event", "a"]
