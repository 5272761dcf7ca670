# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for the managers: leadership, the versions that writes are based on, and memory."""

from __future__ import annotations

import json
from typing import Any

import controller_runtime as ctrl
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.controller import Controller
from controller_runtime.rest import Request, Response
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.answers import Answer
from controller_runtime.simtest.loop import Process
from controller_runtime.simtest.network import WRITES, Observer, is_aside
from sim_objects import is_true

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler

Document = dict[str, Any]


def observe(sim: Simulation) -> None:
    """Check every request of the managers from now on."""
    sim.network.observers.append(Writes(sim))


class Writes(Observer):
    """Only the leader writes. It bases no write on a version older than its last write, and repeats no successful write."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._leaders: dict[str, Process] = {}
        """By the identity in the lease."""
        self._own: dict[tuple[int, str], int] = {}
        """By process and object, the version that its last write led to, as far as it knows."""
        self._known: dict[tuple[int, str, bytes], int] = {}

    def note_identity(self, process: Process, request: Request) -> None:
        """Remember the identity under which a process wants to lead."""
        body = _decoded(request.body)
        holder = (body.get("spec") or {}).get("holderIdentity") if "/leases" in request.path else None
        if holder:
            self._leaders.setdefault(holder, process)

    def sends(self, process: Process, request: Request) -> None:
        """Check a write that a manager is about to send."""
        if request.method not in WRITES:
            return
        if is_aside(request):
            self.note_identity(process, request)
            return
        for lease in self._sim.server.objects(Lease):
            holder = lease["spec"].get("holderIdentity")
            self._check(
                self._leaders.get(holder) is process,
                f"a write of a replica that does not lead: {process.name} {_shown(request)}",
            )
        body = _decoded(request.body)
        view = (body.get("metadata") or body.get("preconditions") or {}).get("resourceVersion")
        if view is None:
            return
        own = self._own.get((id(process), _object(request)), 0)
        self._check(
            int(view) >= own,
            f"a write from a view older than an own write: {process.name} {_shown(request)} at {view}, own {own}",
        )
        known = self._known.get((id(process), _shown(request), request.body or b""))
        self._check(known != int(view), f"a write whose answer was known: {process.name} {_shown(request)}")

    def answered(self, process: Process, request: Request, answer: Response) -> None:
        """Record the version that a manager received."""
        if request.method not in WRITES or not isinstance(answer, Answer):
            return
        version = (_decoded(answer.body).get("metadata") or {}).get("resourceVersion")
        if answer.status not in (200, 201) or version is None:
            return
        if not any(name == "dryRun" for name, _ in request.query):
            self._own[id(process), _object(request)] = int(version)
        self._known[id(process), _shown(request), request.body or b""] = int(version)

    def _check(self, holds: bool, text: str) -> None:
        if not holds:
            self._sim.failures.append(AssertionError(text))


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


async def check_memory(sim: Simulation, controllers: dict[str, list[Controller]]) -> None:
    """In a cluster at rest, caches equal the server, queues are empty, and only existing TrainJobs are remembered."""
    for name, manager in sorted(sim.managers.items()):
        process = sim.processes[name]
        if process.dead or process.ended.is_set() or not manager._lifecycle.synced:
            continue
        _check_cache(sim, name, manager)
        for each in controllers.get(name, ()):
            queue = each.queue
            rests = not queue._ready_count and not queue._working
            assert rests, f"a queue is not empty: {name} {each.name}"
            reconciler = each._reconciler
            if isinstance(reconciler, TrainJobReconciler):
                _check_trackers(sim, name, reconciler)


def _check_cache(sim: Simulation, name: str, manager: ctrl.Manager) -> None:
    degraded = manager.cache.remarks()
    assert not degraded, f"readiness reports a problem in a sound cluster: {name}: {degraded}"
    for (gvk, _), engine in manager.cache._engines.items():
        assert engine.has_synced, f"a cache did not sync: {name} {gvk.kind}"
        table = next(each for each in sim.server.tables.values() if each.facts.gvk == gvk)
        stored = {key: row.document["metadata"]["resourceVersion"] for key, row in table.rows.items()}
        seen = {}
        for key in engine.store.observed_keys():
            entry = engine.store.observed(key)
            seen[key] = entry.resource_version if entry is not None else ""
        if not (engine.selection.labels or engine.selection.fields or engine.selection.namespaces):
            assert seen == stored, f"a cache differs from the server: {name} {gvk.kind}"
        assert not engine.store._writes, f"a cache remembers a write that it has seen: {name} {gvk.kind}"


def _check_trackers(sim: Simulation, name: str, reconciler: TrainJobReconciler) -> None:
    children = reconciler._children
    unfinished = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in sim.server.objects(TrainJob)
        if not (is_true(each, "Complete") or is_true(each, "Failed"))
    }
    for held in (children._applier._settled, children._terminating, children._rebuilt):
        left = set(held) - unfinished
        assert not left, f"TrainJobs are remembered too long: {name} {sorted(left)}"
