# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Protects fields of a TrainJob from clients that do not know these fields and replace the whole TrainJob.

A typed client of one API generation knows neither the fields of the other generation nor the fields that no release of
Trainer has. When it sends the whole object (PUT), it therefore drops all of these fields. Dropped fields are put back,
with a warning. Two kinds of clients know the fields and may remove them: kubectl, and a client that removes only some
of the fields of a generation.

A client may also remove fields that it owns and, in ``runtimePatches``, the entries that it owns. However, if the
request suspends a TrainJob with active jobs, even these fields are put back: the fields cannot change before the jobs
have ended, so the suspension would be refused. Few reviews say whether a request is a PUT or a patch, so the decision
depends on the fields and their owners.

If a request only removes fields and names no field manager, the review does not show which client sent it: an owner
that removes its fields, or a typed client that repeats a PUT. If only one client may have sent such a request, that
client is assumed. Otherwise the fields are put back.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.apis.meta.v1 import ManagedFieldsEntry as Entry
from controller_runtime.machinery import JSON

from pkg.apis.trainer.v1alpha1 import PodSpecPatch, RuntimePatch, TrainJob
from pkg.util import generations

OVERRIDES: Final = "podTemplateOverrides"
_FIRST: Final = {
    OVERRIDES: "pod_template_overrides",
    "labels": "labels",
    "annotations": "annotations",
}
_SECOND: Final = {"runtimePatches": "runtime_patches", "activeDeadlineSeconds": "active_deadline_seconds"}
"""The spec's fields that only one API generation has, with the names of their attributes."""
_OWN: Final = {"ttlSecondsAfterFinished": "ttl_seconds_after_finished"}
"""The spec's fields that no release of Trainer has, so typed clients of both generations drop them."""

_EMPTY: Final[tuple[object, ...]] = (None, [], {})
_GRACE: Final = "terminationGracePeriodSeconds"
_UNTYPED: Final = "kubectl"
"""The beginning of kubectl's manager names.

kubectl sends the fields of the user's file, so a missing field was removed on purpose. The owners of the fields cannot
decide this: for example, ``kubectl edit`` may remove a field that ``kubectl apply`` owns under another manager name.
"""


class Dropped(NamedTuple):
    """A field that a client dropped: its JSON name, and the manager and job of the runtime patch that contains it.

    If ``manager`` is empty, the field belongs to the spec itself. If only ``job`` is empty, the manager's whole entry
    in ``runtimePatches`` was dropped.
    """

    field: str
    manager: str = ""
    job: str = ""

    def __str__(self) -> str:
        if not self.manager:
            return f"spec.{self.field}"
        if not self.job:
            return f"spec.{self.field} of {self.manager}"
        return f"spec.runtimePatches: {self.field} of {self.manager} for job {self.job}"

    @property
    def owned(self) -> tuple[str, ...]:
        """The path below the spec in managed fields. For a field of a runtime patch, it is the path of the patch."""
        if not self.manager:
            return (f"f:{self.field}",)
        key = json.dumps({"manager": self.manager}, separators=(",", ":"), ensure_ascii=False)
        return "f:runtimePatches", f"k:{key}"


def dropped(request: AdmissionRequest, old: TrainJob, new: TrainJob) -> list[Dropped]:
    """Return the fields that a client dropped and that must be put back.

    If the TrainJob has no managed fields, no fields are returned.
    """
    first, rest = _fields(old, new, _FIRST), [*_fields(old, new, _SECOND), *_grace_periods(old, new)]
    own = _fields(old, new, _OWN)
    if not (first or rest or own) or not old.metadata.managed_fields or _is_patch(request):
        return []
    writers = _writers(request, old, new)
    if any(writer.startswith(_UNTYPED) for writer in writers):
        return []
    own = [field for field in own if not _owned_by(old, field, writers)]
    if new.spec.suspend and has_active_jobs(old):
        return [*first, *rest, *own]
    placements = [generations.is_placement(each) for each in old.spec.pod_template_overrides or ()]
    if first == [Dropped(OVERRIDES)] and all(placements) and old.spec.suspend and new.spec.suspend:
        first = []  # after an eviction, Kueue up to v0.16 removes its placement
    # Kueue owns all overrides once it has added a placement, but only newer releases drop those of the user.
    unknown = any(placements) or any(not _owned_by(old, each, writers) for each in first)
    kept = [*(first if unknown else ()), *(kept for each in rest for kept in _not_owned(old, each, writers))]
    return [*kept, *own]


def has_active_jobs(train_job: TrainJob) -> bool:
    """Return True if the status of a TrainJob reports active jobs."""
    return any(job.active for job in train_job.status.jobs_status or ())


def _not_owned(old: TrainJob, field: Dropped, writers: set[str]) -> Iterator[Dropped]:
    """Yield ``field`` if none of the writers owns it.

    If a writer owns a part of ``runtimePatches``, yield the entries that other managers own and no writer owns.
    """
    if not _owned_by(old, field, writers):
        yield field
    elif field == Dropped("runtimePatches"):
        owners = {entry.manager or "" for entry in _entries(old).values()}
        for patch in old.spec.runtime_patches or []:
            entry = Dropped(field.field, patch.manager)
            if _owned_by(old, entry, owners - writers) and not _owned_by(old, entry, writers):
                yield entry


def put_back(old: TrainJob, new: TrainJob, fields: list[Dropped]) -> list[str]:
    """Copy dropped fields and their ownership from ``old`` to ``new``, and return the warnings."""
    for each in fields:
        if each.manager and not each.job:
            found = [patch for patch in old.spec.runtime_patches or [] if patch.manager == each.manager]
            new.spec.runtime_patches = [*(new.spec.runtime_patches or []), *copy.deepcopy(found)]
        elif each.manager:
            pods = _pods(new)
            pods[each.manager, each.job].termination_grace_period_seconds = _pods(old)[
                each.manager, each.job
            ].termination_grace_period_seconds
        else:
            name = {**_FIRST, **_SECOND, **_OWN}[each.field]
            setattr(new.spec, name, copy.deepcopy(getattr(old.spec, name)))
        _restore_owners(old, new, each.owned)
    return [
        f"{each}: kept, because the client replaced the TrainJob without knowing this field; "
        "remove it with kubectl, or name its owner as the field manager of the request"
        for each in fields
    ]


def _is_patch(request: AdmissionRequest) -> bool:
    """Return True if the review says that the request is a patch. Reviews of Kubernetes up to 1.36 do not say so."""
    return isinstance(request.options, dict) and request.options.get("kind") == "PatchOptions"


def _fields(old: TrainJob, new: TrainJob, generation: Mapping[str, str]) -> list[Dropped]:
    """If the client dropped all fields of a generation that were set, return these fields; otherwise an empty list."""
    held = [wire for wire, name in generation.items() if getattr(old.spec, name) not in _EMPTY]
    known = any(getattr(new.spec, generation[wire]) is not None for wire in held)
    return [] if known else [Dropped(wire) for wire in held]


def _grace_periods(old: TrainJob, new: TrainJob) -> Iterator[Dropped]:
    """Yield the grace periods that are missing: clients of v2.2 know all fields of a runtime patch except these."""
    kept = _pods(new)
    for place, pod in _pods(old).items():
        same = kept.get(place)
        if pod.termination_grace_period_seconds is None or same is None:
            continue
        if same.termination_grace_period_seconds is None:
            yield Dropped(_GRACE, *place)


def _pods(train_job: TrainJob) -> dict[tuple[str, str], PodSpecPatch]:
    """Return the patches of pod specs by manager and job."""
    patches: list[RuntimePatch] = train_job.spec.runtime_patches or []
    return {(patch.manager, job): pod for patch in patches for job, pod in generations.pod_patches(patch)}


def _writers(request: AdmissionRequest, old: TrainJob, new: TrainJob) -> set[str]:
    """Return the possible names of the client: its field manager, or the managers of the entries that the client wrote.

    The client wrote an entry of the managed fields if the entry's time has changed or if the entry has gained fields.
    The time alone is not enough, because it has only whole seconds. Entries that the client did not write can only lose
    fields.

    If the client wrote no entry, its request only removes fields. Then return the only client that may have written the
    TrainJob without naming its field manager, or an empty set if there are several. kubectl and clients of server-side
    apply always name their field manager.
    """
    options = request.options
    if isinstance(options, dict) and (name := options.get("fieldManager")):
        return {str(name)}
    before = _entries(old)
    written = {
        entry.manager or ""
        for identity, entry in _entries(new).items()
        if not entry.subresource and _is_written(before.get(identity), entry)
    }
    unnamed = {
        entry.manager or ""
        for entry in before.values()
        if entry.operation == "Update" and not entry.subresource
    }
    unnamed = {name for name in unnamed if not name.startswith(_UNTYPED)}
    return written or (unnamed if len(unnamed) == 1 else set())


def _is_written(before: Entry | None, entry: Entry) -> bool:
    """Return True if a request created an entry, changed its time or added fields to it."""
    return before is None or before.time != entry.time or not _contains(before.fields_v1, entry.fields_v1)


def _contains(fields: JSON, others: JSON) -> bool:
    """Return True if ``fields`` contains all of ``others``; both are sets of managed fields."""
    if not isinstance(others, dict):
        return True
    return isinstance(fields, dict) and all(
        name in fields and _contains(fields[name], below) for name, below in others.items()
    )


def _owned_by(train_job: TrainJob, field: Dropped, managers: set[str]) -> bool:
    """Return True if one of these field managers owns the field, or a part of it."""
    return any(
        entry.manager in managers and _owned(entry, field.owned) is not None
        for entry in _entries(train_job).values()
    )


def _owned(entry: Entry, path: tuple[str, ...]) -> JSON:
    """Return the part of an entry below a path in the spec, or None if the entry does not own the path."""
    found = entry.fields_v1
    for step in ("f:spec", *path):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _restore_owners(old: TrainJob, new: TrainJob, path: tuple[str, ...]) -> None:
    """Restore the ownership of a field, which the server removed before admission because the field was missing."""
    entries = _entries(new)
    for identity, entry in _entries(old).items():
        if (held := _owned(entry, path)) is not None:
            current = entries.setdefault(identity, entry.model_copy(update={"fields_v1": None}))
            current.fields_v1 = _with(current.fields_v1, ("f:spec", *path), held)
    new.metadata.managed_fields = list(entries.values()) or None


def _with(fields: JSON, path: tuple[str, ...], held: JSON) -> JSON:
    """Return ``fields`` with ``held`` inserted at ``path``."""
    if not path:
        return held
    below = fields if isinstance(fields, dict) else {}
    return {**below, path[0]: _with(below.get(path[0]), path[1:], held)}


def _entries(train_job: TrainJob) -> dict[tuple[str | None, ...], Entry]:
    """Return the entries of the managed fields, by the key with which the API server identifies an entry."""
    return {
        (entry.manager, entry.operation, entry.api_version, entry.subresource): entry
        for entry in train_job.metadata.managed_fields or ()
    }
