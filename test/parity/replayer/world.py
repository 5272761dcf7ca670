# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The environment of a case: an API server in memory with the case's objects and failures, and our runtimes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from controller_runtime import client
from controller_runtime.fake import Call, FakeClient, FakeSubResource
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import StatusError

from pkg.apis import default_scheme
from pkg.apis.config.v1alpha1 import Configuration, set_defaults
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime, core
from pkg.util import trainjob

T = TypeVar("T", bound=Object)

NOW: Final = datetime(2077, 7, 7, 7, 7, 7, tzinfo=UTC)
"""The time of the clock. No input contains it, so the run has set each field that does. Future deadlines are later."""

_CHILDREN: Final = frozenset({"JobSet", "PodGroup", "ConfigMap", "Secret"})
_SCHEME: Final = default_scheme()


class Cluster(FakeClient):
    """An in-memory client, in which the calls that the case lists fail."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(*objects(case), now=lambda: NOW)
        self.cfg = Configuration(
            compatibility_version=case.get("profile"),
            feature_gates=dict.fromkeys(case.get("features") or (), True),
        )
        set_defaults(self.cfg)
        self._failures = {
            (failure["verb"], failure["kind"]): failure for failure in case.get("clientErrors") or ()
        }

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        self._fail("get", kind)
        if (
            "%" in NamespacedName.of(key).name
        ):  # not valid in a URL's path, but the manager reads from its cache
            self.table(kind).find(NamespacedName.of(key))
        return await super().get(kind, key)

    async def list(self, kind: type[T], **options: Any) -> client.ObjectList[T]:
        self._fail("list", kind)
        return await super().list(kind, **options)

    async def create(self, obj: T, **options: Any) -> T:
        self._fail("create", type(obj))
        self._fail("apply", type(obj))
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

    async def delete(self, obj: Object, **options: Any) -> None:
        self._fail("delete", type(obj))
        await super().delete(obj, **options)

    def _fail(self, verb: str, kind: type[Object]) -> None:
        if (failure := self._failures.get((verb, kind.gvk.kind))) is not None:
            code, reason = failure.get("code", 500), failure.get("reason", "InternalError")
            raise StatusError(failure["message"], code=code, reason=reason)

    @property
    def status(self) -> FakeSubResource:
        """Return the writer of ``status``, whose patches fail as those of the object do."""
        return _Status(self, "status")

    def written(self, verbs: Collection[str]) -> Sequence[Call]:
        """Return the calls of these verbs, without dry runs."""
        return [call for call in self.calls if call.verb in verbs and not call.options.get("dry_run")]


class _Status(FakeSubResource):
    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self._cluster = cluster

    async def patch(self, obj: T, patch: client.Patch, **options: Any) -> T:
        self._cluster._fail("patch", type(obj))
        return await super().patch(obj, patch, **options)


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
    suffixes = ("", "-mpi-hostfile", "-flux-curve", "-flux-entrypoint")
    return [NamespacedName(train_job.namespace, train_job.name + suffix) for suffix in suffixes]


class Recorder:
    """Events as text: type, reason, message."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, _obj: Object, event_type: str, reason: str, message: str) -> None:
        self.events.append(f"{event_type} {reason} {message}")


def decode(data: dict[str, Any]) -> Object:
    """Return a copy of the object, of the class of its kind."""
    return _SCHEME.decode(copy.deepcopy(data))


async def runtimes(cluster: Cluster) -> dict[str, Runtime]:
    """Return the product's runtimes for this cluster, in which their indices are registered."""
    return await core.new(cluster, cluster, cfg=cluster.cfg, store=cluster)
