# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of runtimes: a TrainJob keeps the runtime that it started with.

In the second generation, a ConfigMap with a copy of the runtime is created once for each TrainJob, and is read instead
of the runtime. In the first generation, snapshots are not created, but existing ones are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import pydantic_core
from controller_runtime import log, offload
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import Client, Reader, peek
from controller_runtime.machinery import NamespacedName, Object, metadata_only, printable, rawjson, yaml
from controller_runtime.machinery.errors import (
    AlreadyExistsError,
    NotFoundError,
    StatusError,
)
from controller_runtime.machinery.lru import LRU
from controller_runtime.machinery.tokenbucket import TokenBucket
from controller_runtime.rest import RestError

from pkg import apply
from pkg.apis.trainer.v1alpha1 import RuntimeRef, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.framework.plugins import ownedfiles
from pkg.util import trainjob

T = TypeVar("T", bound=Object)

if TYPE_CHECKING:
    from controller_runtime.builder import Builder
    from controller_runtime.cache import Cache

_SUFFIX: Final = "-runtime-snapshot"
_KEY: Final = "runtime"
_UNKNOWN_VERSION: Final = "?"
"""Used as the version while ConfigMaps cannot be watched: it is not known whether the snapshot exists."""
_REVIEW_TIMEOUT: Final = 2.0
"""Maximum time, in seconds, for which an admission review waits for a snapshot."""
_REVIEWS_PER_SECOND: Final = 10.0
_REVIEWS_AT_ONCE: Final = 50
"""How many snapshots the reviews of one namespace may read."""
_NAMESPACES: Final = 1024
"""Maximum number of namespaces whose reviews are counted."""
_LARGEST: Final = 1 << 20
"""Maximum size of a snapshot in bytes. Upstream cannot write a larger one, which would not fit into a ConfigMap."""
_MOST_VALUES: Final = 2 * rawjson.DEFAULT.items + rawjson.DEFAULT.containers
"""Maximum number of YAML values in a snapshot: as many as in the largest runtime that this manager can read."""
_REMEMBERED: Final = 100_000
"""Maximum number of TrainJobs whose snapshot is remembered."""
_REFUSED: Final = 4096
"""Maximum number of TrainJobs whose refused snapshot is remembered."""
_LONGEST_REFUSAL: Final = 1024
_DECODED: Final = 64
_DECODED_SIZE: Final = 256 * 1024
"""Maximum number of decoded snapshots that are kept, and of bytes of their JSON. The newest is always kept.

TrainJobs with the same version of a runtime share a decoded snapshot.
"""


class SnapshotTextError(Exception):
    """A text does not contain the runtime that a TrainJob refers to. The message is upstream's."""


class SnapshotError(Exception):
    """A TrainJob's snapshot cannot be used or created. The text is the same as in upstream. The cause is chained."""


class SnapshotCreationError(SnapshotError):
    """A TrainJob's snapshot could not be created."""


# +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;list;watch
class Snapshots:
    """Returns the runtime of a TrainJob from its snapshot. Without a snapshot, the live runtime is returned.

    If ``creates`` is True, a TrainJob without a snapshot gets a snapshot of the live runtime. This also happens if its
    snapshot was deleted. The new snapshot then has the content of the deleted snapshot, if this process remembers it.

    From the first TrainJob on, the metadata of ConfigMaps is watched: it shows which TrainJobs have a snapshot, and
    when a snapshot has changed. ``store`` does not cache the content of snapshots; ``reader`` reads it once for each
    version. A new TrainJob therefore costs one request if ``creates`` is True, and no request otherwise.

    While ConfigMaps cannot be watched, a snapshot that this process remembers is used, and later changes of that
    snapshot are not noticed. If this process does not remember the snapshot, the snapshot is read if ``creates`` is
    True; otherwise the live runtime is used.

    A text is decoded once. If it is refused, the refusal is remembered, too: any tenant can store a text that takes
    long to refuse, and cause a reconcile at any time.
    """

    def __init__(self, store: Client, reader: Reader | None = None, *, creates: bool) -> None:
        self._store = store
        self._reader = store if reader is None else reader
        self._creates = creates
        self._needed = anyio.Event()
        self._versions: LRU[str, tuple[str, bytes]] = LRU(_REMEMBERED)
        """The version of the ConfigMap and the digest of its text, by the uid of the TrainJob."""
        self._decoded: LRU[bytes, Object] = LRU(_DECODED)
        self._refused: LRU[str, tuple[str, bytes, str]] = LRU(_REFUSED)
        """The version of a refused ConfigMap, the digest of its text, and the refusal, by the uid of the TrainJob."""
        self._reviews: LRU[str, TokenBucket] = LRU(_NAMESPACES)

    def watch(self, builder: Builder, _client: Client, _cache: Cache) -> Builder:
        """Reconcile a TrainJob when its snapshot is changed or deleted."""
        return ownedfiles.watch(builder, ConfigMap, suffix=_SUFFIX, when=self._needed.wait)

    async def runtime_of(self, train_job: TrainJob, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Return the runtime of a TrainJob. The caller must not change it. ``live`` reads the live runtime.

        Raises:
            SnapshotCreationError: the snapshot could not be created.
            SnapshotError: the snapshot is not valid.
            StatusError: the snapshot could not be read, or its namespace is being terminated.
            CacheError: the metadata of ConfigMaps could not be read.
        """
        self._needed.set()
        version = await self._version(train_job)
        found = self._remembered(train_job, kind, version)
        if found is None and version and (self._creates or version != _UNKNOWN_VERSION):
            found = await self._read(train_job, kind)
        if found is not None:
            return found
        if not self._creates:
            return await live()
        return await self._create(train_job, kind, self._remembered(train_job, kind) or await live())

    def digest_of(self, train_job: TrainJob, runtime: Object) -> bytes | None:
        """Return the digest of the TrainJob's snapshot if ``runtime`` was read from it or stored in it."""
        _, digest = self._versions.get(train_job.metadata.uid or "", ("", b""))
        return digest if self._decoded.get(digest) is runtime else None

    async def existing(self, train_job: TrainJob, kind: type[T]) -> T | None:
        """Return the runtime of a TrainJob's snapshot, or None if the snapshot is missing, invalid or not readable.

        Unlike :meth:`runtime_of`, this method creates no snapshot, so a replica that is not the leader may call it. It
        is meant for admission reviews. Any client can cause reviews, so each call takes at most two seconds, and all
        calls together read at most ten snapshots per second on average.
        """
        from controller_runtime.cache import CacheError

        try:
            with anyio.move_on_after(_REVIEW_TIMEOUT):
                version = await self._version(train_job)
                known = self._remembered(train_job, kind, version)
                if known is not None or not version or not self._may_read(train_job.namespace):
                    return known
                return await self._read(train_job, kind)
        except (CacheError, SnapshotError, StatusError, RestError) as error:
            log.logger_from().debug("Snapshot cannot be used", trainJob=str(train_job.key), error=error)
        return None

    def _may_read(self, namespace: str) -> bool:
        bucket = self._reviews.use(namespace)
        if bucket is None:
            bucket = self._reviews[namespace] = TokenBucket(_REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE)
        return bucket.try_take()

    async def _version(self, train_job: TrainJob) -> str:
        """Return the version of the ConfigMap with the snapshot's name, or an empty string if it does not exist.

        If ``creates`` is False, a ConfigMap that the TrainJob does not control is ignored, because no snapshot will be
        created with its name.

        Raises:
            SnapshotError: ``creates`` is True, and the TrainJob does not control the ConfigMap.
        """
        from controller_runtime.cache import CacheDegradedError  # rendering without a cluster loads no cache

        try:
            found = (await peek(self._store, metadata_only(ConfigMap), _key(train_job))).object
        except NotFoundError:
            return ""
        except CacheDegradedError:
            return _UNKNOWN_VERSION
        if self._creates:
            _require_control(found, train_job)
        else:
            owner = trainjob.controller_of(found)
            if owner is None or owner.uid != train_job.metadata.uid:
                return ""
        return _version_of(found)

    def _remembered(self, train_job: TrainJob, kind: type[T], version: str = _UNKNOWN_VERSION) -> T | None:
        """Return the runtime of the TrainJob's snapshot, as it was last read or written.

        Return None if the snapshot is not remembered, or if it had another version at that time. By default, any
        version is accepted.

        Raises:
            SnapshotError: the snapshot had this version when it was refused.
        """
        uid = train_job.metadata.uid or ""
        if (refused := self._refused.get(uid)) is not None and refused[0] == version:
            raise SnapshotError(refused[2])
        known, digest = self._versions.get(uid, ("", b""))
        found = self._decoded.use(digest) if version in (known, _UNKNOWN_VERSION) else None
        return found if isinstance(found, kind) else None

    def _remember(self, train_job: TrainJob, stored: ConfigMap, digest: bytes, runtime: Object) -> None:
        if not train_job.metadata.uid:
            return
        self._versions[train_job.metadata.uid] = _version_of(stored), digest
        self._decoded[digest] = runtime
        while (
            len(self._decoded) > 1
            and sum(each.decoded_size for each in self._decoded.values()) > _DECODED_SIZE
        ):
            self._decoded.popitem(last=False)

    async def _read(self, train_job: TrainJob, kind: type[T]) -> T | None:
        """Return the runtime of the snapshot, or None if it does not exist."""
        try:
            found = await self._reader.get(ConfigMap, _key(train_job))
        except NotFoundError:
            return None
        _require_control(found, train_job)
        text, uid = (found.data or {}).get(_KEY), train_job.metadata.uid or ""
        digest = _digest(kind, train_job, text)
        _, refused, refusal = self._refused.get(uid, ("", b"", ""))
        if refused == digest:  # only the metadata has changed
            self._refused[uid] = (_version_of(found), digest, refusal)
            raise SnapshotError(refusal)
        if isinstance(known := self._decoded.get(digest), kind):
            self._remember(train_job, found, digest, known)
            return known
        try:
            size = len(text or "")
            runtime = await offload.run_sized(size, decode, kind, text, train_job.spec.runtime_ref)
        except SnapshotTextError as error:
            refusal = log.cut(f"invalid runtime snapshot: {error}", _LONGEST_REFUSAL)
            if uid:
                self._refused[uid] = _version_of(found), digest, refusal
            raise SnapshotError(refusal) from error
        self._remember(train_job, found, digest, runtime)
        return runtime

    async def _create(self, train_job: TrainJob, kind: type[T], runtime: T) -> T:
        """Create the snapshot and return its runtime. If another writer was faster, return that writer's runtime."""
        text = await offload.run_sized(runtime.decoded_size, encode, runtime)
        config_map = ConfigMap(metadata=trainjob.child_metadata(train_job, _SUFFIX), data={_KEY: text})
        try:
            stored = await self._store.create(config_map, field_owner=constants.FIELD_OWNER)
        except AlreadyExistsError:
            return await self._read(train_job, kind) or runtime
        except (StatusError, RestError) as error:
            if isinstance(error, StatusError) and error.has_cause("NamespaceTerminating"):
                raise
            raise SnapshotCreationError(f"applying runtime snapshot ConfigMap: {error}") from error
        self._remember(train_job, stored, _digest(kind, train_job, text), runtime)
        return runtime


def _require_control(config_map: Object, train_job: TrainJob) -> None:
    try:
        trainjob.require_control(config_map, trainjob.controller_reference(train_job))
    except trainjob.ChildConflictError as error:
        raise SnapshotError(
            "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
        ) from error


def _digest(kind: type[Object], train_job: TrainJob, text: str | None) -> bytes:
    """Return a digest of a text and of the runtime that it must contain: both decide whether it is refused."""
    ref = train_job.spec.runtime_ref
    wanted = repr((kind.gvk, ref.api_group, ref.kind, ref.name, text is None))
    return hashlib.blake2b((wanted + (text or "")).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def encode(runtime: Object) -> str:
    """Return a runtime as the YAML of a snapshot."""
    data = runtime.to_dict()
    data |= {"apiVersion": runtime.gvk.api_version, "kind": runtime.gvk.kind}
    data.get("metadata", {}).pop("managedFields", None)
    if "spec" in data:
        data["spec"] = apply.as_typed(data["spec"])
    return yaml.dump(data, sort_keys=True)


def decode(kind: type[T], text: str | None, ref: RuntimeRef) -> T:
    """Return the runtime of a snapshot. ``text`` is None if the ConfigMap has no text.

    Raises:
        SnapshotTextError: the text does not contain a runtime, or contains another runtime than ``ref`` names.
    """
    if text is None:
        raise SnapshotTextError(f'snapshot ConfigMap missing "{_KEY}" data key')
    try:
        if len(text) > _LARGEST:
            raise yaml.YAMLError(f"it is larger than {_LARGEST} bytes")
        data = yaml.load(text, strict=False, most_values=_MOST_VALUES)
        if not isinstance(data, dict):
            raise yaml.YAMLError("it is not a map")
        # Another kind is refused below, in upstream's words.
        named = {"kind": kind.gvk.kind} if isinstance(data.get("kind"), str) else {}
        runtime = kind.from_json(pydantic_core.to_json({**data, **named}))  # which sets the decoded size
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, pydantic_core.ValidationError) else error
        raise SnapshotTextError(f"unable to unmarshal the snapshot: {reason}") from error
    group, _, _ = (data.get("apiVersion") or "").rpartition("/")
    found = (runtime.name, group, data.get("kind") or "")
    wanted = (ref.name, ref.api_group, ref.kind)
    if any(want is not None and want != have for want, have in zip(wanted, found, strict=True)):
        expected = ", ".join(f'"{"<any>" if each is None else each}"' for each in wanted)
        present = ", ".join(f'"{printable.cut(each)}"' for each in found)
        raise SnapshotTextError(
            "the snapshot refers to the wrong runtime: expecting a runtime with name, api group and kind of "
            f"{expected} but found runtime with name, api group and kind of {present}"
        )
    return runtime


def snapshot_name(train_job: TrainJob) -> str:
    """Return the name of the ConfigMap with the TrainJob's snapshot."""
    return train_job.name + _SUFFIX


def _version_of(config_map: Object) -> str:
    return f"{config_map.metadata.uid}/{config_map.metadata.resource_version}"


def _key(train_job: TrainJob) -> NamespacedName:
    return NamespacedName(train_job.namespace, snapshot_name(train_job))
