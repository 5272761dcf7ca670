# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Takes a snapshot of a TrainJob from a cluster. Nothing is written to the cluster.

If a kind is not installed or may not be read, the snapshot contains the reason instead of the objects. Secrets,
ConfigMaps and some other objects are looked up by name. We read only the metadata of these objects, except of runtimes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, TypedDict

import anyio
import msgspec
from controller_runtime.client import LiveClient, Reader
from controller_runtime.machinery import GVK, JSON, Object, Unstructured, metadata_only, unstructured
from controller_runtime.machinery.errors import AlreadyExistsError, NotFoundError, StatusError
from controller_runtime.rest import NoKindMatchError, Request, RestError, RoundTripper, decoded
from controller_runtime.rest.request import segment

from pkg.apis.jobset.labels import JOB_SET_NAME_KEY
from pkg.why import activity, kinds
from pkg.why.causes import (
    containers,
    controllers,
    deletions,
    leases,
    queues,
    references,
    refusals,
    templates,
    turns,
    volumes,
)
from pkg.why.causes.statuses import Status
from pkg.why.liveobject import LiveObject, at, maps
from pkg.why.snapshot import NOT_INSTALLED, Reference, Snapshot

_PAGE: Final = 500
_PAGES: Final = 40
"""We read at most this many pages of a kind, because a namespace may have any number of events."""
_DRY_RUNS: Final = 8
"""Maximum number of Jobs or pods that are sent in dry runs."""
_PENDING: Final = 500
_PENDING_PAGES: Final = 10
"""We read at most this many pages of the Workloads that wait in a LocalQueue."""
_summary: Final = msgspec.json.Decoder(dict[str, JSON]).decode
_VISIBILITY: Final = ("v1beta2", "v1beta1")
_LOGS: Final = 3
_LOG_LINES: Final = 100
_OUTPUT_LINES: Final = 5
_LOG_BYTES: Final = 1 << 17
"""A server cuts a longer answer at its end, where the error is."""
_LOG_SECONDS: Final = 5.0


class Selection(TypedDict, total=False):
    """Selects objects of a kind."""

    namespace: str
    labels: Mapping[str, str | Sequence[str]] | str
    fields: Mapping[str, str]


class Reading:
    """Reads the objects of one TrainJob. Reads that do not depend on each other run concurrently."""

    def __init__(self, client: Reader, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._objects: dict[str, list[LiveObject]] = {}
        self._unread: dict[str, str] = {}
        self._truncated: dict[str, str] = {}
        self._absent: set[Reference] = set()
        self._logs: dict[tuple[str, str], list[str]] = {}
        self._outputs: dict[tuple[str, str], list[str]] = {}
        self._refused: dict[str, str] | None = None
        self._webhooks_are_read = False

    async def take(self, now: datetime, *, explains: bool = True) -> Snapshot:
        """Return the snapshot. Unless it ``explains``, it has no logs, dry runs, webhooks and controllers.

        Raises:
            StatusError, RestError: the TrainJob cannot be read; NotFoundError if it does not exist.
        """
        kind = unstructured(kinds.VERSIONS[kinds.TRAIN_JOB][0])
        train_job = LiveObject((await self._client.get(kind, (self._namespace, self._name))).to_dict())
        await self._list(_selections(self._namespace, self._name))
        snapshot = Snapshot(train_job, now, self._objects, self._unread)
        async with anyio.create_task_group() as group:
            named = [
                *references.references(snapshot),
                *queues.queues(snapshot),
                *deletions.references(snapshot),
                *volumes.storage_classes(snapshot),
            ]
            for reference in dict.fromkeys(named):
                group.start_soon(self._look_up, reference)
            group.start_soon(self._read_position, snapshot)
            if explains:
                group.start_soon(self._read_logs, snapshot)
                group.start_soon(self._dry_run, snapshot)
                group.start_soon(self._read_controllers)
            if explains and any("webhook" in each.text("message") for each in snapshot.all(kinds.EVENT)):
                group.start_soon(self._read_webhooks)
        if references.runtime_of(train_job) in self._absent:
            await self._look_up(references.runtime_of_other_kind(train_job))
        if queues.unadmitted(snapshot) is not None:
            for queue in self._objects.get(kinds.LOCAL_QUEUE, ()):
                if name := queue.text("spec", "clusterQueue"):
                    await self._look_up(Reference(kinds.CLUSTER_QUEUE, "", name))
        absent = frozenset(self._absent)
        return dataclasses.replace(
            snapshot,
            absent=absent,
            logs=self._logs,
            outputs=self._outputs,
            truncated=self._truncated,
            refused=self._refused,
        )

    async def _list(self, wanted: Iterable[tuple[str, Selection]]) -> None:
        async with anyio.create_task_group() as group:
            for kind, selection in wanted:
                group.start_soon(self._list_kind, kind, selection)

    async def _list_kind(self, kind: str, selection: Selection) -> None:
        for version in kinds.VERSIONS[kind]:
            try:
                found, are_all = await listed(self._client, version, selection, pages=_PAGES)
            except NoKindMatchError:
                self._unread[kind] = NOT_INSTALLED
                continue
            except (StatusError, RestError) as error:
                self._unread[kind] = str(error)
                return
            self._unread.pop(kind, None)
            self._objects.setdefault(kind, []).extend(found)
            if not are_all:
                self._truncated[kind] = f"only the first {len(found)} were read"
            return

    async def _look_up(self, reference: Reference) -> None:
        key = (reference.namespace, reference.name)
        for version in kinds.VERSIONS.get(reference.kind, ()):
            try:
                if reference.kind in (*kinds.RUNTIMES, *queues.WITH_RESOURCES):
                    found = await self._client.get(unstructured(version), key)
                    self._objects.setdefault(reference.kind, []).append(LiveObject(found.to_dict()))
                else:
                    await self._client.get(metadata_only(version), key)
            except NoKindMatchError:
                continue
            except NotFoundError:
                self._absent.add(reference)
            except (StatusError, RestError) as error:
                self._unread[reference.kind] = str(error)
            return

    async def _read_controllers(self) -> None:
        """Read the Deployments and leases of controllers. If a Deployment has no available pod, read its pods too."""
        names = (controllers.MANAGER, controllers.JOB_SET_MANAGER)
        await self._list(
            [
                *((kinds.DEPLOYMENT, Selection(fields={"metadata.name": name})) for name in names),
                *((kinds.LEASE, Selection(fields={"metadata.name": name})) for name in leases.NAMES),
            ]
        )
        for each in self._objects.get(kinds.DEPLOYMENT, ()):
            labels = at(each.data, "spec", "selector", "matchLabels")
            if not each.number("status", "availableReplicas") and isinstance(labels, dict):
                await self._list([(kinds.POD, Selection(namespace=each.namespace, labels=labels))])

    async def _read_logs(self, snapshot: Snapshot) -> None:
        if not isinstance(self._client, LiveClient):
            return
        async with anyio.create_task_group() as group:
            failed = [each for each in containers.failed_containers(snapshot) if not each.is_gone]
            for status in failed[:_LOGS]:
                previous = at(status.data, "state", "terminated") is None
                group.start_soon(self._read_log, self._client, status, previous)
            if not failed:
                for status in activity.watched(snapshot):
                    group.start_soon(self._read_output, self._client, status)

    async def _dry_run(self, snapshot: Snapshot) -> None:
        """Ask the API server why it refuses the Jobs of a JobSet, or the pods of Jobs; nothing is created.

        If the user may not create Jobs or pods, the API server was not asked.
        """
        job_set = snapshot.job_set
        if not isinstance(self._client, LiveClient) or job_set is None:
            return
        lacks_jobs = templates.lacks_jobs(snapshot)
        pods = (LiveObject(templates.pod_of(job)) for job in templates.podless(snapshot))
        refused, unknown = await dry_run(self._client, [job_set] if lacks_jobs else pods)
        if unknown:
            self._unread[f"dry run of {'Jobs' if lacks_jobs else 'pods'}"] = unknown
        elif lacks_jobs or refused:
            self._refused = refused
            if any("webhook" in each for each in refused.values()):
                await self._read_webhooks()

    async def _read_webhooks(self) -> None:
        if not self._webhooks_are_read:
            self._webhooks_are_read = True
            webhooks = (kinds.VALIDATING_WEBHOOK, kinds.MUTATING_WEBHOOK)
            await self._list([(kind, Selection()) for kind in webhooks])

    async def _read_position(self, snapshot: Snapshot) -> None:
        """Read the Workloads that wait in the same LocalQueue, from Kueue's visibility API."""
        workload = queues.unadmitted(snapshot)
        if not isinstance(self._client, LiveClient) or workload is None:
            return
        queue = workload.text("spec", "queueName")
        found, reason = await pending(self._client.transport, workload.namespace, queue, workload.name)
        if reason:
            self._unread[turns.PENDING] = reason
        else:
            self._objects[turns.PENDING] = found

    async def _read_log(self, client: LiveClient, status: Status, previous: bool) -> None:
        try:
            found = await self._last_lines(client, status, _LOG_LINES, previous=previous)
        except (StatusError, RestError, TimeoutError) as error:
            reason = str(error) or f"no response within {_LOG_SECONDS:g} s"
            self._unread[f"log of {status.pod.name}"] = reason
            return
        self._logs[status.pod.name, status.name] = found

    async def _read_output(self, client: LiveClient, status: Status) -> None:
        """Read the last lines of a running container. Without permission, only less is known."""
        with suppress(StatusError, RestError, TimeoutError):
            found = await self._last_lines(client, status, _OUTPUT_LINES, timestamps=True)
            self._outputs[status.pod.name, status.name] = found

    async def _last_lines(
        self,
        client: LiveClient,
        status: Status,
        lines: int,
        *,
        previous: bool = False,
        timestamps: bool = False,
    ) -> list[str]:
        with anyio.fail_after(_LOG_SECONDS):
            text = await client.subresource("log").get(
                pod_named(self._namespace, status.pod.name),
                container=status.name,
                previous=previous,
                timestamps=timestamps,
                tail_lines=lines,
                limit_bytes=_LOG_BYTES,
            )
        return text.splitlines()


async def dry_run(client: LiveClient, objects: Iterable[LiveObject]) -> tuple[dict[str, str], str]:
    """Try to create pods, or the Jobs of JobSets, in a dry run.

    Return the API server's texts about the objects that it refuses, by their names. If the user may not create them,
    or the API server or a webhook cannot answer, return the reason as the second value.
    """
    refused: dict[str, str] = {}
    made_of = (templates.jobs_of(each) if each.kind == "JobSet" else [each.data] for each in objects)
    for data in itertools.islice(itertools.chain.from_iterable(made_of), _DRY_RUNS):
        made = Unstructured.wrap(dict(data))
        try:
            await client.create(made, dry_run=True)
        except AlreadyExistsError:
            continue
        except (StatusError, RestError) as error:
            message = str(error)
            if (
                not isinstance(error, StatusError)
                or "does not support dry run" in message
                or refusals.refused(message, LiveObject(data)).cause == "forbidden"
            ):
                return {}, message
            refused[made.name] = message
    return refused, ""


async def pending(
    transport: RoundTripper, namespace: str, queue: str, last: str = ""
) -> tuple[list[LiveObject], str]:
    """Return the Workloads that wait in a LocalQueue, and the reason if they cannot be read.

    The page with the Workload ``last`` is the last page that is read. We do not ask for the kind by discovery: there,
    Kueue's server gives both of its queues the same kind.
    """
    found: list[LiveObject] = []
    for version in _VISIBILITY:
        try:
            where = f"namespaces/{segment(namespace)}/localqueues/{segment(queue)}"
            path = f"/apis/visibility.kueue.x-k8s.io/{version}/{where}/pendingworkloads"
            for _ in range(_PENDING_PAGES):
                query = (("limit", str(_PENDING)), ("offset", str(len(found))))
                response = await transport.send(Request("GET", path, query, timeout=_LOG_SECONDS))
                await response.raise_for_status()
                answer = decoded(_summary, await response.read())
                page = [LiveObject(each) for each in maps(answer, "items")[:_PENDING]]
                found += page
                if len(page) < _PENDING or any(each.name == last for each in page):
                    break
        except NotFoundError:
            continue
        except (StatusError, RestError, TimeoutError) as error:
            return [], str(error) or f"no response within {_LOG_SECONDS:g} s"
        return found, ""
    return [], NOT_INSTALLED


async def take(
    client: Reader, namespace: str, name: str, now: datetime, *, explains: bool = True
) -> Snapshot:
    """Return the snapshot of a TrainJob, as :meth:`Reading.take` does.

    Raises:
        StatusError, RestError: the TrainJob cannot be read; NotFoundError if it does not exist.
    """
    return await Reading(client, namespace, name).take(now, explains=explains)


async def listed(
    client: Reader, version: GVK, selection: Selection, *, pages: int | None = None
) -> tuple[list[LiveObject], bool]:
    """Return the selected objects of a kind, and True if these are all. Read at most ``pages`` pages."""
    found: list[LiveObject] = []
    token = ""
    for _ in itertools.count() if pages is None else range(pages):
        page = await client.list(unstructured(version), limit=_PAGE, continue_token=token, **selection)
        found += [LiveObject(each.to_dict()) for each in page]
        if not (token := page.continue_token):
            return found, True
    return found, False


def pod_named(namespace: str, name: str) -> Object:
    """Return a pod without content, whose log can be read."""
    metadata = {"namespace": namespace, "name": name}
    return unstructured(kinds.VERSIONS[kinds.POD][0]).from_dict({"metadata": metadata})


def _selections(namespace: str, name: str) -> list[tuple[str, Selection]]:
    labelled = Selection(namespace=namespace, labels={JOB_SET_NAME_KEY: name})
    everything = Selection(namespace=namespace)
    return [
        (kinds.JOB_SET, Selection(namespace=namespace, fields={"metadata.name": name})),
        (kinds.JOB, labelled),
        (kinds.POD, labelled),
        (kinds.NODE, Selection()),
        (kinds.NAMESPACE, Selection(fields={"metadata.name": namespace})),
        *(
            (kind, everything)
            for kind in (
                kinds.EVENT,
                kinds.SERVICE,
                kinds.QUOTA,
                kinds.LIMIT_RANGE,
                kinds.CLAIM,
                kinds.WORKLOAD,
                *kinds.POD_GROUPS,
            )
        ),
    ]
