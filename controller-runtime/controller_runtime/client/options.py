# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the client's verbs, shared by all clients.

Every client takes options as keyword arguments, ``**options: Unpack[ListOptions]``. A type checker reports unknown
options and wrong types. At run time, clients call :func:`check_options`, which raises TypeError for an unknown option.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Literal, TypedDict

from controller_runtime.machinery.labels import LabelSelectorLike as LabelSelectorLike
from controller_runtime.rest.request import LogOptions as LogOptions

Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Ignore", "Warn", "Strict"]


class Selection(TypedDict, total=False):
    """Selects objects of a kind."""

    namespace: str
    """The default is all namespaces."""
    labels: LabelSelectorLike | None
    fields: Mapping[str, str] | None
    """For a cache, names of registered indices and their values; for the server, a field selector."""


class WatchOptions(Selection, total=False):
    """Options of ``watch``."""

    resource_version: str
    """Report only changes after this version, e.g. that of a list. If not given, report existing objects first."""


class ListOptions(Selection, total=False):
    """Options of ``list``."""

    limit: int | None
    """The maximum number of objects; the server returns a ``continue_token`` for the next page."""
    continue_token: str


class CreateOptions(TypedDict, total=False):
    """Options of ``create``."""

    field_owner: str
    """The name under which the written fields are recorded; by default the server derives it from the user agent."""
    dry_run: bool
    """Run admission and validation, and store nothing."""
    field_validation: FieldValidation | None
    """How the server treats unknown and duplicate fields; see :class:`controller_runtime.client.LiveClient`."""


class UpdateOptions(CreateOptions, total=False):
    """Options of ``update``."""


class PatchOptions(CreateOptions, total=False):
    """Options of ``patch``."""

    force: bool
    """Take over fields from other owners; for apply patches only."""


class _FieldOwner(TypedDict):
    field_owner: str


class ApplyOptions(_FieldOwner, total=False):
    """Options of ``apply``, which requires a ``field_owner``."""

    force: bool
    """Take over fields from other owners instead of failing with a ConflictError."""
    dry_run: bool
    field_validation: FieldValidation | None


WriteOptions = CreateOptions | UpdateOptions | PatchOptions | ApplyOptions


class CollectionDeleteOptions(TypedDict, total=False):
    """Options that ``delete`` and ``delete_all_of`` share."""

    propagation: Propagation | None
    """How the server treats dependents; the default depends on the kind."""
    grace_period_seconds: int | None
    dry_run: bool


class DeleteOptions(CollectionDeleteOptions, total=False):
    """Options of ``delete``."""

    preconditions: Mapping[str, str] | None
    """The required ``uid`` and ``resourceVersion``. If the object has another one, the call raises ConflictError."""


class DeleteAllOfOptions(Selection, CollectionDeleteOptions, total=False):
    """Options of ``delete_all_of``."""


@cache
def _names(verb: type) -> tuple[frozenset[str], frozenset[str]]:
    required: frozenset[str] = verb.__required_keys__  # type: ignore[attr-defined]  # every TypedDict has it
    optional: frozenset[str] = verb.__optional_keys__  # type: ignore[attr-defined]
    return required | optional, required


def check_options(verb: type, given: Mapping[str, object]) -> None:
    """Check the names of the options of a call: ``check_options(ListOptions, options)``.

    Raises:
        TypeError: an option is unknown, or a required option is missing.
    """
    known, required = _names(verb)
    names = given.keys()
    if not names <= known:
        raise TypeError(_unknown(verb, min(names - known), known))
    if not required <= names:
        raise TypeError(f"{verb.__name__}: {min(required - names)} is required")


def _unknown(verb: type, name: str, known: Collection[str]) -> str:
    import difflib  # only for this error

    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known options are {', '.join(sorted(known))}"
    return f"{verb.__name__} has no option {name}; {hint}"
