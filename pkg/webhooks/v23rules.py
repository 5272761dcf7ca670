# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules by which Trainer v2.3 refuses values of TrainJobs and runtimes that v2.1 admits, and those of v2.4.

The installed CRD has the rules of v2.1. Only values that a request changes are checked. The API server does the same
with rules that are added to a CRD later. A refusal has the text that the API server would give with v2.3's CRD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from controller_runtime.machinery import Object, equality, field
from controller_runtime.machinery.errors import new_invalid

from pkg.apis.trainer.v1alpha1 import (
    DatasetInitializer,
    ModelInitializer,
    Trainer,
    TrainingRuntimeSpec,
    TrainJob,
)
from pkg.util import generations

from .putguard import has_active_jobs

_SPEC: Final = field.Path("spec")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")
_LONGEST_NAME: Final = 253
_LONGEST_URI: Final = 2048
_LONGEST_IMAGE: Final = 500
_LONGEST_ARGUMENT: Final = 1 << 20
_MOST_ITEMS: Final = 128
_LONGEST_MOUNT_PATH: Final = 4096
REFUSED_LATER: Final = "{}; Trainer v2.3 refuses this"
_IMMUTABLE: Final = "field is immutable"
_ONLY_AT_REST: Final = (
    "field is immutable, except numNodes while the TrainJob is suspended and none of its Jobs is active"
)
UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
"""The API server's remark when it does not check the CEL rules of a CRD."""


def refuse(obj: Object, errors: Iterable[field.FieldError]) -> None:
    """Raise ``errors`` if there are any.

    Errors of the type Invalid come from CEL rules. The API server does not check CEL rules if it finds other errors, so
    errors of this type are raised only if there are no other errors.

    Raises:
        InvalidError: there are errors; the InvalidError has a cause for each of them.
    """
    found = field.ErrorList(errors)
    others = field.ErrorList(each for each in found if each.type is not field.ErrorType.INVALID)
    if others:
        found = others
        found.append(field.FieldError(field.ErrorType.INVALID, "<nil>", None, UNCHECKED))
    if (aggregate := found.to_aggregate()) is not None:
        raise new_invalid(obj.gvk, obj.name, aggregate)


def violations(old: TrainJob | None, new: TrainJob, *, resizes: bool = False) -> Iterator[field.FieldError]:
    """Yield an error for each changed value that v2.3 refuses and v2.1 admits.

    With ``resizes``, the number of nodes may change while the TrainJob is suspended and none of its Jobs is active.
    """
    if old is None:
        ref, path = new.spec.runtime_ref, _SPEC.child("runtimeRef")
        for wire, name in (("name", ref.name), ("apiGroup", ref.api_group), ("kind", ref.kind)):
            if name is not None and len(name) > _LONGEST_NAME:
                yield field.too_long(path.child(wire), _LONGEST_NAME)
    else:
        yield from _immutable(old, new, resizes=resizes)
    stored = old.spec if old is not None else None
    if new.spec.trainer is not None:
        yield from _trainer(stored.trainer if stored is not None else None, new.spec.trainer)
    before = stored.initializer if stored is not None else None
    for wire in ("dataset", "model"):
        if (wanted := getattr(new.spec.initializer, wire, None)) is not None:
            yield from _initializer(_SPEC.child("initializer", wire), getattr(before, wire, None), wanted)


def runtime_violations(
    old: TrainingRuntimeSpec | None, new: TrainingRuntimeSpec
) -> Iterator[field.FieldError]:
    """Yield an error for each changed value of a runtime that v2.3 refuses and v2.1 admits."""
    before, after = (_mount_path(spec) if spec is not None else "" for spec in (old, new))
    if len(after) > _LONGEST_MOUNT_PATH and after != before:
        yield field.too_long(_SPEC.child("mlPolicy", "mpi", "sshAuthMountPath"), _LONGEST_MOUNT_PATH)


def low_numbers(old: TrainJob | None, new: TrainJob) -> Iterator[field.FieldError]:
    """Yield an error for each changed number of nodes or processes that v2.4 refuses."""
    trainer, path = new.spec.trainer, _SPEC.child("trainer")
    if trainer is None:
        return
    before = (old.spec.trainer if old is not None else None) or Trainer()
    nodes, processes = trainer.num_nodes, trainer.num_proc_per_node
    if nodes is not None and nodes < 0 and nodes != before.num_nodes:
        where = path.child("numNodes")
        yield field.invalid(where, nodes, f"{where} in body should be greater than or equal to 0")
    if isinstance(processes, int) and processes < 1 and processes != before.num_proc_per_node:
        detail = "numProcPerNode must be greater than or equal to 1"
        yield field.invalid(path.child("numProcPerNode"), processes, detail)


def low_runtime_numbers(
    old: TrainingRuntimeSpec | None, new: TrainingRuntimeSpec
) -> Iterator[field.FieldError]:
    """Yield an error for a changed number of processes of MPI that v2.4 refuses."""
    before, after = (
        spec.ml_policy.mpi.num_proc_per_node
        if spec is not None and spec.ml_policy is not None and spec.ml_policy.mpi is not None
        else None
        for spec in (old, new)
    )
    if after is not None and after < 1 and after != before:
        path = _SPEC.child("mlPolicy", "mpi", "numProcPerNode")
        yield field.invalid(path, after, "NumProcPerNode in mpiPolicy must be >= 1")


def _mount_path(spec: TrainingRuntimeSpec) -> str:
    mpi = spec.ml_policy.mpi if spec.ml_policy is not None else None
    return (mpi.ssh_auth_mount_path if mpi is not None else None) or ""


def _immutable(old: TrainJob, new: TrainJob, *, resizes: bool) -> Iterator[field.FieldError]:
    """Yield an error if the trainer or the initializer was changed. Each may be added or removed as a whole."""
    before, after = generations.effective(old), generations.effective(new)
    at_rest = old.spec.suspend and new.spec.suspend and not has_active_jobs(old)
    for wire in ("initializer", "trainer"):
        left, right = getattr(before, wire), getattr(after, wire)
        if left is None or right is None or equality.deep_equal(left, right):
            continue
        detail = _IMMUTABLE
        if resizes and wire == "trainer":
            if at_rest and equality.deep_equal(left.model_copy(update={"num_nodes": right.num_nodes}), right):
                continue
            detail = _ONLY_AT_REST
        yield field.invalid(_SPEC.child(wire), field.OMITTED, detail)


def _trainer(old: Trainer | None, new: Trainer) -> Iterator[field.FieldError]:
    path = _SPEC.child("trainer")
    if new.image is not None and len(new.image) > _LONGEST_IMAGE and (old is None or old.image != new.image):
        yield field.too_long(path.child("image"), _LONGEST_IMAGE)
    for wire in ("command", "args", "env"):
        before, after = getattr(old, wire, None), getattr(new, wire)
        if after is None or equality.deep_equal(before, after):
            continue
        if len(after) > _MOST_ITEMS:
            yield field.too_many(path.child(wire), len(after), _MOST_ITEMS)
        if wire != "env":
            for index, text in enumerate(after):
                if len(text) > _LONGEST_ARGUMENT:
                    yield field.too_long(path.child(wire).index(index), _LONGEST_ARGUMENT)


def _initializer(
    path: field.Path,
    old: DatasetInitializer | ModelInitializer | None,
    new: DatasetInitializer | ModelInitializer,
) -> Iterator[field.FieldError]:
    uri = new.storage_uri
    if uri and (old is None or old.storage_uri != uri):
        if len(uri) > _LONGEST_URI:
            yield field.too_long(path.child("storageUri"), _LONGEST_URI)
        elif not _URI.fullmatch(uri):
            detail = "storageUri may be empty, or it must be a valid URI (scheme://...)"
            yield field.invalid(path.child("storageUri"), uri, detail)
    before = old.env if old is not None else None
    if new.env is not None and len(new.env) > _MOST_ITEMS and not equality.deep_equal(before, new.env):
        yield field.too_many(path.child("env"), len(new.env), _MOST_ITEMS)
