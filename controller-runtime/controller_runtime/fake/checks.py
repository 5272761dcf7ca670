# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The checks that an API server makes on each write: names, metadata, versions, UIDs, conflicts between managers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import JSON, errors, field, names, structural

from . import ownership
from .tables import Document, FieldManager, Table, key_of

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_PLAIN_FINALIZERS: Final = frozenset({ORPHAN, FOREGROUND, "kubernetes"})
_METADATA: Final = field.Path("metadata")
_NAMES: Final = {"Namespace": names.is_dns1123_label, "Service": names.is_dns1035_label}


def check_name(table: Table, document: Document) -> None:
    """Raise InvalidError if a new object's name is not valid for the kind."""
    properties, name = table.properties, document["metadata"]["name"]
    if properties.gvk.group == "rbac.authorization.k8s.io":
        return
    check = (
        names.is_dns1123_subdomain
        if properties.custom
        else _NAMES.get(properties.gvk.kind, names.is_dns1123_subdomain)
    )
    wrong = field.ErrorList(field.invalid(_METADATA.child("name"), name, text) for text in check(name))
    if aggregate := wrong.to_aggregate():
        raise errors.new_invalid(properties.gvk, name, aggregate)


def check_metadata(table: Table, document: Document) -> None:
    """Raise InvalidError for invalid labels, annotations, owner references and finalizers."""
    metadata = document["metadata"]
    if aggregate := field.ErrorList(_problems(metadata, custom=table.properties.custom)).to_aggregate():
        raise errors.new_invalid(table.properties.gvk, metadata.get("name", ""), aggregate)


def _problems(metadata: Document, *, custom: bool) -> Iterator[field.FieldError]:
    """Yield the problems in the order in which an API server reports them."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    path = _METADATA.child("labels")
    for key, value in labels.items():
        yield from (field.invalid(path, key, text) for text in names.is_label_key(key))
        yield from (field.invalid(path, value, text) for text in names.is_label_value(value))
    path = _METADATA.child("annotations")
    for key in annotations:
        # The keys of annotations are validated in lower case.
        yield from (field.invalid(path, key, text) for text in names.is_label_key(key.lower()))
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > names.ANNOTATIONS_MAX_SIZE:
        yield field.too_long(path, names.ANNOTATIONS_MAX_SIZE)
    owners = [OwnerReference.from_dict(reference) for reference in metadata.get("ownerReferences") or ()]
    yield from _problems_of_owners(_METADATA.child("ownerReferences"), owners)
    path, finalizers = _METADATA.child("finalizers"), metadata.get("finalizers") or ()
    for finalizer in finalizers:
        yield from (field.invalid(path, finalizer, text) for text in names.is_label_key(finalizer))
    if {ORPHAN, FOREGROUND} <= set(finalizers):
        text = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        yield field.invalid(path, list(finalizers), text)
    for index, finalizer in enumerate(() if custom else finalizers):
        if "/" not in finalizer and finalizer not in _PLAIN_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield field.invalid(path.index(index), finalizer, text)


def _problems_of_owners(path: field.Path, owners: list[OwnerReference]) -> Iterator[field.FieldError]:
    controller = ""
    for owner in owners:
        group, _, version = owner.api_version.rpartition("/")
        if not version or "/" in group:
            yield field.invalid(path.child("apiVersion"), owner.api_version, "version must not be empty")
        for name, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                yield field.invalid(path.child(name), value, "must not be empty")
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            yield field.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.controller:
            named = f"{owner.kind}/{owner.name}"
            if controller:
                text = 'Only one reference can have Controller set to true. Found "true" in references for'
                yield field.invalid(path, owners, f"{text} {controller} and {named}")
            controller = controller or named


_REASONS: Final = {
    "Required value": "FieldValueRequired",
    "Unsupported value": "FieldValueNotSupported",
    "Duplicate value": "FieldValueDuplicate",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}
_UNCHECKED_RULES: Final = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_MISSING: Final = object()


def check_schema(
    table: Table, schema: structural.Schema | None, document: Document, live: Document | None = None
) -> None:
    """Raise InvalidError if an object does not match the schema of its CustomResourceDefinition.

    As on a server, a wrong value that ``live`` has, too, is not an error.
    """
    if schema is None:
        return
    problems = [
        problem
        for problem in _problems_of_schema(
            schema, document, separately="status" if table.properties.status else ""
        )
        if live is None or not _is_unchanged(problem, document, live)
    ]
    if not problems:
        return
    if any(problem.grave for problem in problems) and _has_rules(schema):
        problems.append(structural.Problem(None, _UNCHECKED_RULES))
    causes = [
        {
            "reason": "FieldValueTypeInvalid"
            if " must be of type " in problem.text
            else _REASONS.get(problem.text.partition(":")[0], "FieldValueInvalid"),
            "message": problem.text,
            "field": structural.render(problem.path) if problem.path else "<nil>",
        }
        for problem in problems
    ]
    gvk, name = table.properties.gvk, document["metadata"].get("name", "")
    texts = ", ".join(map(str, problems))
    raise errors.InvalidError(
        f'{gvk.group_kind} "{name}" is invalid: {texts if len(problems) == 1 else f"[{texts}]"}',
        code=422,
        reason="Invalid",
        details={"name": name, "group": gvk.group, "kind": gvk.kind, "causes": causes},
    )


def _problems_of_schema(
    schema: structural.Schema, document: Document, *, separately: str
) -> Iterator[structural.Problem]:
    """Yield the problems of an object. Those of a part that is written ``separately`` quote the path in that part."""
    properties = schema.get("properties") or {}
    rest = {k: v for k, v in properties.items() if k not in ("metadata", separately)}
    yield from structural.problems({**schema, "properties": rest}, document)
    if separately in document and separately in properties:
        for problem in structural.problems(properties[separately], document[separately]):
            path = None if problem.path is None else (separately, *problem.path)
            yield structural.Problem(path, problem.text, problem.grave, at=(separately, *problem.at))


def _has_rules(schema: JSON) -> bool:
    if isinstance(schema, list):
        return any(map(_has_rules, schema))
    return isinstance(schema, dict) and (
        bool(schema.get("x-kubernetes-validations")) or any(map(_has_rules, schema.values()))
    )


def _is_unchanged(problem: structural.Problem, document: Document, live: Document) -> bool:
    path = problem.at if problem.path is None else problem.path
    if problem.text == "Required value":
        path = path[:-1]
    return _at(document, path) == _at(live, path)


def _at(value: Any, path: structural.Path) -> object:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return _MISSING
    return value


def check_version(table: Table, document: Document, live: Document) -> None:
    """Raise ConflictError if a write has a resourceVersion that is not the newest; ServerError if it is malformed."""
    given = document["metadata"].get("resourceVersion")
    if not given or given == live["metadata"].get("resourceVersion"):
        return
    if not given.isdigit():
        raise errors.ServerError(f'strconv.ParseUint: parsing "{given}": invalid syntax')
    text = "the object has been modified; please apply your changes to the latest version and try again"
    raise table.conflict(live["metadata"]["name"], text)


def check_uid(table: Table, document: Document, live: Document) -> None:
    """Raise InvalidError if a patch has the UID of another object."""
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
            listed = ", ".join(msgspec.json.encode(finalizer).decode() for finalizer in sorted(added))
            raise table.invalid(
                key_of(old).name,
                "metadata.finalizers",
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
                reason="FieldValueForbidden",
            )


def apply_conflict(disputed: Mapping[FieldManager, ownership.FieldSet], version: str) -> errors.ConflictError:
    """Return the error of an apply without ``force``. It lists each conflicting field and the manager that owns it."""
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


def _described(who: FieldManager, version: str) -> str:
    text = f'"{who.name}"'
    if who.subresource:
        text += f' with subresource "{who.subresource}"'
    return f"{text} using {version}" if who.operation == "Update" else text


def _by_manager(causes: list[dict[str, str]]) -> Iterator[str]:
    for message, group in itertools.groupby(causes, key=lambda cause: cause["message"]):
        yield message.replace("conflict with", "conflicts with", 1) + ":"
        yield from (f"- {cause['field']}" for cause in group)


def check_preconditions(table: Table, document: Document, preconditions: Mapping[str, str]) -> None:
    """Raise ConflictError if the object's UID or resourceVersion differs from the preconditions of a delete."""
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


def check_manager(field_manager: str) -> None:
    """Raise InvalidError if an apply has no field manager."""
    if field_manager:
        return
    text = "Required value: is required for apply patch"
    cause = {"reason": "FieldValueRequired", "message": text, "field": "fieldManager"}
    raise errors.InvalidError(
        f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {text}',
        code=422,
        reason="Invalid",
        details={"causes": [cause]},
    )
