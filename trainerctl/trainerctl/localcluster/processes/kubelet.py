# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The reconciler of pods: it starts and stops the runner of each pod on its nodes, and writes the pod's status."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
from controller_runtime import client, log, reconcile
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.source import Queue

from trainerctl.localcluster.podlogs.removed import RemovedPods
from trainerctl.localcluster.processes import logs, status
from trainerctl.localcluster.processes.pod import PodRunner
from trainerctl.localcluster.processes.ports import Ports, group_of
from trainerctl.localcluster.processes.refusals import REASON, refusal
from trainerctl.localcluster.processes.settings import Settings

_log = log.logger_from("processes")
_Status = dict[str, Any]


@dataclass
class _Entry:
    """A pod that this kubelet runs."""

    uid: str
    runner: PodRunner
    pod: Pod
    """The pod as we last read it."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    written: _Status | None = None
    version: str | None = None
    """The pod's resourceVersion before we last wrote its status."""
    deleted: bool = False


class Kubelet:
    """Runs the pods on nodes for which ``is_mine`` returns True. Call `reconcile` only inside `running`."""

    def __init__(
        self,
        client_: client.Client,
        settings: Settings,
        is_mine: Callable[[str], bool],
        removed: RemovedPods,
    ) -> None:
        self._client = client_
        self._settings = settings
        self._is_mine = is_mine
        self._removed = removed
        self._entries: dict[NamespacedName, _Entry] = {}
        self._ports = Ports()
        self._refused: dict[NamespacedName, str] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._queue: Queue | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Allow pods to run during the body of the ``async with`` statement. Afterwards, end all processes."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def feed(self, queue: Queue) -> None:
        """From now on, add a request to ``queue`` when the runner of a pod reports a change. Run until cancelled."""
        self._queue = queue
        await anyio.sleep_forever()

    def runner(self, namespace: str, name: str) -> PodRunner | None:
        """Return the runner of a pod, or None if the pod does not run here."""
        entry = self._entries.get(NamespacedName(namespace, name))
        return entry.runner if entry else None

    async def reconcile(self, request: reconcile.Request) -> reconcile.Result:
        """Start or stop one pod, and write its status."""
        key = NamespacedName(request.namespace, request.name)
        try:
            pod = await self._client.get(Pod, key)
        except NotFoundError:
            pod = None
            self._refused.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None and (pod is None or pod.metadata.uid != entry.uid):
            await self._discard(key, entry)
            entry = None
        if pod is None or not self._is_mine(pod.spec.node_name or ""):
            return reconcile.Result()
        if entry is None:
            entry = await self._accept(key, pod)
        if entry is None:
            if pod.metadata.deletion_timestamp:
                await self._delete(pod)
            return reconcile.Result()
        entry.pod = pod
        if pod.metadata.deletion_timestamp and not entry.runner.finished.is_set():
            grace = pod.metadata.deletion_grace_period_seconds
            if not entry.runner.is_stopping:
                _log.info("Stopping a pod", pod=str(key), grace=grace)
            entry.runner.stop(float(grace or 0))
        has_ended = entry.runner.finished.is_set()
        await self._report(pod, entry)
        if (
            pod.metadata.deletion_timestamp and has_ended and not entry.deleted
        ):  # the pod's last phase is written
            await self._delete(pod)
            entry.deleted = True
        return reconcile.Result()

    def forget_others(self, uids: set[str]) -> None:
        """Remove the folders of pods that do not exist."""
        folder = self._settings.directory / "pods"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in uids:
                shutil.rmtree(path, ignore_errors=True)

    async def _accept(self, key: NamespacedName, pod: Pod) -> _Entry | None:
        """Start the runner of a pod. Return None if the pod has ended or cannot run."""
        uid = pod.metadata.uid or ""
        if pod.status.phase in status.TERMINAL or self._tasks is None or self._refused.get(key) == uid:
            return None
        if reason := refusal(pod):
            self._settings.record(pod, REASON, reason)
            await self._write(pod, status.refused(pod, REASON, reason, self._settings.now()))
            self._refused[key] = uid
            return None
        running = {
            group_of(each.runner.pod) for each in self._entries.values() if not each.runner.finished.is_set()
        }
        ports = self._ports.of(pod, {*running, group_of(pod)})
        for port, substitute in ports.items():
            message = f"Port {port} is used by another program of this machine; the pods of the job use {substitute}"
            self._settings.record(pod, "PortReplaced", message)
        runner = PodRunner(pod, self._settings, lambda: self._changed(key), ports)
        entry = self._entries[key] = _Entry(uid, runner, pod)
        if pod.metadata.deletion_timestamp:
            runner.stop(0)
        self._tasks.start_soon(self._run, entry)
        _log.info("Starting a pod", pod=str(key), address=runner.record.address)
        return entry

    async def _run(self, entry: _Entry) -> None:
        with entry.scope:
            try:
                await entry.runner.run()
            except Exception as error:  # an error of one pod must not end the others
                _log.error("A pod cannot be run", pod=str(entry.runner.pod.key), error=error)

    async def _report(self, pod: Pod, entry: _Entry) -> None:
        """Write the status if it differs from the status that we wrote last.

        Also write it if another client has changed a condition. For example, the node controller marks the pods of a
        node as not ready if the node's lease is not renewed in time.
        """
        version = pod.metadata.resource_version
        if entry.written is not None and version != entry.version and status.is_changed(entry.written, pod):
            entry.written = None
        desired = status.render(entry.runner.record, pod, self._settings.now(), entry.written)
        if entry.written is None or desired != entry.written:
            await self._write(pod, desired)
            entry.written, entry.version = desired, version

    async def _write(self, pod: Pod, desired: _Status) -> None:
        body = msgspec.json.encode({"metadata": {"uid": pod.metadata.uid}, "status": desired})
        with suppress(NotFoundError):
            await self._client.status.patch(pod, client.raw_patch(client.STRATEGIC, body))

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod whose processes have ended. Without a grace period, the API server removes it immediately."""
        if pod.metadata.deletion_grace_period_seconds == 0 and pod.metadata.finalizers:
            return
        gone = Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace))
        preconditions = {"uid": pod.metadata.uid or ""}
        with suppress(NotFoundError):
            await self._client.delete(gone, grace_period_seconds=0, preconditions=preconditions)

    async def _discard(self, key: NamespacedName, entry: _Entry) -> None:
        """End the processes of a pod that does not exist any more, keep how it ended, and remove its folder."""
        if not entry.runner.finished.is_set():
            entry.scope.cancel()
            await entry.runner.finished.wait()
        del self._entries[key]
        last = status.render(entry.runner.record, entry.pod, self._settings.now(), entry.written)
        pod = {**entry.pod.to_dict(), "status": last}
        folder, logged = self._settings.pod(entry.uid), self._settings.logs(entry.uid, "")

        def replace() -> None:
            self._removed.keep(pod, lambda kept: logs.save_ends(logged, kept))
            shutil.rmtree(folder, ignore_errors=True)

        await anyio.to_thread.run_sync(replace)

    def _changed(self, key: NamespacedName) -> None:
        if self._queue is not None:
            self._queue.add(reconcile.Request(*key))
