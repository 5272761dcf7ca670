# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The effect of a DELETE on one object, as in an API server: grace period, finalizers, propagation, preconditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.time import format_time

from .options import CollectionDeleteOptions
from .tables import Document, Table

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_OF: Final = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": None}
_GRACE: Final = 30


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a delete."""

    propagation: str | None = None
    grace_period_seconds: int | None = None
    preconditions: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False

    @classmethod
    def of(cls, options: CollectionDeleteOptions, preconditions: Mapping[str, str] | None = None) -> Options:
        """Return the options of a client's call."""
        return cls(
            options.get("propagation"),
            options.get("grace_period_seconds"),
            preconditions or {},
            options.get("dry_run", False),
        )

    @classmethod
    def of_eviction(cls, eviction: Document, *, dry_run: bool) -> Options:
        """Return the options of the delete that an Eviction requests."""
        requested = eviction.get("deleteOptions") or {}
        return cls(
            requested.get("propagationPolicy"),
            requested.get("gracePeriodSeconds"),
            requested.get("preconditions") or {},
            dry_run,
        )


def check_preconditions(table: Table, document: Document, preconditions: Mapping[str, str]) -> None:
    """Raise ConflictError if the object does not meet the preconditions."""
    metadata = document["metadata"]
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    if (wanted := preconditions.get("uid")) is not None and wanted != uid:
        raise table.conflict(
            metadata["name"],
            f"the UID in the precondition ({wanted}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
            by_kind=True,
        )
    if (wanted := preconditions.get("resourceVersion")) is not None and wanted != version:
        raise table.conflict(
            metadata["name"],
            f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record "
            f"({version}). The object might have been modified",
            by_kind=True,
        )


def marked(table: Table, document: Document, options: Options, now: datetime) -> Document | None:
    """Return the object marked for deletion, or None if it is removed at once.

    An object that does not change is returned itself.
    """
    metadata: dict[str, JSON] = dict(document["metadata"])
    finalizers = _finalizers(table, metadata, options.propagation)
    grace = _grace(table, document, options.grace_period_seconds)
    if not finalizers and not grace:
        return None
    waiting = metadata.get("deletionTimestamp")
    before = metadata.get("deletionGracePeriodSeconds") or 0
    if not waiting or grace < before:
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    if not waiting and "generation" in metadata:
        metadata["generation"] += 1
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    return document if metadata == document["metadata"] else {**document, "metadata": metadata}


def is_due(metadata: Mapping[str, JSON]) -> bool:
    """Return True if the object is marked for deletion and has no finalizers and no grace period."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def _finalizers(table: Table, metadata: Mapping[str, JSON], propagation: str | None) -> list[str]:
    present = list(metadata.get("finalizers") or ())
    if propagation is not None:
        wanted = _OF[propagation]
    elif ORPHAN in present or FOREGROUND in present:
        wanted = ORPHAN if ORPHAN in present else FOREGROUND
    else:
        wanted = ORPHAN if table.facts.orphans else None
    if wanted in present:
        return [each for each in present if each not in (ORPHAN, FOREGROUND) or each == wanted]
    return [each for each in present if each not in (ORPHAN, FOREGROUND)] + ([wanted] if wanted else [])


def _grace(table: Table, document: Document, given: int | None) -> int:
    """Return the grace period: zero except for pods that are bound to a node and have not ended."""
    if table.facts.gvk[::2] != ("", "Pod"):
        return 0
    metadata, spec = document["metadata"], document.get("spec") or {}
    if metadata.get("deletionTimestamp"):
        before: int = metadata.get("deletionGracePeriodSeconds") or 0
        return before if given is None else min(given, before)
    if not spec.get("nodeName") or (document.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    period: int = spec.get("terminationGracePeriodSeconds", _GRACE) if given is None else given
    return max(period, 0)
