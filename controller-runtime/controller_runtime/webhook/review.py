# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhooks over HTTP. Endpoint: what all webhooks share. Webhook: an endpoint that answers AdmissionReviews.

A small text may decode to a large object. Therefore, while a large body arrives, we count its maps, lists and items. If
it has more of them than two objects may have, we reject the body at once. The objects of a review stay JSON text,
because they must be checked before they are decoded.

If a body is not a review, the answer is a Status with its HTTP code, which the API server can show to the user. If a
handler fails or takes too long, the answer is a normal review with the code 500 or 504, so that the user reads which
webhook failed and why.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import anyio
import msgspec
import pydantic_core

from controller_runtime import fairness, log, metrics, offload
from controller_runtime.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from controller_runtime.machinery import raised, rawjson
from controller_runtime.machinery.errors import first_problem
from controller_runtime.serving import HTTPRequest, HTTPResponse

from . import admission

JSON: Final = "application/json"
MAX_BODY: Final = 7 * 1024 * 1024
"""Maximum number of bytes of a body. A review may have two objects of 3 MB, the limit of an API server."""
LARGE: Final = 4 * 1024 * 1024
"""A larger body does not review stored objects: a review has two, and by default etcd stores up to 1.5 MB for each."""
BODY: Final = msgspec.structs.replace(
    rawjson.DEFAULT,
    size=MAX_BODY,
    containers=4 * rawjson.DEFAULT.containers,
    items=4 * rawjson.DEFAULT.items,
    depth=rawjson.DEFAULT.depth + 2,
)
"""The limits of the contents of a body: two objects, and their managedFields, which may be as large as the objects."""

MAX_WAIT: Final = 30.0
"""The longest timeout, in seconds, that can be configured for a webhook in the API server."""
_TIMEOUT_FRACTION: Final = 0.9
"""A handler gets this fraction of the caller's timeout. The remaining time is for the response."""
_READING: Final = 16
"""To decode the text of an object takes this many times as long as to skip the text."""
_DURATION: Final = re.compile(r"(?:(\d+)m)?(\d+(?:\.\d+)?)s", re.ASCII)
_LONGEST_DURATION: Final = 64

MAX_REST: Final = 256 * 1024
"""Maximum number of bytes of all fields of a review except its two objects, e.g. of the user's groups."""
_PIECE: Final = 256 * 1024
_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_KIND: Final = "AdmissionReview"
_NULL: Final = b"null"
_NONE: Final = msgspec.Raw(_NULL)

_log = log.logger_from("admission")


class BadReviewError(Exception):
    """A body is not an AdmissionReview, or is too large. ``code`` is the HTTP status of the answer."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class Endpoint(ABC):
    """An HTTP handler at ``path``, with metrics."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.log_limiter = log.LineLimiter()
        self._latency = metrics.WEBHOOK_LATENCY.labels(path)
        self._in_flight = metrics.WEBHOOK_IN_FLIGHT.labels(path)
        self._requests = {code: metrics.WEBHOOK_REQUESTS.labels(path, str(code)) for code in (200, 500)}

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one HTTP request."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._in_flight.inc()
        try:
            response = await self.serve(request)
        finally:
            self._in_flight.dec()
        self._latency.observe(clock() - began)
        status = response.status
        (self._requests.get(status) or metrics.WEBHOOK_REQUESTS.labels(self.path, str(status))).inc()
        return response

    @abstractmethod
    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one HTTP request. :meth:`__call__` calls this method and measures the time."""

    def unreadable(self, code: int, message: str) -> HTTPResponse:
        """Return a Status as the answer to a request without a review. The API server's user sees the message."""
        if (held_back := self.log_limiter.allow()) is not None:
            _log.error("Bad request", error=message, **held_back)
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": {400: "BadRequest", 413: "RequestEntityTooLarge"}.get(code, HTTPStatus(code).phrase),
            "code": code,
        }
        return HTTPResponse(status=code, body=msgspec.json.encode(status), content_type=JSON)


class BodyInspection:
    """Inspects bodies while they arrive, see :class:`controller_runtime.serving.Inspection`."""

    size = 64 * 1024  # a smaller body cannot exceed a limit

    def begin(self) -> Callable[[bytes], str | None]:
        """Return a function that counts the contents of one body.

        It rejects only bodies of more than :data:`LARGE` bytes. A smaller body may belong to an update of a stored
        object. Users must be able to delete such an object or to change its metadata, however much it contains.
        """
        counter, received, reason = rawjson.Counter(BODY), 0, None

        def inspect(piece: bytes) -> str | None:
            nonlocal received, reason
            received += len(piece)
            reason = reason or counter.feed(piece)
            return reason if received > LARGE else None

        return inspect


def content(request: HTTPRequest) -> bytes:
    """Return the JSON text of a request.

    Raises:
        BadReviewError: the body is too large or empty, or its content type is not JSON.
    """
    if request.body_rejected:
        text = request.refusal or f"limit is {MAX_BODY} bytes"
        raise BadReviewError(f"request entity is too large; {text}", code=413)
    if not request.body:
        raise BadReviewError("request body is empty")
    content_type = request.headers.get("Content-Type", "")
    if content_type != JSON and content_type.partition(";")[0].strip() != JSON:
        given = log.cut(content_type).encode("utf-8", "backslashreplace").decode()
        raise BadReviewError(f"contentType={given}, expected {JSON}")
    return request.body


class _AdmissionRequest(msgspec.Struct, rename="camel"):
    """The fields that we read from a request. All other fields are skipped, and cost no memory."""

    uid: str = ""
    kind: msgspec.Raw = _NONE
    resource: msgspec.Raw = _NONE
    sub_resource: msgspec.Raw = _NONE
    request_kind: msgspec.Raw = _NONE
    request_resource: msgspec.Raw = _NONE
    request_sub_resource: msgspec.Raw = _NONE
    name: msgspec.Raw = _NONE
    namespace: msgspec.Raw = _NONE
    operation: msgspec.Raw = _NONE
    user_info: msgspec.Raw = _NONE
    object: msgspec.Raw = _NONE
    old_object: msgspec.Raw = _NONE
    dry_run: msgspec.Raw = _NONE
    options: msgspec.Raw = _NONE


class _AdmissionReview(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _AdmissionRequest | None = None


class _Object(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An object of a kind that has only these fields. Their values stay JSON text."""

    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = _NONE
    spec: msgspec.Raw = _NONE
    status: msgspec.Raw = _NONE


_Verdict = Callable[[str, bytes | None, bytes | None], Awaitable[AdmissionResponse | None]]
_ALLOWED: Final = b'{"uid":%b,"allowed":true,"status":{"code":200}}'
"""The text of the usual response. To make and encode the response would take a twentieth of a review's time."""
_decode_review: Final = msgspec.json.Decoder(_AdmissionReview).decode
_decode_object: Final = msgspec.json.Decoder(_Object).decode
_OTHER_FIELDS: Final = tuple(
    (field.name, field.encode_name)
    for field in msgspec.structs.fields(_AdmissionRequest)
    if field.encode_name not in ("uid", "object", "oldObject")
)


class _Name(msgspec.Struct):
    """A GroupVersionKind or a GroupVersionResource."""

    group: str | None = None
    version: str | None = None
    kind: str | None = None
    resource: str | None = None


class _User(msgspec.Struct):
    username: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Fields(msgspec.Struct, rename="camel"):
    """The fields of an AdmissionRequest. To decode a text as this takes a fifth of the time."""

    kind: _Name | None = None
    resource: _Name | None = None
    sub_resource: str | None = None
    request_kind: _Name | None = None
    request_resource: _Name | None = None
    request_sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    operation: str | None = None
    user_info: _User | None = None
    dry_run: bool | None = None


_FIELDS: Final = msgspec.json.Decoder(_Fields)


class UndecodedReview(msgspec.Struct):
    """A request that is not decoded: validators need only its operation and its objects."""

    api_version: str
    uid: str
    text: bytes
    """The JSON text of the request without its objects."""
    object: bytes | None
    old_object: bytes | None
    fields: _Fields = msgspec.field(default_factory=_Fields)
    decoded: AdmissionRequest | None = None

    @property
    def operation(self) -> str:
        """The operation of the request."""
        return self.fields.operation or ""

    @property
    def request(self) -> AdmissionRequest:
        """The request, decoded once. ``request.object`` and ``request.old_object`` are None.

        Raises:
            BadReviewError: the options of the request cannot be decoded.
        """
        if self.decoded is None:
            self.decoded = _request(self.text)
        return self.decoded

    def only_metadata_changes(self) -> bool:
        """Return True if the old and the new object differ only in metadata and status, or not at all.

        Comparing the texts is enough, because the API server sorts the fields.
        """
        if self.object is None or self.old_object is None:
            return False
        try:
            new, old = _decode_object(self.object), _decode_object(self.old_object)
        except rawjson.UNREADABLE:
            return False
        return (new.api_version, new.kind, bytes(new.spec)) == (old.api_version, old.kind, bytes(old.spec))


def read(body: bytes) -> UndecodedReview:
    """Decode a body.

    Raises:
        BadReviewError: the body is not an AdmissionReview, or the fields other than its objects are too large.
    """
    try:
        if not body.isascii():
            _check_utf8(body)
        review = _decode_review(body)
    except rawjson.UNREADABLE as error:
        raise BadReviewError(f"body is not an AdmissionReview: {log.cut(str(error))}") from error
    if review.api_version not in _VERSIONS or review.kind != _KIND:
        text = f"{log.cut(review.api_version)}, Kind={log.cut(review.kind)}"
        raise BadReviewError(f"body is not an AdmissionReview: {text}")
    fields = review.request
    if fields is None or not fields.uid:
        raise BadReviewError("AdmissionReview has no request, or a request without uid")
    if len(fields.uid) > log.CUT:
        raise BadReviewError(f"uid of the AdmissionReview is longer than {log.CUT} characters")
    # All fields except the two objects are checked now.
    values: dict[str, msgspec.Raw] = {}
    for name, wire in _OTHER_FIELDS:
        if (raw := getattr(fields, name)) is not _NONE:
            values[wire] = raw
    if (size := sum(map(len, values.values()))) > MAX_REST:
        text = f"AdmissionReview has {size} bytes besides its objects; limit is {MAX_REST} bytes"
        raise BadReviewError(text, code=413)
    if size > rawjson.SMALL:
        for wire, raw in values.items():
            if (reason := rawjson.check(bytes(raw))) is not None:
                raise BadReviewError(f"AdmissionReview has {reason} in its {wire}", code=413)
    obj, old = bytes(fields.object), bytes(fields.old_object)
    undecoded = UndecodedReview(
        review.api_version,
        fields.uid,
        msgspec.json.encode({**values, "uid": fields.uid}),
        None if obj == _NULL else obj,
        None if old == _NULL else old,
    )
    try:
        undecoded.fields = _FIELDS.decode(undecoded.text)
    except rawjson.UNREADABLE:
        # This names the field that has another type. If a null is the reason, there is no error.
        undecoded.fields = _FIELDS.decode(undecoded.request.to_json())
    return undecoded


def _request(text: bytes) -> AdmissionRequest:
    try:
        return AdmissionRequest.from_json(text)
    except rawjson.UNREADABLE as error:
        raise BadReviewError(f"body is not an AdmissionReview: {log.cut(str(error))}") from error
    except pydantic_core.ValidationError as error:
        _, problem = first_problem(error)
        raise BadReviewError(f"body is not an AdmissionReview: {log.cut(problem)}") from error


def _check_utf8(body: bytes) -> None:
    """Raise UnicodeDecodeError if the body is not UTF-8.

    The body is decoded in pieces, because the whole string could take four times as much memory as the body.
    """
    decode = codecs.getincrementaldecoder("utf-8")().decode
    for at in range(0, len(body), _PIECE):
        decode(body[at : at + _PIECE])
    decode(b"", final=True)


class Webhook(Endpoint):
    """Serves ``handler`` at ``path``, with metrics."""

    def __init__(self, path: str, handler: admission.Handler) -> None:
        super().__init__(path)
        self._handler = handler
        self._verdict: _Verdict | None = None
        plain = admission.ValidatorHandler.handle_json  # another one may read any field of the request
        if isinstance(handler, admission.ValidatorHandler) and type(handler).handle_json is plain:
            self._verdict = handler.verdict

    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one AdmissionReview."""
        try:
            # The API server sends its own limit in the query: ``?timeout=10s``.
            asked = (request.query.get("timeout") or ("",))[0]
            timeout, text = _seconds(asked), content(request)
            if (work := len(text) // _READING) > offload.LARGE:
                # The namespace is not known yet: large texts of all namespaces are read one after the other.
                with fairness.working_for(fairness.Tenant(is_review=True)), offload.object_size(work):
                    review = await offload.run(read, text)
            else:
                review = read(text)
        except BadReviewError as error:
            return self.unreadable(error.code, str(error))
        response = await self._handle(review, timeout)
        answer = (
            _ALLOWED % msgspec.json.encode(review.uid)
            if response is None
            else self._written(response, review)
        )
        body = b'{"apiVersion":"%b","kind":"AdmissionReview","response":%b}' % (
            review.api_version.encode(),  # one of two versions
            answer,
        )
        return HTTPResponse(body=body, content_type=JSON)

    def _written(self, response: AdmissionResponse, review: UndecodedReview) -> bytes:
        response.uid = review.uid
        try:
            return response.to_json()
        except Exception as error:  # a text of the handler that cannot be encoded
            response = self._panicked(error)
            response.uid = review.uid
            return response.to_json()

    async def _handle(self, review: UndecodedReview, timeout: float) -> AdmissionResponse | None:
        """Return the handler's answer or the answer to its error. None allows the request without a warning."""
        fields, operation = review.fields, review.operation  # _limit_objects may change the operation
        size = len(review.object or b"") + len(review.old_object or b"")
        fairness.work_for(fairness.Tenant(fields.namespace or "", is_review=True))
        with log.into_context_late(lambda: _log_fields(self.path, review, operation)):
            try:
                if size > offload.LARGE:
                    with offload.object_size(size):
                        response = await self._judge(review, size, timeout)
                else:
                    response = await self._judge(review, size, timeout)
            except _TooLateError:
                if (held_back := self.log_limiter.allow()) is not None:
                    _log.error("Admission took too long", seconds=timeout, **held_back)
                return admission.errored(504, f"no verdict within {timeout:g} s")
            except (admission.BadRequestError, BadReviewError) as error:
                if (held_back := self.log_limiter.allow()) is not None:
                    _log.info("Bad admission request", error=raised.text(error), **held_back)
                return admission.errored(400, raised.text(error))
            except raised.FAILURES as error:
                return self._panicked(raised.as_error_of_plain_task(error))
            if log.may_write(log.TRACE):
                written = response or admission.allowed()
                status = written.status
                _log.trace(
                    "Wrote response",
                    allowed=written.allowed,
                    code=status.code if status else None,
                    message=status.message if status else None,
                )
            return response

    def _panicked(self, error: Exception) -> AdmissionResponse:
        metrics.WEBHOOK_PANICS.inc()
        if (held_back := self.log_limiter.allow()) is not None:
            _log.error("Observed a panic in webhook", error=error, **held_back)
        text = f"panic: {raised.name(error)}: {log.cut(log.describe(error))} [recovered]"
        raised.release(error)
        return admission.errored(500, text)

    async def _judge(self, review: UndecodedReview, size: int, timeout: float) -> AdmissionResponse | None:
        """Return the handler's answer; None allows the request.

        Raises:
            _TooLateError: the handler takes longer than ``timeout``.
        """
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            # The deadline is set in the loop's next iteration, so it is set only if the handler waits for something.
            # Few handlers wait, and a timer costs as much as all other work of this module.
            arming = loop.call_soon(setattr, scope, "deadline", loop.time() + timeout)
            try:
                # Small objects are not checked, and no coroutine is made for them.
                if size > rawjson.SMALL and (refusal := await _limit_objects(review)) is not None:
                    return refusal
                if self._verdict is not None:
                    return await self._verdict(review.operation, review.object, review.old_object)
                return await self._handler.handle_json(review.request, review.object, review.old_object)
            finally:
                arming.cancel()
        raise _TooLateError


class _TooLateError(Exception):
    """The handler took too long. It may raise a TimeoutError of its own, which is an error like any other."""


async def _limit_objects(review: UndecodedReview) -> AdmissionResponse | None:
    """Remove what is too large to be decoded from the objects of a review. If that is not enough, return the response.

    If an object is too large only because of its managedFields, they are removed. If a stored object is too large, it
    can still be deleted, be made smaller, and get other metadata. If only the old object of an update is too large, it
    is left out, and the new object is validated as in a creation.
    """
    review.object, new = await offload.run(_bounded, review.object)
    review.old_object, old = await offload.run(_bounded, review.old_object)
    if new is None and old is None:
        return None
    if new is None:
        if review.object is None:
            return admission.allowed(warnings=[f"the object is not validated: it has {old}"])
        review.old_object = None
        review.fields.operation = review.request.operation = admission.CREATE
        return None
    if await offload.run(review.only_metadata_changes):
        return admission.allowed(warnings=[f"the object is not validated: it has {new}"])
    return admission.denied(f"the object is too large: it has {new}")


def _bounded(obj: bytes | None) -> tuple[bytes | None, str | None]:
    """Return the object, and the reason if it is too large. A large object is returned without managedFields."""
    if obj is None or rawjson.check(obj) is None:
        return obj, None
    slim = rawjson.without_managed_fields(obj)
    return slim, rawjson.check(slim)


def _log_fields(path: str, review: UndecodedReview, operation: str) -> dict[str, str | None]:
    """Return the log fields of a request."""
    request = review.fields
    user = request.user_info.username if request.user_info is not None else None
    resource = request.resource.resource if request.resource is not None else None
    fields = {
        "namespace": request.namespace,
        "name": request.name,
        "resource": resource,
        "operation": operation,
        "user": user,
        "requestID": review.uid,
    }
    return {"webhook": path, **{key: log.cut(value) if value else value for key, value in fields.items()}}


@lru_cache(maxsize=16)  # an API server always sends the timeout of its configuration
def _seconds(text: str) -> float:
    """Return how many seconds a handler may take if the caller waits for the duration ``text``.

    Raises:
        BadReviewError: the text is too long to be a duration.
    """
    if len(text) > _LONGEST_DURATION:
        raise BadReviewError(f"timeout is not a duration: {log.cut(text)}")
    asked = _DURATION.fullmatch(text)
    seconds = int(asked[1] or 0) * 60 + float(asked[2]) if asked else MAX_WAIT
    return min(seconds, MAX_WAIT) * _TIMEOUT_FRACTION
