# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The world a case runs in: an API server in memory with the case's objects, its failures, and our runtimes on it."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from controller_runtime import client
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object

from pkg.apis import scheme
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime, core
from pkg.util import trainjob

T = TypeVar("T", bound=Object)

NOW: Final = datetime(2222, 2, 2, 2, 2, 2, tzinfo=UTC)
"""What the clock says; no input holds this time, so what shows it was stamped."""

_CHILDREN: Final = frozenset({"JobSet", "PodGroup", "ConfigMap", "Secret"})
_SCHEME: Final = scheme.default_scheme()


class Cluster(client.FakeClient):
    """The in-memory client, with the calls failing that the case wants to fail."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(*objects(case), now=lambda: NOW)
        self._failures = {
            (failure["verb"], failure["kind"]): failure["message"]
            for failure in case.get("clientErrors") or ()
        }

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        self._fail("get", kind)
        return await super().get(kind, key)

    async def list(self, kind: type[T], **options: Any) -> client.ObjectList[T]:
        self._fail("list", kind)
        return await super().list(kind, **options)

    async def create(self, obj: T, **options: Any) -> T:
        self._fail("create", type(obj))
        return await super().create(obj, **options)

    async def update(self, obj: T, **options: Any) -> T:
        self._fail("update", type(obj))
        return await super().update(obj, **options)

    async def patch(self, obj: T, patch: client.Patch, **options: Any) -> T:
        self._fail("patch", type(obj))
        return await super().patch(obj, patch, **options)

    async def apply(self, obj: T, **options: Any) -> T:
        self._fail("apply", type(obj))
        return await super().apply(obj, **options)

    def _fail(self, verb: str, kind: type[Object]) -> None:
        if (message := self._failures.get((verb, kind.gvk.kind))) is not None:
            raise StatusError(message, code=500, reason="InternalError")


def objects(case: dict[str, Any]) -> list[Object]:
    """Return the case's objects, with the controller reference that recorded inputs omit."""
    found = [decode(data) for data in case.get("objects") or ()]
    if "trainJob" in case:
        train_job = TrainJob.from_dict(copy.deepcopy(case["trainJob"]))
        for obj in found:
            if (
                obj.gvk.kind in _CHILDREN
                and obj.key in _names(train_job)
                and not obj.metadata.owner_references
            ):
                obj.metadata.owner_references = [trainjob.controller_reference(train_job)]
    return found


def _names(train_job: TrainJob) -> list[NamespacedName]:
    suffixes = ("", "-mpi-ssh-auth", "-mpi-hostfile")
    return [NamespacedName(train_job.namespace, train_job.name + suffix) for suffix in suffixes]


class Recorder:
    """Events as text: type, reason, message."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, _obj: Object, event_type: str, reason: str, message: str) -> None:
        self.events.append(f"{event_type} {reason} {message}")


def decode(data: dict[str, Any]) -> Object:
    """Return an object of its own kind's class; the case keeps its copy."""
    return _SCHEME.decode(copy.deepcopy(data))


async def runtimes(cluster: Cluster) -> dict[str, Runtime]:
    """Return the product's runtimes over this cluster, their indices registered with it."""
    return await core.new(cluster, cluster)
