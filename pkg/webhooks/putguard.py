# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Protects a TrainJob's fields from clients that replace it without knowing them.

A typed client of one API generation decodes a TrainJob without the fields of the other, and drops them when it sends
the whole object (PUT). Such fields are put back, with a warning. A patch names the fields that it removes, and a client
that owns a field may remove it in any way.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.apis.machinery.base import JSON

from pkg.apis.trainer.v1alpha1 import TrainJob

Entry = dict[str, JSON]

GUARDED: Final = {
    "podTemplateOverrides": "pod_template_overrides",
    "labels": "labels",
    "annotations": "annotations",
    "runtimePatches": "runtime_patches",
    "activeDeadlineSeconds": "active_deadline_seconds",
}
"""The spec's fields that only one API generation has, by wire name."""

_PUT: Final = "UpdateOptions"
_UNTYPED: Final = "kubectl"
"""kubectl sends the fields of the user's file, so a missing one is meant."""


def dropped(request: AdmissionRequest, old: TrainJob, new: TrainJob) -> list[str]:
    """Return the wire names of the fields that a PUT dropped although its client never owned them."""
    missing = [
        wire for wire, name in GUARDED.items() if getattr(old.spec, name) and getattr(new.spec, name) is None
    ]
    if not missing or not _replaces(request):
        return []
    writers = _writers(request, old, new)
    if any(writer.startswith(_UNTYPED) for writer in writers):
        return []
    return [wire for wire in missing if not any(_owns(old, writer, wire) for writer in writers)]


def put_back(old: TrainJob, new: TrainJob, fields: list[str]) -> list[str]:
    """Copy dropped fields and their ownership from ``old`` to ``new``; return the warnings."""
    warnings = []
    for wire in fields:
        name = GUARDED[wire]
        setattr(new.spec, name, copy.deepcopy(getattr(old.spec, name)))
        _restore_owners(old, new, wire)
        warnings.append(
            f"spec.{wire}: kept, because the client replaced the TrainJob without knowing this field; "
            "remove it with a patch"
        )
    return warnings


def _replaces(request: AdmissionRequest) -> bool:
    """Return True unless the request is known to be a patch."""
    options = request.options
    return not isinstance(options, dict) or options.get("kind", _PUT) == _PUT


def _writers(request: AdmissionRequest, old: TrainJob, new: TrainJob) -> set[str]:
    """Return the possible names of the client: its field manager, else the managers of entries that it changed."""
    options = request.options
    if isinstance(options, dict) and (name := options.get("fieldManager")):
        return {str(name)}
    before = {_identity(entry): entry.get("time") for entry in _entries(old)}
    return {
        str(entry.get("manager"))
        for entry in _entries(new)
        if entry.get("operation") == "Update"
        and not entry.get("subresource")
        and before.get(_identity(entry)) != entry.get("time")
    }


def _owns(train_job: TrainJob, manager: str, wire: str) -> bool:
    return any(
        entry.get("manager") == manager and _owned(entry, wire) is not None for entry in _entries(train_job)
    )


def _owned(entry: Entry, wire: str) -> JSON:
    """Return the part of an entry that is below a field of the spec; None if the entry does not own it."""
    fields = entry.get("fieldsV1")
    spec = fields.get("f:spec") if isinstance(fields, dict) else None
    return spec.get(f"f:{wire}") if isinstance(spec, dict) else None


def _restore_owners(old: TrainJob, new: TrainJob, wire: str) -> None:
    """Give the field back to its owners: the server took it from them before admission."""
    entries = list(_entries(new))
    for entry in _entries(old):
        held = _owned(entry, wire)
        if held is None:
            continue
        current = next((each for each in entries if _identity(each) == _identity(entry)), None)
        if current is None:
            current = {**entry, "fieldsV1": {}}
            entries.append(current)
        fields = current["fieldsV1"] = copy.deepcopy(current.get("fieldsV1") or {})
        fields.setdefault("f:spec", {})[f"f:{wire}"] = copy.deepcopy(held)
    new.metadata.managed_fields = entries or None


def _entries(train_job: TrainJob) -> Iterator[Entry]:
    yield from train_job.metadata.managed_fields or ()


def _identity(entry: Entry) -> tuple[JSON, ...]:
    return tuple(entry.get(name) for name in ("manager", "operation", "apiVersion", "subresource"))
