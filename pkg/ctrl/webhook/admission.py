# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission: validators and defaulters of one kind, and the answers that their verdicts become.

A validator refuses by raising: a ``StatusError`` is passed on as it is, field errors and trouble with
the API server are a 403 with their text. The notes of the error (``add_note``) are the warnings that go with a
refusal. Whatever else it raises is a bug: 500, and counted.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Any, Final, Generic, TypeVar

import msgspec
import pydantic

from pkg.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from pkg.apis.machinery import field
from pkg.apis.machinery.errors import StatusError, to_status
from pkg.apis.machinery.object import Object
from pkg.apis.meta.v1 import Status
from pkg.ctrl import cache, log, rest

T = TypeVar("T", bound=Object)

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"

VERDICTS: Final = (StatusError, field.AggregateError, field.FieldError, rest.TransportError, cache.CacheError)
"""What a validator or defaulter raises to refuse."""


class BadRequestError(Exception):
    """A request makes no sense; it is answered with 400."""


class Handler(ABC):
    """Answers admission requests at one path."""

    @abstractmethod
    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return the answer; its ``uid`` is filled in by the caller.

        Raises:
            BadRequestError: the request makes no sense.
        """


class CustomValidator(ABC, Generic[T]):
    """Says whether objects of one kind may be stored; each method returns warnings, and raises to refuse."""

    @abstractmethod
    async def validate_create(self, obj: T) -> list[str]:
        """Judge a new object."""

    @abstractmethod
    async def validate_update(self, old: T, new: T) -> list[str]:
        """Judge a change."""

    @abstractmethod
    async def validate_delete(self, obj: T) -> list[str]:
        """Judge a deletion; the API server asks only if the webhook's rules say so."""


class CustomDefaulter(ABC, Generic[T]):
    """Fills in what a user left out, before validation."""

    @abstractmethod
    async def default(self, obj: T) -> None:
        """Change ``obj`` in place; raise to refuse it."""


class ValidatorHandler(Handler, Generic[T]):
    """A validator behind a path."""

    def __init__(self, kind: type[T], validator: CustomValidator[T]) -> None:
        self._kind = kind
        self._validator = validator

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return the validator's verdict."""
        try:
            warnings = await self._validate(request)
        except VERDICTS as error:
            return refused(error)
        return allowed(warnings=warnings)

    async def _validate(self, request: AdmissionRequest) -> list[str]:
        match request.operation:
            case "CREATE":
                return await self._validator.validate_create(decode(self._kind, request.object))
            case "UPDATE":
                new = decode(self._kind, request.object)
                return await self._validator.validate_update(decode(self._kind, request.old_object), new)
            case "DELETE":
                return await self._validator.validate_delete(decode(self._kind, request.old_object))
            case "CONNECT":
                return []
        raise BadRequestError(f'unknown operation "{request.operation}"')


class DefaulterHandler(Handler, Generic[T]):
    """A defaulter behind a path."""

    def __init__(self, kind: type[T], defaulter: CustomDefaulter[T]) -> None:
        self._kind = kind
        self._defaulter = defaulter

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return what the defaulter changed, as a JSON patch."""
        if request.operation not in {CREATE, UPDATE}:
            return allowed()
        obj = decode(self._kind, request.object)
        # Compared with what the model makes of the object: a patch holds the defaulter's changes alone.
        before = obj.to_dict()
        try:
            await self._defaulter.default(obj)
        except VERDICTS as error:
            return refused(error)
        response = allowed()
        if patch := json_patch(before, obj.to_dict()):
            response.patch = base64.b64encode(msgspec.json.encode(patch)).decode()
            response.patch_type = "JSONPatch"
        return response


def decode(kind: type[T], data: Any) -> T:
    """Return the object in a request.

    Raises:
        BadRequestError: there is none, or it is no ``kind``.
    """
    if not isinstance(data, dict):
        raise BadRequestError("there is no content to decode")
    try:
        return kind.from_dict(data)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise BadRequestError(f"{kind.gvk.kind}: {path}: {first['msg']}") from error


def allowed(message: str = "", *, warnings: list[str] | None = None) -> AdmissionResponse:
    """Return a yes."""
    status = Status(code=200, message=message or None)
    return AdmissionResponse(allowed=True, status=status, warnings=warnings or None)


def denied(message: str, *, warnings: list[str] | None = None) -> AdmissionResponse:
    """Return a no: 403, Forbidden."""
    status = Status(code=403, reason="Forbidden", message=message)
    return AdmissionResponse(allowed=False, status=status, warnings=warnings or None)


def errored(code: int, message: str) -> AdmissionResponse:
    """Return a no that is somebody's mistake."""
    return AdmissionResponse(allowed=False, status=Status(code=code, message=message))


def refused(error: Exception) -> AdmissionResponse:
    """Return what one of :data:`VERDICTS` says, its notes as warnings."""
    warnings = list(getattr(error, "__notes__", ()))
    if isinstance(error, StatusError):
        status = Status.from_dict(to_status(error))
        return AdmissionResponse(allowed=False, status=status, warnings=warnings or None)
    return denied(log.describe(error), warnings=warnings)


def json_patch(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the RFC 6902 patch from ``old`` to ``new``; a list that changed is replaced whole."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [{"op": "replace", "path": path, "value": new}]
    patch: list[dict[str, Any]] = [
        {"op": "remove", "path": f"{path}/{_escape(key)}"} for key in old if key not in new
    ]
    for key, value in new.items():
        below = f"{path}/{_escape(key)}"
        if key in old:
            patch.extend(json_patch(old[key], value, below))
        else:
            patch.append({"op": "add", "path": below, "value": value})
    return patch


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
