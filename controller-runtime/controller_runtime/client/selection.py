# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Label selectors, field selectors and pages of lists in memory, with the rules of an API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.machinery import errors, labels
from controller_runtime.apis.machinery.base import JSON

from .tables import Document, Table

_EVERYWHERE: Final = ("metadata.name", "metadata.namespace")
_SELECTABLE: Final[Mapping[str, frozenset[str]]] = {
    "Pod": frozenset(
        {
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
        }
    ),
    "Event": frozenset(
        {"involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "reason", "type"}
    ),
    "Namespace": frozenset({"status.phase"}),
    "Secret": frozenset({"type"}),
    "Job": frozenset({"status.successful"}),
    "Node": frozenset({"spec.unschedulable"}),
}
"""Fields of Kubernetes' kinds that servers support in selectors, besides name and namespace."""

_FALSE_WHEN_UNSET: Final = frozenset({"spec.hostNetwork", "spec.unschedulable"})


def matcher_of(selector: labels.LabelSelectorLike | None) -> labels.Selector:
    """Return a label selector as an object. Raises BadRequestError if it cannot be parsed."""
    try:
        return labels.selector(selector)
    except labels.SelectorError as error:
        raise errors.BadRequestError(str(error), code=400, reason="BadRequest") from error


def has_field(table: Table, document: Document, path: str, value: str) -> bool:
    """Return True if the object matches the field selector ``path=value``.

    Raises:
        BadRequestError: servers do not support the field for this kind.
    """
    known = _SELECTABLE.get(table.facts.gvk.kind) if not table.facts.custom else None
    if path not in _EVERYWHERE and path not in (known or ()):
        if known is not None or table.facts.custom:
            message = f"field label not supported: {path}"
        else:
            message = f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        raise errors.BadRequestError(message, code=400, reason="BadRequest")
    found: JSON = document
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    if found is None and path in _FALSE_WHEN_UNSET:
        found = False
    return _text(found) == value


def start_of(continue_token: str) -> int:
    """Return the index in the list at which a page starts.

    Raises:
        BadRequestError: the token is not valid.
    """
    if continue_token and not continue_token.isdigit():
        raise errors.BadRequestError(
            "invalid continue token: continue key is not valid", code=400, reason="BadRequest"
        )
    return int(continue_token or 0)


def _text(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
