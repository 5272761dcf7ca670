# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers for models and rules that look up and examine objects of the simulated server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from controller_runtime.machinery import NamespacedName, errors
from controller_runtime.simtest import LOOP_START, Simulation

from pkg.apis.trainer.v1alpha1 import TrainJob

Document = dict[str, Any]
_CALM: Final = 0.8
"""The fraction of a life after which users and faults do nothing, so that the cluster must come to rest."""
PROPAGATIONS: Final[list[Literal["Background", "Foreground", "Orphan"]]] = [
    "Background",
    "Foreground",
    "Orphan",
]
EXPECTED = (
    errors.AlreadyExistsError,
    errors.ConflictError,
    errors.ForbiddenError,
    errors.InvalidError,
    errors.NotFoundError,
)
"""Errors that users and controllers get when another client was faster, or admission denied their write."""


@contextmanager
def refusals_expected(*unexpected: type[errors.StatusError]) -> Iterator[None]:
    """Ignore the refusals that every client of a cluster must expect, except those in ``unexpected``."""
    try:
        yield
    except unexpected:
        raise
    except EXPECTED:
        return
    except errors.StatusError as error:
        if not any(words in str(error) for words in ("failed calling webhook", "no verdict within")):
            raise


def controller(document: Document) -> Document | None:
    """Return the reference to the controller of an object, or None."""
    references: list[Document] = document["metadata"].get("ownerReferences") or []
    return next((each for each in references if each.get("controller")), None)


def owned(sim: Simulation, kind: Any, owner: Document) -> list[Document]:
    """Return the stored objects of a kind whose controller is ``owner``."""
    return sim.server.controlled(kind, owner["metadata"]["uid"])


def owned_by_name(sim: Simulation, kind: Any, owner: Document) -> list[Document]:
    """Return the objects whose controller has the name of ``owner``: JobSet's controller does not compare uids."""
    namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    return [
        each
        for each in sim.server.objects(kind)
        if each["metadata"]["namespace"] == namespace and (controller(each) or {}).get("name") == name
    ]


def by_uid(sim: Simulation, kind: Any, uid: str) -> Document | None:
    """Return the object with a uid, or None."""
    return sim.server.with_uid(kind, uid)


def by_name(sim: Simulation, kind: Any, document: Document) -> Document | None:
    """Return the object of a kind with the namespace and name of ``document``, or None."""
    metadata = document["metadata"]
    row = sim.server.table(kind).rows.get(NamespacedName(metadata.get("namespace", ""), metadata["name"]))
    return row.document if row is not None else None


def is_deleted(document: Document) -> bool:
    """Return True if an object is being deleted: it waits for its finalizers or grace period."""
    return bool(document["metadata"].get("deletionTimestamp"))


def is_true(document: Document, condition: str) -> bool:
    """Return True if a condition holds."""
    conditions = document.get("status", {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def is_busy(sim: Simulation) -> bool:
    """Return True in the part of a life in which users and faults act."""
    return sim.loop.time() - LOOP_START < sim.minutes * 60.0 * _CALM


def is_overdue(job: Document) -> bool:
    """Return True if a TrainJob has failed because of its deadline."""
    conditions = job.get("status", {}).get("conditions") or []
    reasons = [each["reason"] for each in conditions if each["type"] == "Failed" and each["status"] == "True"]
    return reasons == ["DeadlineExceeded"] and "activeDeadlineSeconds" in job["spec"]


def overdue(sim: Simulation) -> set[str]:
    """Return the uids of the TrainJobs whose deadlines have passed."""
    return {job["metadata"]["uid"] for job in sim.server.objects(TrainJob) if is_overdue(job)}


def is_suspended(document: Document) -> bool:
    """Return True if the spec says that an object is suspended."""
    return bool(document.get("spec", {}).get("suspend"))


def controlled_by(owner: Document, api_version: str, kind: str) -> list[Document]:
    """Return the owner references of an object that ``owner`` controls."""
    metadata = owner["metadata"]
    reference = {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]
