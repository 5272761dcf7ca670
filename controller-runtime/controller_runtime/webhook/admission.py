# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission: validators, defaulters and mutators of one kind, and the responses to the API server.

A validator rejects a request by raising an error. A ``StatusError`` is passed on unchanged. Field errors, errors of the
connection to the API server and errors of the cache become a 403 with the text of the error. The notes of the error
(``add_note``) become the warnings of the response. Any other error is a bug: it is counted, and the answer is a 500.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import ClassVar, Final, Generic, TypeVar

import msgspec
import pydantic_core

from controller_runtime import cache, log, offload, rest
from controller_runtime.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from controller_runtime.apis.meta.v1 import Status
from controller_runtime.machinery import JSON, Object, arguments, crd, field, raised, rawjson
from controller_runtime.machinery.base import MASK, check_secret_values
from controller_runtime.machinery.errors import StatusError, first_problem, to_status
from controller_runtime.machinery.patch import pointer, same

T = TypeVar("T", bound=Object)

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"

LONGEST_MESSAGE: Final = 32 * 1024
"""Maximum number of characters in the message of a rejection. Without this limit, an error could quote a whole object,
and there could be thousands of errors."""
_ALLOWED: Final = b'{"allowed":true,"status":{"code":200,"message":null},"warnings":null}'
"""The usual response. To decode it takes a third of the time of the constructors."""
VERDICTS: Final = (StatusError, field.AggregateError, field.FieldError, rest.TransportError, cache.CacheError)
"""The errors that a validator or defaulter raises to reject a request."""


class BadRequestError(Exception):
    """A request is invalid. The answer is a 400."""


class Handler(ABC):
    """Answers admission requests at one path."""

    @abstractmethod
    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return the answer; the caller fills in the answer's ``uid``.

        Raises:
            BadRequestError: the request is invalid.
        """

    async def handle_json(
        self, request: AdmissionRequest, obj: bytes | None, old: bytes | None
    ) -> AdmissionResponse:
        """Return the answer to a request whose objects are JSON text. By default, decode them for :meth:`handle`."""
        request.object, request.old_object = await offload.run(_any, obj), await offload.run(_any, old)
        return await self.handle(request)


class CustomValidator(ABC, Generic[T]):
    """Validates objects of one kind. Each method returns warnings, or raises an error to reject the request."""

    protects_go_clients: ClassVar[bool] = False
    """Whether to reject a new or changed object with a number or time that a typed Go client cannot read. Such a client
    would fail for all objects of the kind. The check decodes every object once more."""

    @abstractmethod
    async def validate_create(self, obj: T) -> list[str]:
        """Validate a new object."""

    @abstractmethod
    async def validate_update(self, old: T, new: T) -> list[str]:
        """Validate a change."""

    @abstractmethod
    async def validate_delete(self, obj: T) -> list[str]:
        """Validate a deletion. It is called only if the webhook's rules include DELETE."""


class CustomDefaulter(ABC, Generic[T]):
    """Sets defaults for unset fields, before validation."""

    leaves_undecodable: ClassVar[bool] = False
    """Whether to allow an object that cannot be decoded, as in :class:`CustomMutator`."""

    @abstractmethod
    async def default(self, obj: T) -> None:
        """Change ``obj`` in place, or raise an error to reject the request."""


class CustomMutator(ABC, Generic[T]):
    """Changes objects of one kind before validation. Unlike a defaulter, it gets the request and the stored object."""

    leaves_undecodable: bool = False
    """Whether to allow an object that cannot be decoded. The API server's schema validation then rejects the object and
    names every invalid field."""

    def concerns(self, request: AdmissionRequest, old: T | None, new: T) -> bool:
        """Return False if :meth:`mutate` would change nothing. This saves the call. By default, return True."""
        del request, old, new
        return True

    @abstractmethod
    async def mutate(self, request: AdmissionRequest, old: T | None, new: T) -> list[str]:
        """Change ``new`` in place and return warnings, or raise an error to reject the request.

        ``old`` is None for a new object.
        """


class ValidatorHandler(Handler, Generic[T]):
    """Answers requests with a validator."""

    def __init__(self, kind: type[T], validator: CustomValidator[T]) -> None:
        """Raises TypeError if ``validator`` is a class, or has no such ``async`` methods."""
        arguments.must_have_async(validator, "validate_create", "validate_update", "validate_delete")
        self._kind = kind
        self._validator = validator

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return the validator's verdict."""
        return await self.handle_json(request, request.object, request.old_object)

    async def handle_json(self, request: AdmissionRequest, obj: JSON, old: JSON) -> AdmissionResponse:
        """Return the validator's verdict. Each object is decoded only once."""
        return await self.verdict(request.operation, obj, old) or allowed()

    async def verdict(self, operation: str, obj: JSON, old: JSON) -> AdmissionResponse | None:
        """Return the validator's verdict on an operation, or None to allow it without a warning.

        No other field of a request is needed, so none is decoded.
        """
        kind, validator = self._kind, self._validator
        warnings: list[str] = []
        try:
            match operation:
                case "CREATE":
                    warnings = await validator.validate_create(await offload.run(self._decode, obj))
                case "UPDATE":
                    new = await offload.run(self._decode, obj, old)
                    warnings = await validator.validate_update(await offload.run(decode, kind, old), new)
                case "DELETE":
                    warnings = await validator.validate_delete(await offload.run(decode, kind, old))
                case "CONNECT":
                    pass
                case _:
                    raise BadRequestError(f'unknown operation "{log.cut(operation)}"')
        except VERDICTS as error:
            return await offload.run(refused, error)
        return allowed(warnings=warnings) if warnings else None

    def _decode(self, data: JSON, old: JSON = None) -> T:
        """Decode a new or changed object.

        Raises:
            BadRequestError: :func:`decode` cannot decode the object, or Go clients are protected and could read ``old``
                but not the object.
        """
        kind = self._kind
        decoded = decode(kind, data)
        if self._validator.protects_go_clients:
            try:
                error = crd.unreadable_in_go(kind, data)
                if error is None or (old is not None and crd.unreadable_in_go(kind, old) is not None):
                    return decoded
            except rawjson.UNREADABLE as unreadable:
                text = f"the object cannot be decoded: {log.cut(str(unreadable))}"
                raise BadRequestError(text) from unreadable
            raise BadRequestError(f"{kind.gvk.kind}: {log.cut(str(error))}")
        return decoded


class MutatorHandler(Handler, Generic[T]):
    """Answers requests with a mutator."""

    def __init__(self, kind: type[T], mutator: CustomMutator[T]) -> None:
        """Raises TypeError if ``mutator`` is a class, or has no such ``async`` method."""
        arguments.must_have_async(mutator, "mutate")
        self._kind = kind
        self._mutator = mutator

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return the mutator's changes as a JSON patch."""
        return await self.handle_json(request, request.object, request.old_object)

    async def handle_json(self, request: AdmissionRequest, obj: JSON, old: JSON) -> AdmissionResponse:
        """Return the mutator's changes as a JSON patch. Each object is decoded only once."""
        if request.operation not in {CREATE, UPDATE}:
            return allowed()
        try:
            new = await offload.run(decode, self._kind, obj)
            stored = await self._stored(request, old)
        except BadRequestError:
            if not self._mutator.leaves_undecodable:
                raise
            return allowed()
        if not await offload.run(self._mutator.concerns, request, stored, new):
            return allowed()
        before = await offload.run(new.to_dict)
        try:
            warnings = await self._mutator.mutate(request, stored, new)
        except VERDICTS as error:
            return refused(error)
        response = allowed(warnings=warnings)
        if patch := await offload.run(_changes, obj, before, new):
            response.patch = base64.b64encode(msgspec.json.encode(patch)).decode()
            response.patch_type = "JSONPatch"
        return response

    async def _stored(self, request: AdmissionRequest, old: JSON) -> T | None:
        return await offload.run(decode, self._kind, old) if request.operation == UPDATE else None


class DefaulterHandler(MutatorHandler[T]):
    """Answers requests with a defaulter."""

    def __init__(self, kind: type[T], defaulter: CustomDefaulter[T]) -> None:
        """Raises TypeError if ``defaulter`` is a class, or has no such ``async`` method."""
        arguments.must_have_async(defaulter, "default")
        super().__init__(kind, _Defaulting(defaulter))

    async def _stored(self, request: AdmissionRequest, old: JSON) -> T | None:
        del request, old  # a defaulter does not need the stored object
        return None


class _Defaulting(CustomMutator[T]):
    """A mutator that calls a defaulter."""

    def __init__(self, defaulter: CustomDefaulter[T]) -> None:
        self._defaulter = defaulter
        self.leaves_undecodable = defaulter.leaves_undecodable

    async def mutate(self, request: AdmissionRequest, old: T | None, new: T) -> list[str]:
        del request, old
        await self._defaulter.default(new)
        return []


def _changes(sent: JSON, before: JSON, new: Object) -> list[dict[str, JSON]]:
    """Return the patch that makes the mutator's changes in the object of the request.

    ``before`` is the object as it was decoded. It may differ from the object of the request, for example by Python's
    defaults, which the patch must neither contain nor rely on.
    """
    after = new.to_dict()
    if same(after, before):
        return []
    sent = msgspec.json.decode(sent) if isinstance(sent, bytes) else sent
    patch = json_patch(sent, _rebased(sent, before, after))
    if MASK in msgspec.json.encode(patch):
        check_secret_values(new)
    return patch


def _rebased(sent: JSON, before: JSON, after: JSON) -> JSON:
    """Return ``sent`` with the changes from ``before`` to ``after``."""
    if same(before, after):
        return sent
    if isinstance(sent, dict) and isinstance(before, dict) and isinstance(after, dict):
        changed = {
            key: value for key, value in after.items() if key not in before or not same(before[key], value)
        }
        kept = {key: value for key, value in sent.items() if key in after or key not in before}
        return kept | {key: _rebased(sent.get(key), before.get(key), value) for key, value in changed.items()}
    lists = isinstance(sent, list) and isinstance(before, list) and isinstance(after, list)
    if lists and len(sent) == len(before) == len(after) and all(isinstance(item, dict) for item in sent):
        return [_rebased(*items) for items in zip(sent, before, after, strict=True)]
    return after


def decode(kind: type[T], data: JSON) -> T:
    """Return the decoded object of a request. ``data`` is JSON text, or a dict decoded from JSON text.

    Raises:
        BadRequestError: the object is missing, or cannot be decoded as ``kind``.
    """
    try:
        if isinstance(data, bytes) and data[:1] == b"{":
            return kind.from_json(data)
        if isinstance(data, dict):
            return kind.from_dict(data)
    except pydantic_core.ValidationError as error:
        path, problem = first_problem(error)
        raise BadRequestError(f"{kind.gvk.kind}: {log.cut(path)}: {log.cut(problem)}") from error
    raise BadRequestError("there is no content to decode")


def _any(data: JSON) -> JSON:
    try:
        return msgspec.json.decode(data) if isinstance(data, bytes) else data
    except rawjson.UNREADABLE as error:
        raise BadRequestError(f"the object cannot be decoded: {log.cut(str(error))}") from error


def allowed(message: str = "", *, warnings: list[str] | None = None) -> AdmissionResponse:
    """Return a response that allows the request."""
    if not (message or warnings):
        return AdmissionResponse.from_json(_ALLOWED)
    status = Status(code=200, message=message or None)
    return AdmissionResponse(allowed=True, status=status, warnings=warnings or None)


def denied(message: str, *, warnings: list[str] | None = None) -> AdmissionResponse:
    """Return a rejection with status 403, Forbidden."""
    status = Status(code=403, reason="Forbidden", message=message)
    return AdmissionResponse(allowed=False, status=status, warnings=warnings or None)


def errored(code: int, message: str) -> AdmissionResponse:
    """Return a rejection for an invalid request or an internal error."""
    return AdmissionResponse(allowed=False, status=Status(code=code, message=message))


def refused(error: Exception) -> AdmissionResponse:
    """Return the rejection for an error of :data:`VERDICTS`, with the notes of the error as warnings."""
    warnings = list(getattr(error, "__notes__", ()))
    raised.release(error)
    if isinstance(error, StatusError):
        status = Status.from_dict(to_status(error))
        status.message = log.cut(status.message or "", LONGEST_MESSAGE) or None
        return AdmissionResponse(allowed=False, status=status, warnings=warnings or None)
    return denied(log.cut(log.describe(error), LONGEST_MESSAGE), warnings=warnings)


def json_patch(old: JSON, new: JSON, path: str = "") -> list[dict[str, JSON]]:
    """Return the RFC 6902 patch from ``old`` to ``new``. If a list has kept its length, its items are patched."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            change
            for index, (left, right) in enumerate(zip(old, new, strict=True))
            for change in json_patch(left, right, f"{path}/{index}")
        ]
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if same(old, new) else [{"op": "replace", "path": path, "value": new}]
    patch: list[dict[str, JSON]] = [
        {"op": "remove", "path": path + pointer(key)} for key in old if key not in new
    ]
    for key, value in new.items():
        below = path + pointer(key)
        if key in old:
            patch.extend(json_patch(old[key], value, below))
        else:
            patch.append({"op": "add", "path": below, "value": value})
    return patch
