# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The history of specs. Rules compare the manager's writes with the specs that it may have read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from controller_runtime.simtest import Event, Simulation

Document = dict[str, Any]
_KINDS = frozenset({"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"})


class Version(NamedTuple):
    """A state of an object."""

    since: float
    document: Document


class SpecHistory:
    """All states of TrainJobs by uid, and all states of runtimes by kind, namespace and name."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._states: dict[tuple[str, str], list[Version]] = {}

    def see(self, event: Event) -> None:
        """Record the state if the spec has changed."""
        kind = event.table.properties.gvk.kind
        if kind not in _KINDS or event.type == "DELETED":
            return
        states = self._states.setdefault(_place(kind, event.document), [])
        if not states or states[-1].document["spec"] != event.document["spec"]:
            states.append(Version(self._sim.loop.time(), event.document))

    def train_job(self, uid: str, *, within: float | None = None) -> Iterator[Document]:
        """Yield the states of a TrainJob, newest first.

        With ``within``, only states that were current at some time in the last ``within`` seconds are yielded.
        """
        yield from self._current(("TrainJob", uid), within)

    def runtime(self, job: Document, *, within: float | None = None) -> Iterator[Document]:
        """Yield the states of the runtime of a TrainJob as :meth:`train_job` does."""
        yield from self._current(runtime_of(job), within)

    def age(self, uid: str) -> float:
        """Return for how long a TrainJob has existed, in seconds."""
        states = self._states.get(("TrainJob", uid))
        return self._sim.loop.time() - states[0].since if states else 0.0

    def _current(self, place: tuple[str, str], within: float | None) -> Iterator[Document]:
        until = self._sim.loop.time()
        for state in reversed(self._states.get(place, [])):
            if within is not None and until < self._sim.loop.time() - within:
                return
            yield state.document
            until = state.since


def _place(kind: str, document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return kind, metadata[
        "uid"
    ] if kind == "TrainJob" else f"{metadata.get('namespace', '')}/{metadata['name']}"


def runtime_of(job: Document) -> tuple[str, str]:
    """Return the kind of the runtime of a TrainJob, and its namespace and name."""
    reference = job["spec"]["runtimeRef"]
    namespace = job["metadata"]["namespace"] if reference["kind"] == "TrainingRuntime" else ""
    return reference["kind"], f"{namespace}/{reference['name']}"


def place_of(kind: str, runtime: Document) -> tuple[str, str]:
    """Return the kind of a runtime, and its namespace and name."""
    return _place(kind, runtime)
