# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Rules for the managers: the versions on which writes are based, readiness, and the TrainJobs and pods in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.machinery import Object
from controller_runtime.machinery.meta import parse_time
from controller_runtime.manager import Manager
from controller_runtime.rest import CompleteResponse, Request, Response
from controller_runtime.simtest import (
    Observer,
    Process,
    Simulation,
    is_fenced_write,
    parse_request,
)

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller import TrainJobReconciler
from pkg.podgrouper import PodReconciler
from testkit.sim.objects import by_uid, controller, is_true, overdue

Document = dict[str, Any]
_UNTIL_REPORTED = 180.0
_UNTIL_LED = 90.0
"""For this many seconds, new processes are observed: one of them leads, and has reconciled everything."""
_UNSEEN = 5.0
"""For this many seconds, the manager must not delete a JobSet that JobSet's controller has not seen yet."""
_OF_NO_OBJECT = "1"
"""The resourceVersion of an apply that may only create: the write fails if the object exists."""


class Writes(Observer):
    """Checks that a manager bases no write on a version older than its last write, and repeats no successful write.

    The JobSet of a TrainJob that is Complete must not be deleted.
    """

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._processes: list[Process] = []
        self._own: dict[tuple[int, str], tuple[int, str]] = {}
        """By process and object, the version and uid in the last response to a write that the process received."""
        self._known: dict[tuple[int, str, bytes], int] = {}
        sim.network.observers.append(self)

    def sends(self, process: Process, request: Request) -> None:
        """Check a write that a manager sends."""
        if not is_fenced_write(request):
            return
        if request.method == "DELETE":
            self._check_not_complete(process, request)
        body = _decoded(request.body)
        view = (body.get("metadata") or body.get("preconditions") or {}).get("resourceVersion")
        if view is None:
            return
        number, shown = self._number(process), _shown(request)
        own, uid = self._own.get((number, _object(request)), (0, ""))
        parsed = parse_request(request, self._sim.server.tables)
        row = parsed.table.rows.get(parsed.key)
        metadata = row.document["metadata"] if row is not None else {}
        # An apply at this version creates the object, so the object written before must be another one, or deleted.
        if int(view) < own and (view != _OF_NO_OBJECT or metadata.get("uid") == uid):
            self._fail(
                f"a write from a view older than an own write: {process.name} {shown} at {view}, own {own}"
            )
        if self._known.get((number, shown, request.body or b"")) == int(view):
            self._fail(f"a write whose answer was known: {process.name} {shown}")
        if parsed.is_apply and metadata.get("deletionTimestamp") and metadata["resourceVersion"] == view:
            self._fail(f"an apply to an object that is being deleted: {process.name} {shown}")
        if (
            request.method == "DELETE"
            and metadata.get("resourceVersion") == view
            and _has_active_jobs(row.document if row else {})
        ):
            self._fail(f"a JobSet is built again while its Jobs are active: {process.name} {shown}")
        if request.method == "DELETE" and metadata.get("resourceVersion") == view and row is not None:
            self._check_observed(process, row.document)

    def _check_not_complete(self, process: Process, request: Request) -> None:
        parsed = parse_request(request, self._sim.server.tables)
        row = parsed.table.rows.get(parsed.key)
        if row is None or parsed.table.properties.gvk != JobSet.gvk:
            return
        job = by_uid(self._sim, TrainJob, (controller(row.document) or {}).get("uid", ""))
        if job is not None and is_true(job, "Complete"):
            self._fail(f"the JobSet of a TrainJob that is Complete is deleted: {process.name} {request.path}")

    def _check_observed(self, process: Process, document: Document) -> None:
        """Check that a JobSet is not deleted before JobSet's controller has seen it.

        The controller might still create Jobs for the deleted JobSet, and take them for Jobs of the next one.
        """
        if document.get("kind") != "JobSet" or (document.get("status") or {}).get("replicatedJobsStatus"):
            return
        job = by_uid(self._sim, TrainJob, (controller(document) or {}).get("uid", ""))
        created = parse_time(document["metadata"]["creationTimestamp"])
        age = (datetime.now(UTC) - created).total_seconds()
        ended = job is None or is_true(job, "Failed") or is_true(job, "Complete")
        if not ended and abs(process.drift) < 1.0 and age < _UNSEEN:
            self._fail(f"a JobSet is built again before its controller has seen it: {process.name}")

    def answered(self, process: Process, request: Request, answer: Response) -> None:
        """Record the version that a manager received."""
        if not is_fenced_write(request):
            return
        if answer.status not in (200, 201) or not isinstance(answer, CompleteResponse):
            return
        metadata = _decoded(answer.body).get("metadata") or {}
        version = metadata.get("resourceVersion")
        if version is not None:
            number = self._number(process)
            if not any(name == "dryRun" for name, _ in request.query):
                self._own[number, _object(request)] = int(version), metadata.get("uid", "")
            self._known[number, _shown(request), request.body or b""] = int(version)

    def _number(self, process: Process) -> int:
        if process not in self._processes:
            self._processes.append(process)
        return self._processes.index(process)

    def _fail(self, text: str) -> None:
        self._sim.failures.append(AssertionError(text))


def _has_active_jobs(document: Document) -> bool:
    jobs = (document.get("status") or {}).get("replicatedJobsStatus") or ()
    return any(each.get("active") for each in jobs)


def _decoded(body: bytes | None) -> Document:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _object(request: Request) -> str:
    return request.path.removesuffix("/status")


def _shown(request: Request) -> str:
    query = "".join(f" {name}={value}" for name, value in request.query)
    return f"{request.method} {request.path}{query}"


def ready(sim: Simulation) -> Iterator[tuple[str, Manager]]:
    """Yield the managers that run and whose caches have synced."""
    for name, replica in sorted(sim.rules.replicas.items()):
        ended = replica.process.dead or replica.process.ended.is_set()
        if not ended and replica.manager.synced:
            yield name, replica.manager


async def revoke(sim: Simulation, rng: random.Random) -> None:
    """Revoke the permission to read a kind until every manager that watches the kind reports the problem."""
    kinds: list[type[Object]] = [TrainJob, JobSet, ClusterTrainingRuntime, ConfigMap]
    table = sim.server.table(rng.choice(kinds))
    kind, resource = table.properties.gvk, str(table.resource.group_resource)
    denied = {("manager", verb, resource) for verb in ("list", "watch")}
    until = sim.loop.time() + _UNTIL_REPORTED
    silent = ["all"]
    while silent:
        sim.server.denied |= denied
        sim.server.watches.cut(lambda watch: watch.table is table)
        await anyio.sleep(5.0)
        silent = [
            name
            for name, manager in ready(sim)
            if any(informer.kind.gvk == kind for informer in manager.cache.informers())
            and not manager.cache.remarks()
        ]
        assert sim.loop.time() < until, f"readiness does not report a denied kind: {kind.kind} {silent}"
    for entry in denied:
        sim.server.denied.discard(entry)


def writes(sim: Simulation, since: int) -> list[str]:
    """Return the writes of managers in the timeline, from a line on, except those of events and leases."""
    return [
        str(line)
        for line in sim.timeline[since:]
        if line.actor.startswith("manager")
        and line.text.startswith(("POST", "PUT", "PATCH", "DELETE"))
        and "/leases" not in line.text
        and "/events" not in line.text
    ]


async def renew(sim: Simulation, after: float = 0.0) -> None:
    """Check a cluster at rest: managers that start now write nothing, so nothing was forgotten, or done too much.

    The cluster is at rest ``after`` so many seconds.
    """
    await anyio.sleep(after)
    for name in [*sim.managers]:
        sim.kill(name)
    await anyio.sleep(1.0)
    lines, ended = len(sim.timeline), overdue(sim)
    await anyio.sleep(_UNTIL_LED)
    if overdue(sim) == ended:
        written = writes(sim, lines)
        assert not written, f"a new process writes in a cluster at rest: {written[0]}"


async def check_managers(sim: Simulation) -> None:
    """Check a cluster at rest: readiness reports no problem, and finished TrainJobs and deleted pods are forgotten."""
    for name, manager in ready(sim):
        remarks = manager.cache.remarks()
        assert not remarks, f"readiness reports a problem in a healthy cluster: {name}: {remarks}"
        for reconciler in sim.rules.replicas[name].reconcilers:
            if isinstance(reconciler, TrainJobReconciler):
                _check_trackers(sim, name, reconciler)
            if isinstance(reconciler, PodReconciler):
                left = reconciler._own_writes.keys() - sim.server.table(Pod).rows.keys()
                assert not left, f"pods are remembered too long: {name} {sorted(left)}"
    if sim.failures:
        raise sim.failures[0]
    await renew(sim)


def _check_trackers(sim: Simulation, name: str, reconciler: TrainJobReconciler) -> None:
    unfinished = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in sim.server.objects(TrainJob)
        if not (is_true(each, "Complete") or is_true(each, "Failed"))
    }
    left = reconciler._memories.keys() - unfinished
    assert not left, f"TrainJobs are remembered too long: {name} {sorted(left)}"
