# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the TrainJob of a pod: a Job controls the pod, a JobSet controls the Job, and the TrainJob controls the JobSet.

Each step compares the UID in the reference with the UID of the object. Labels prove nothing, because the creator of a
pod chooses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from controller_runtime import client
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import NamespacedName, Object, metadata_only
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.locks import KeyedLocks
from controller_runtime.machinery.lru import LRU

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob

from .tokens import BoundObject, DeniedError

# +kubebuilder:rbac:groups="",resources=pods,verbs=get
# +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get

_OWNER_TTL: Final = 60.0
"""Seconds for which an owner is remembered. The token of a deleted pod is accepted for at most this time."""
_NO_OWNER_TTL: Final = 5.0
"""Seconds for which it is remembered that a pod belongs to no TrainJob."""
_REMEMBERED: Final = 4096
"""Maximum number of remembered pods. The owners of a forgotten pod are read again."""

_Owner = tuple[str, str]
"""The name and UID of a TrainJob."""


class PodOwners:
    """Finds the TrainJobs of pods.

    ``live`` reads pods and Jobs from the server, and ``cached`` reads JobSets and TrainJobs from the cache.
    """

    def __init__(
        self,
        live: client.Reader,
        cached: client.Reader,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._live = live
        self._cached = cached
        self._clock = clock
        self._found: LRU[tuple[str, BoundObject], tuple[float, _Owner | None]] = LRU(_REMEMBERED)
        self._locks: KeyedLocks[tuple[str, BoundObject]] = KeyedLocks()

    async def require(self, namespace: str, train_job: str, pod: BoundObject) -> None:
        """Check that ``pod`` belongs to a TrainJob.

        Raises:
            DeniedError: the pod or the TrainJob does not exist, or the pod belongs to another object.
            StatusError: the API server refused a read.
            RestError: the API server was unreachable.
        """
        owner = await self._owner(namespace, pod)
        if owner is None or owner[0] != train_job or not await self._exists(namespace, *owner):
            raise DeniedError(
                f"pod {namespace}/{pod.name} does not belong to TrainJob {namespace}/{train_job}"
            )

    async def _owner(self, namespace: str, pod: BoundObject) -> _Owner | None:
        """Return the TrainJob of a pod, or None. Only one call at a time reads the owners of a pod."""
        key = (namespace, pod)
        async with self._locks.holding(key):
            known = self._found.get(key)
            if known is not None and self._clock() < known[0]:
                return known[1]
            owner = await self._look(namespace, pod)
            self._found[key] = self._clock() + (_NO_OWNER_TTL if owner is None else _OWNER_TTL), owner
            return owner

    async def _exists(self, namespace: str, name: str, uid: str) -> bool:
        """Return True if the TrainJob still exists. Pods of a deleted TrainJob may report until they end."""
        try:
            found = (await client.peek(self._cached, TrainJob, NamespacedName(namespace, name))).object
        except NotFoundError:
            return False
        return found.metadata.uid == uid

    async def _look(self, namespace: str, pod: BoundObject) -> _Owner | None:
        expected = OwnerReference(api_version=Pod.gvk.api_version, kind="Pod", name=pod.name, uid=pod.uid)
        step: OwnerReference | None = expected
        for reader, kind, read in (
            (self._live, Pod, metadata_only(Pod)),
            (self._live, Job, metadata_only(Job)),
            (self._cached, JobSet, JobSet),
            (self._cached, TrainJob, TrainJob),
        ):
            if step is None or not _refers_to(step, kind):
                return None
            try:
                found: Object = (await client.peek(reader, read, NamespacedName(namespace, step.name))).object
            except NotFoundError:
                return None
            if found.metadata.uid != step.uid:
                return None
            last, step = found, trainjob.controller_of(found)
        return last.name, last.metadata.uid or ""


def _refers_to(reference: OwnerReference, kind: type[Object]) -> bool:
    group = reference.api_version.rpartition("/")[0]
    return (group, reference.kind) == (kind.gvk.group, kind.gvk.kind)
