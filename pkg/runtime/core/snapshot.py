# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of runtimes: a TrainJob keeps the runtime that it started with.

The second generation creates a ConfigMap with the runtime once for each TrainJob, and reads it instead of the runtime.
The first one creates none, but reads those that exist. A snapshot is read from the server once: then it is remembered.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import pydantic_core
from controller_runtime import log, offload
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.machinery import yaml
from controller_runtime.apis.machinery.errors import (
    AlreadyExistsError,
    ForbiddenError,
    NotFoundError,
    StatusError,
)
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object, metadata_only
from controller_runtime.apis.machinery.time import parse_time
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Client
from controller_runtime.rest import RestError
from controller_runtime.tokenbucket import TokenBucket

from pkg import apply
from pkg.apis.trainer.v1alpha1 import RuntimeRef, TrainJob
from pkg.constants import trainer as constants
from pkg.util import trainjob

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", bound=Object)

if TYPE_CHECKING:
    from controller_runtime.builder import Builder
    from controller_runtime.cache import Cache

_SUFFIX: Final = "-runtime-snapshot"
_KEY: Final = "runtime"
_UNTIL_PERMITTED: Final = timedelta(seconds=60)
_PATIENCE: Final = 2.0
"""Seconds for which a review waits for a snapshot."""
_REVIEWS_PER_SECOND: Final = 10.0
_REVIEWS_AT_ONCE: Final = 50
_REMEMBERED: Final = 100_000
"""TrainJobs whose snapshot is remembered."""
_DECODED: Final = 64
"""Different snapshots that are kept decoded; TrainJobs of one version of a runtime share one."""


class SnapshotTextError(Exception):
    """A text does not contain the runtime that a TrainJob refers to. The message is upstream's."""


class SnapshotError(Exception):
    """A TrainJob's snapshot cannot be used or created. The text is upstream's; the cause is chained."""


# +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;list
class Snapshots:
    """Returns the runtimes of TrainJobs: the snapshot, else the live one, of which it may create a snapshot.

    Only TrainJobs that are older than the start of the controller can have a snapshot that this program does not know,
    since one manager works at a time. So a new TrainJob costs one request if ``creates``, else none. For older ones
    without ``creates``, the snapshots of each namespace are listed once.
    """

    def __init__(
        self,
        store: Client,
        *,
        creates: bool,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._creates = creates
        self._now = now
        self._since: datetime | None = None
        self._digests: OrderedDict[str, bytes] = OrderedDict()
        self._decoded: OrderedDict[bytes, Object] = OrderedDict()
        self._listed: dict[str, frozenset[str]] = {}
        self._denied: dict[str, datetime] = {}
        """When namespaces whose ConfigMaps may not be listed are tried again."""
        self._listing = anyio.Lock()
        self._reviews = TokenBucket(_REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE)

    def begin(self) -> None:
        """Note the time from which this manager alone creates snapshots; by default that of the first call."""
        # Creation times have whole seconds.
        self._since = self._now().replace(microsecond=0)

    def watch_start(self, builder: Builder, _client: Client, _cache: Cache) -> Builder:
        """Begin when the controller starts, which is when this manager leads."""
        from controller_runtime import source  # rendering without a cluster loads no controllers

        begin = self.begin

        class Start(source.Source):
            async def start(self, queue: object) -> None:
                del queue
                begin()

        return builder.watches_raw_source(Start())

    async def runtime_of(self, train_job: TrainJob, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Return the runtime of a TrainJob; ``live`` reads the live one. It must not be changed.

        Raises:
            SnapshotError: the snapshot is not valid, or could not be created.
            StatusError: it could not be read.
        """
        found = self._remembered(train_job, kind)
        if found is None and await self._may_exist(train_job):
            found = await self._read(train_job, kind)
        if found is not None:
            return found
        runtime = await live()
        if not self._creates:
            return runtime
        return await self._create(train_job, kind, runtime)

    async def stored(self, train_job: TrainJob, kind: type[T]) -> T | None:
        """Return the runtime of a TrainJob's snapshot, or None if it is missing, not valid or cannot be read.

        Unlike :meth:`runtime_of` it may be called by a replica that does not lead: another one creates snapshots. It is
        for reviews, which any client causes: it takes two seconds at most, and reads ten snapshots a second.
        """
        if (known := self._remembered(train_job, kind)) is not None or not self._reviews.try_take():
            return known
        try:
            with anyio.move_on_after(_PATIENCE):
                return await self._read(train_job, kind)
        except (SnapshotError, StatusError, RestError) as error:
            log.logger_from().debug("Snapshot cannot be used", trainJob=str(train_job.key), error=error)
        return None

    def _remembered(self, train_job: TrainJob, kind: type[T]) -> T | None:
        digest = self._digests.get(train_job.metadata.uid or "")
        found = self._decoded.get(digest) if digest is not None else None
        if digest is None or not isinstance(found, kind):
            return None
        self._decoded.move_to_end(digest)
        return found

    def _remember(self, train_job: TrainJob, text: str, runtime: Object) -> None:
        if not train_job.metadata.uid:
            return
        digest = _digest(text)
        _keep(self._digests, train_job.metadata.uid, digest, _REMEMBERED)
        _keep(self._decoded, digest, runtime, _DECODED)

    async def _may_exist(self, train_job: TrainJob) -> bool:
        if train_job.metadata.uid in self._digests:
            return True  # known, and no longer decoded
        if self._since is None:
            self.begin()
        created = train_job.metadata.creation_timestamp
        if created is not None and self._since is not None and parse_time(created) >= self._since:
            return False
        return self._creates or train_job.metadata.uid in await self._owners(train_job.namespace)

    async def _owners(self, namespace: str) -> frozenset[str]:
        """Return the uids of the TrainJobs with a snapshot in a namespace, listed once."""
        if (known := self._listed.get(namespace)) is not None:
            return known  # without a task switch, which even a free lock costs
        async with self._listing:
            until = self._denied.get(namespace)
            if until is not None and self._now() < until:
                return frozenset()
            if namespace not in self._listed:
                try:
                    found = await self._store.list(metadata_only(ConfigMap), namespace=namespace)
                except ForbiddenError as error:  # the first generation needs no snapshots
                    log.logger_from().info("Snapshots are not read", namespace=namespace, error=str(error))
                    self._denied[namespace] = self._now() + _UNTIL_PERMITTED
                    return frozenset()
                controllers = (trainjob.controller_of(each) for each in found if each.name.endswith(_SUFFIX))
                self._listed[namespace] = frozenset(each.uid for each in controllers if each is not None)
        return self._listed[namespace]

    async def _read(self, train_job: TrainJob, kind: type[T]) -> T | None:
        """Return the runtime of the snapshot, or None if it does not exist."""
        try:
            found = await self._store.get(ConfigMap, _key(train_job))
        except NotFoundError:
            return None
        try:
            trainjob.require_control(found, trainjob.controller_reference(train_job))
        except trainjob.ChildConflictError as error:
            raise SnapshotError(
                "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
            ) from error
        text = (found.data or {}).get(_KEY)
        if text is None:
            raise SnapshotError(f'invalid runtime snapshot: snapshot ConfigMap missing "{_KEY}" data key')
        try:
            with offload.weighing(len(text)):
                runtime = await offload.run(decode, kind, text, train_job.spec.runtime_ref)
        except SnapshotTextError as error:
            raise SnapshotError(f"invalid runtime snapshot: {error}") from error
        self._remember(train_job, text, runtime)
        return runtime

    async def _create(self, train_job: TrainJob, kind: type[T], runtime: T) -> T:
        """Create the snapshot, and return its runtime: that of another writer if it exists by now."""
        with offload.weighing(runtime.decoded_size):
            text = await offload.run(encode, runtime)
        config_map = ConfigMap(
            metadata=ObjectMeta(
                name=snapshot_name(train_job),
                namespace=train_job.namespace,
                owner_references=[trainjob.controller_reference(train_job)],
            ),
            data={_KEY: text},
        )
        try:
            await self._store.create(config_map, field_owner=constants.FIELD_OWNER)
        except AlreadyExistsError:
            return await self._read(train_job, kind) or runtime
        except (StatusError, RestError) as error:
            if isinstance(error, ForbiddenError) and _is_terminating(error):
                raise
            raise SnapshotError(f"applying runtime snapshot ConfigMap: {error}") from error
        self._remember(train_job, text, runtime)
        return runtime


def _digest(text: str) -> bytes:
    """Return the digest of a snapshot."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def encode(runtime: Object) -> str:
    """Return the YAML of a runtime."""
    data = runtime.to_dict()
    data |= {"apiVersion": runtime.gvk.api_version, "kind": runtime.gvk.kind}
    data.get("metadata", {}).pop("managedFields", None)
    if "spec" in data:
        data["spec"] = apply.as_typed(data["spec"])
    return yaml.dump(data, sort_keys=True)


def decode(kind: type[T], text: str, ref: RuntimeRef) -> T:
    """Return the runtime of a snapshot.

    Raises:
        SnapshotTextError: the text is not a runtime, or not that of ``ref``.
    """
    try:
        data = yaml.load(text, strict=False)
        if not isinstance(data, dict):
            raise yaml.YAMLError("it is not a map")
        runtime = kind.from_dict(data)
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, pydantic_core.ValidationError) else error
        raise SnapshotTextError(f"unable to unmarshal the snapshot: {reason}") from error
    group, _, _ = (data.get("apiVersion") or "").rpartition("/")
    found = (runtime.name, group, data.get("kind") or "")
    wanted = (ref.name, ref.api_group, ref.kind)
    if any(want is not None and want != have for want, have in zip(wanted, found, strict=True)):
        expected = ", ".join(f'"{"<any>" if each is None else each}"' for each in wanted)
        present = ", ".join(f'"{each}"' for each in found)
        raise SnapshotTextError(
            "the snapshot refers to the wrong runtime: expecting a runtime with name, api group and kind of "
            f"{expected} but found runtime with name, api group and kind of {present}"
        )
    return runtime


def _keep(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def snapshot_name(train_job: TrainJob) -> str:
    """Return the name of the ConfigMap with the TrainJob's snapshot."""
    return train_job.name + _SUFFIX


def _key(train_job: TrainJob) -> NamespacedName:
    return NamespacedName(train_job.namespace, snapshot_name(train_job))


def _is_terminating(error: ForbiddenError) -> bool:
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes)
