# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of an API server on writes of any kind: versions, uids, finalizers, field conflicts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from controller_runtime.apis.machinery import errors, names

from . import deletion, ownership
from .tables import Document, Manager, Table, key_of

_PLAIN_FINALIZERS: Final = frozenset({deletion.ORPHAN, deletion.FOREGROUND, "kubernetes"})
_NAMES: Final = {"Namespace": names.is_dns1123_label, "Service": names.is_dns1035_label}


def check_name(table: Table, document: Document) -> None:
    """Raise InvalidError if a new object's name is not valid for the kind."""
    facts, name = table.facts, document["metadata"]["name"]
    if facts.gvk.group == "rbac.authorization.k8s.io":
        return
    check = (
        names.is_dns1123_subdomain if facts.custom else _NAMES.get(facts.gvk.kind, names.is_dns1123_subdomain)
    )
    for text in check(name):
        raise _invalid(table, name, "metadata.name", name, text)


def check_metadata(table: Table, document: Document) -> None:
    """Raise InvalidError for the first invalid label, annotation, finalizer or owner reference."""
    metadata = document["metadata"]
    name = metadata.get("name", "")
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            # Annotation keys are validated in lower case.
            wrong = names.is_qualified_name(key.lower() if field == "annotations" else key)
            if wrong:
                raise _invalid(table, name, f"metadata.{field}", key, wrong[0])
            if field == "labels" and (wrong := names.is_label_value(value)):
                raise _invalid(table, name, "metadata.labels", value, wrong[0])
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        path = f"metadata.finalizers[{index}]"
        if wrong := names.is_qualified_name(finalizer):
            raise _invalid(table, name, path, finalizer, wrong[0])
        if "/" not in finalizer and finalizer not in _PLAIN_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            raise _invalid(table, name, path, finalizer, text)
    for owner in metadata.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                text = "version must not be empty" if field == "apiVersion" else "must not be empty"
                raise _invalid(table, name, f"metadata.ownerReferences.{field}", "", text)


def _invalid(table: Table, name: str, path: str, value: str, text: str) -> errors.StatusError:
    return table.invalid(name, path, f"Invalid value: {msgspec.json.encode(value).decode()}: {text}")


def check_version(table: Table, document: Document, live: Document) -> None:
    """Raise ConflictError if a write has a resourceVersion that is not the newest."""
    given = document["metadata"].get("resourceVersion")
    if not given or given == live["metadata"].get("resourceVersion"):
        return
    if not given.isdigit():
        raise errors.ServerError(f'strconv.ParseUint: parsing "{given}": invalid syntax')
    raise table.modified(live["metadata"]["name"])


def check_uid(table: Table, document: Document, live: Document) -> None:
    """Raise InvalidError if a patch is for another object of the same name."""
    uid = document["metadata"].get("uid")
    if uid and uid != live["metadata"].get("uid", uid):
        text = f'Invalid value: "{uid}": field is immutable'
        raise table.invalid(live["metadata"]["name"], "metadata.uid", text)


def check_deletion(table: Table, document: Document, live: Document) -> None:
    """Raise InvalidError if a write sets or changes the deletionTimestamp."""
    given = document["metadata"].get("deletionTimestamp")
    if given and given != live["metadata"].get("deletionTimestamp"):
        text = f'Invalid value: "{given}": field is immutable'
        raise table.invalid(live["metadata"]["name"], "metadata.deletionTimestamp", text)


def check_finalizers(table: Table, old: Document, new: Document) -> None:
    """Raise InvalidError if an object that is being deleted gets another finalizer."""
    if old["metadata"].get("deletionTimestamp"):
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            listed = ", ".join(msgspec.json.encode(each).decode() for each in sorted(added))
            raise table.invalid(
                key_of(old).name,
                "metadata.finalizers",
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
                reason="FieldValueForbidden",
            )


def apply_conflict(disputed: Mapping[Manager, ownership.FieldSet], version: str) -> errors.ConflictError:
    """Return the error of an unforced apply, which names each conflicting field and its manager."""
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_described(who, version)}",
            "field": at,
        }
        for who, paths in disputed.items()
        for at in sorted(map(ownership.text, paths))
    ]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(_by_manager(causes))
    return errors.ConflictError(message, code=409, reason="Conflict", details={"causes": causes})


def _described(who: Manager, version: str) -> str:
    text = f'"{who.name}"'
    if who.subresource:
        text += f' with subresource "{who.subresource}"'
    return f"{text} using {version}" if who.operation == "Update" else text


def _by_manager(causes: list[dict[str, str]]) -> Iterator[str]:
    for message, group in itertools.groupby(causes, key=lambda cause: cause["message"]):
        yield message.replace("conflict with", "conflicts with", 1) + ":"
        yield from (f"- {cause['field']}" for cause in group)
