# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments and results of a FakeClient: recorded calls, and objects as documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict, TypeVar, cast

import msgspec

from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import GVK, NamespacedName
from controller_runtime.apis.machinery.object import Object

from . import options as opts
from .bodies import decode, is_metadata
from .tables import Document

T = TypeVar("T", bound=Object)

DEFAULT_OWNER: Final = "fake-client"


@dataclass(frozen=True, slots=True)
class Call:
    """A recorded call; rejected calls are recorded, too."""

    verb: str
    kind: GVK
    key: NamespacedName
    body: JSON = None
    subresource: str = ""
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_write(self) -> bool:
        """True if the call can change objects."""
        return self.verb not in ("get", "list")


class Write(TypedDict):
    """The field manager of a write, and True for a dry run."""

    manager: str
    dry_run: bool


def document_of(obj: Object) -> Document:
    """Return the stored form of ``obj``."""
    # Through JSON, so that the document shares no value with the caller's object.
    document = cast("Document", msgspec.json.decode(obj.to_json()))
    document.setdefault("metadata", {}).pop("managedFields", None)
    return document


def object_of(kind: type[T], document: Document) -> T:
    """Return a copy of ``document`` as a ``kind``."""
    if is_metadata(kind):
        document = {"metadata": document["metadata"]}
    return decode(kind, msgspec.json.encode(document))


def no_field_owner() -> errors.InvalidError:
    """Return the error of an apply without a field owner."""
    text = "Required value: is required for apply patch"
    cause = {"reason": "FieldValueRequired", "message": text, "field": "fieldManager"}
    return errors.InvalidError(
        f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {text}',
        code=422,
        reason="Invalid",
        details={"causes": [cause]},
    )


def given(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that are set to a true value."""
    return {name: value for name, value in options.items() if value}


def write_of(options: opts.WriteOptions) -> Write:
    """Return the options of a write for :class:`.memory.Memory`."""
    owner = options.get("field_owner") or DEFAULT_OWNER
    return {"manager": owner, "dry_run": options.get("dry_run", False)}
