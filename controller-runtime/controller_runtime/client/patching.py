# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies patches to objects in memory as an API server does, before it validates the result."""

from __future__ import annotations

import copy
from typing import cast

import msgspec

from controller_runtime.apis.machinery import errors, mergeschema, strategicpatch
from controller_runtime.apis.machinery import patch as patches
from controller_runtime.apis.machinery.base import JSON

from .patch import APPLY, MERGE, STRATEGIC
from .patch import JSON as JSON_PATCH
from .tables import Document, Table, key_of


def patched(table: Table, document: Document, body: JSON, content_type: str) -> Document:
    """Return a copy of ``document`` with the patch ``body`` applied.

    Raises:
        BadRequestError: the patch is not an object or a list of operations, or changes the name of the object.
        InvalidError: the patch cannot be applied to the object.
        StatusError: the kind does not support patches of this type.
    """
    _check_type(table, body, content_type)
    try:
        result: JSON
        if content_type == MERGE:
            result = patches.apply_merge_patch(document, body)
        elif content_type == JSON_PATCH:
            result = patches.apply_json_patch(document, body)
        else:
            result = strategicpatch.strategic_merge_patch(
                copy.deepcopy(document), copy.deepcopy(body), table.facts.schema
            )
    except (patches.PatchError, strategicpatch.StrategicMergeError) as error:
        raise errors.InvalidError(str(error), code=422, reason="Invalid") from error
    _check_identity(document, result)
    return cast("Document", result)


def decoded(body: bytes) -> JSON:
    """Return the JSON value of a body. Raises BadRequestError if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise errors.BadRequestError(str(error), code=400, reason="BadRequest") from error


def _check_type(table: Table, body: JSON, content_type: str) -> None:
    custom = table.facts.custom
    if content_type == STRATEGIC and not custom and mergeschema.of_kubernetes(table.facts.gvk) is None:
        raise NotImplementedError(f"{table.facts.gvk}: no strategic merge patch of this kind in memory")
    if content_type not in (MERGE, JSON_PATCH) and (content_type != STRATEGIC or custom):
        message = "415: Unsupported Media Type"
        if custom:
            message = (
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON_PATCH}, {MERGE}, {APPLY}"
            )
        raise errors.StatusError(message, code=415, reason="UnsupportedMediaType")
    if not isinstance(body, list if content_type == JSON_PATCH else dict):
        expected = "a list of operations" if content_type == JSON_PATCH else "an object"
        raise errors.BadRequestError(f"the patch must be {expected}", code=400, reason="BadRequest")


def _check_identity(before: Document, after: JSON) -> None:
    if not isinstance(after, dict) or any(
        after.get(each) != before.get(each) for each in ("apiVersion", "kind")
    ):
        raise errors.InvalidError(
            "the patch changes the apiVersion or the kind of the object", code=422, reason="Invalid"
        )
    old, new = key_of(before), key_of(after)
    if new.name != old.name:
        raise errors.BadRequestError(
            f"the name of the object ({new.name}) does not match the name on the URL ({old.name})",
            code=400,
            reason="BadRequest",
        )
    if new.namespace and new.namespace != old.namespace:
        raise errors.BadRequestError(
            "the namespace of the provided object does not match the namespace sent on the request",
            code=400,
            reason="BadRequest",
        )
