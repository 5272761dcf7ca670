# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The removed pods of TrainJobs: their last state and, if they ran as processes, the end of their logs.

Kubernetes deletes the pods of a failed Job. We keep them on disk until their TrainJob is deleted, so that a person can
still ask why it failed. The number and the size of the pods that we keep are limited; the oldest are dropped first.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from controller_runtime import log
from controller_runtime.client import LiveClient
from controller_runtime.machinery import JSON, metadata_only
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError
from pkg.apis.jobset.labels import JOB_SET_NAME_KEY
from pkg.why import LiveObject, kinds

MOST: Final = 256
"""Maximum number of pods."""
MOST_BYTES: Final = 64 << 20
"""Maximum size of all pods with their logs."""
_LONGEST_POD: Final = 1 << 20
_PAUSE: Final = 5.0
_POD: Final = "pod.json"
_TRAIN_JOB: Final = metadata_only(kinds.VERSIONS[kinds.TRAIN_JOB][0])
_log = log.logger_from("removed-pods")


class _Kept(NamedTuple):
    namespace: str
    train_job: str
    created: datetime | None
    size: int


class RemovedPods:
    """Keeps removed pods in ``directory``: a folder for each pod, named by the pod's UID.

    A later process continues with the pods that an earlier one has kept. Only the kubelet of the cluster calls `keep`
    and `follow`; other programs only read.
    """

    def __init__(self, directory: Path, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._directory = directory
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._train_jobs: dict[tuple[str, str], datetime | None] | None = None
        """The creation times of the TrainJobs that exist, or None if they have not been read yet."""
        folders = sorted(directory.iterdir(), key=_age) if directory.is_dir() else []
        for folder in folders:
            if (pod := self._read(folder.name)) is not None:
                self._remember(pod)

    def keep(self, pod: Mapping[str, JSON], save_logs: Callable[[Path], None] = lambda folder: None) -> None:
        """Keep a removed pod if its TrainJob exists. ``save_logs`` writes the logs into the folder that it gets.

        If the disk is full, the pod is not kept.
        """
        found = LiveObject(pod)
        if self._train_jobs is not None and _owner(found) not in self._train_jobs:
            return
        metadata = {name: value for name, value in found.at("metadata").items() if name != "managedFields"}
        body = msgspec.json.encode({**pod, "metadata": metadata})
        if not found.label(JOB_SET_NAME_KEY) or not found.uid or len(body) > _LONGEST_POD:
            return
        with self._lock:
            try:
                self.logs(found.uid, "").mkdir(parents=True, exist_ok=True, mode=0o700)
                save_logs(self.logs(found.uid, ""))
                (self._directory / found.uid / _POD).write_bytes(body)
            except OSError as error:
                _log.info("A removed pod is not kept", pod=str(found), error=str(error))
                self._drop(found.uid)
                return
            self._remember(found)
            kept = self._kept
            while len(kept) > self._most or sum(each.size for each in kept.values()) > self._most_bytes:
                self._drop(next(iter(kept)))

    def of(self, namespace: str, train_job: str) -> list[LiveObject]:
        """Return the removed pods of a TrainJob, in the order in which they were removed."""
        wanted = (namespace, train_job)
        uids = [uid for uid, each in list(self._kept.items()) if (each.namespace, each.train_job) == wanted]
        return [pod for pod in map(self._read, uids) if pod is not None]

    def logs(self, uid: str, container: str) -> Path:
        """Return the folder of a container's logs. It contains a folder for each run."""
        return self._directory / uid / "logs" / container

    async def follow(self, client: LiveClient) -> None:
        """Drop the pods of deleted TrainJobs until cancelled. If a request fails, try again."""
        while True:
            try:
                listed = await client.list(_TRAIN_JOB)
                self._train_jobs = {
                    (each.namespace, each.name): LiveObject(each.to_dict()).created for each in listed
                }
                await anyio.to_thread.run_sync(self._drop_orphans)
                async with client.watch(_TRAIN_JOB, resource_version=listed.resource_version) as events:
                    async for event in events:
                        key = event.object.namespace, event.object.name
                        if event.type == "DELETED":
                            self._train_jobs.pop(key, None)
                            await anyio.to_thread.run_sync(self._drop_orphans)
                        else:
                            self._train_jobs[key] = LiveObject(event.object.to_dict()).created
            except (StatusError, RestError) as error:  # Trainer's CRDs may not be installed yet
                _log.debug("TrainJobs cannot be watched", error=error)
            await anyio.sleep(_PAUSE)

    def _drop_orphans(self) -> None:
        """Drop the pods whose TrainJob does not exist, or is younger than the pod."""
        train_jobs = self._train_jobs or {}
        with self._lock:
            for uid, each in list(self._kept.items()):
                created = train_jobs.get((each.namespace, each.train_job))
                if created is None or (each.created is not None and each.created < created):
                    self._drop(uid)

    def _remember(self, pod: LiveObject) -> None:
        files = (self._directory / pod.uid).rglob("*")
        size = sum(path.stat().st_size for path in files if path.is_file())
        self._kept[pod.uid] = _Kept(*_owner(pod), pod.created, size)

    def _read(self, uid: str) -> LiveObject | None:
        """Return a pod. A process that runs without isolation may have damaged or removed its file."""
        try:
            with (self._directory / uid / _POD).open("rb") as file:
                found = msgspec.json.decode(file.read(_LONGEST_POD + 1), type=dict[str, JSON])
        except (msgspec.MsgspecError, RecursionError, OSError):
            return None
        pod = LiveObject(found)
        return pod if pod.uid == uid and pod.label(JOB_SET_NAME_KEY) else None

    def _drop(self, uid: str) -> None:
        self._kept.pop(uid, None)
        shutil.rmtree(self._directory / uid, ignore_errors=True)


def _owner(pod: LiveObject) -> tuple[str, str]:
    """Return namespace and name of the TrainJob, which has the name of its JobSet."""
    return pod.namespace, pod.label(JOB_SET_NAME_KEY)


def _age(folder: Path) -> float:
    with suppress(OSError):
        return folder.stat().st_mtime
    return 0.0
