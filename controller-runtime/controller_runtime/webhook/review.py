# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""AdmissionReviews over HTTP: decode the request, call the handler, encode the handler's response, and handle the
errors of these steps.

If a body is not a review, the answer is a Status with its HTTP code, which the API server can show to the user. If a
handler fails or takes too long, the answer is a normal review with the code 500 or 504, so that the user reads which
webhook failed and why.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Final

import anyio

from controller_runtime import fairness, log, metrics, offload
from controller_runtime.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from controller_runtime.machinery import raised, rawjson
from controller_runtime.serving import HTTPRequest, HTTPResponse

from . import admission, endpoint, envelope

MAX_WAIT: Final = 30.0
"""The longest timeout, in seconds, that can be configured for a webhook in the API server."""
_TIMEOUT_FRACTION: Final = 0.9
"""A handler gets this fraction of the caller's timeout. The remaining time is for the response."""
_READING: Final = 16
"""To decode the text of an object takes this many times as long as to skip the text."""
_DURATION: Final = re.compile(r"(?:(\d+)m)?(\d+(?:\.\d+)?)s", re.ASCII)
_LONGEST_DURATION: Final = 64

_log = log.logger_from("admission")


class Webhook(endpoint.Endpoint):
    """Serves ``handler`` at ``path``, with metrics."""

    def __init__(self, path: str, handler: admission.Handler) -> None:
        super().__init__(path)
        self._handler = handler

    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one AdmissionReview."""
        try:
            timeout, text = _timeout(request), endpoint.content(request)
            if (work := len(text) // _READING) > offload.LARGE:
                # The namespace is not known yet: large texts of all namespaces are read one after the other.
                with fairness.working_for(fairness.Tenant(is_review=True)), offload.object_size(work):
                    review = await offload.run(envelope.read, text)
            else:
                review = envelope.read(text)
        except envelope.UnreadableError as error:
            return self.unreadable(error.code, str(error))
        response = await self._handle(review, timeout)
        response.uid = review.request.uid
        try:
            answer = response.to_json()
        except Exception as error:  # a text of the handler that cannot be encoded
            response = self._panicked(error)
            response.uid = review.request.uid
            answer = response.to_json()
        body = b'{"apiVersion":"%b","kind":"AdmissionReview","response":%b}' % (
            review.api_version.encode(),  # one of two versions
            answer,
        )
        return HTTPResponse(body=body, content_type=endpoint.JSON)

    async def _handle(self, review: envelope.Review, timeout: float) -> AdmissionResponse:
        request = review.request
        operation = request.operation  # _refused may change it
        fairness.work_for(fairness.Tenant(request.namespace or "", is_review=True))
        with log.into_context_late(lambda: _fields(self.path, request, operation)):
            try:
                if (size := review.size) > offload.LARGE:
                    with offload.object_size(size):
                        response = await self._judge(review, size, timeout)
                else:
                    response = await self._judge(review, size, timeout)
            except _TooLateError:
                if (held_back := self.log_limiter.allow()) is not None:
                    _log.error("Admission took too long", seconds=timeout, **held_back)
                return admission.errored(504, f"no verdict within {timeout:g} s")
            except admission.BadRequestError as error:
                if (held_back := self.log_limiter.allow()) is not None:
                    _log.info("Bad admission request", error=raised.text(error), **held_back)
                return admission.errored(400, raised.text(error))
            except raised.FAILURES as error:
                return self._panicked(raised.as_error_of_plain_task(error))
            status = response.status
            _log.trace(
                "Wrote response",
                allowed=response.allowed,
                code=status.code if status else None,
                message=status.message if status else None,
            )
            return response

    def _panicked(self, error: Exception) -> AdmissionResponse:
        metrics.WEBHOOK_PANICS.inc()
        if (held_back := self.log_limiter.allow()) is not None:
            _log.error("Observed a panic in webhook", error=error, **held_back)
        text = f"panic: {raised.name(error)}: {log.cut(log.describe(error))} [recovered]"
        return admission.errored(500, text)

    async def _judge(self, review: envelope.Review, size: int, timeout: float) -> AdmissionResponse:
        """Return the handler's answer. Raises _TooLateError if the handler takes longer than ``timeout``."""
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            # The deadline is set in the loop's next iteration, so it is set only if the handler waits for something.
            # Few handlers wait, and a timer costs as much as all other work of this module.
            arming = loop.call_soon(setattr, scope, "deadline", loop.time() + timeout)
            try:
                # Small objects are not checked, and no coroutine is made for them.
                if size > rawjson.SMALL and (refusal := await _refused(review)) is not None:
                    return refusal
                return await self._handler.handle_json(review.request, review.object, review.old_object)
            finally:
                arming.cancel()
        raise _TooLateError


class _TooLateError(Exception):
    """The handler took too long. It may raise a TimeoutError of its own, which is an error like any other."""


async def _refused(review: envelope.Review) -> AdmissionResponse | None:
    """If the objects of a review are too large to be decoded, return the response, otherwise None.

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
        review.request.operation = admission.CREATE
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


def _fields(path: str, request: AdmissionRequest, operation: str) -> dict[str, str | None]:
    """Return the log fields of a request."""
    user = request.user_info.username if request.user_info is not None else None
    resource = request.resource.resource if request.resource is not None else None
    fields = {
        "namespace": request.namespace,
        "name": request.name,
        "resource": resource,
        "operation": operation,
        "user": user,
        "requestID": request.uid,
    }
    return {"webhook": path, **{key: log.cut(value) if value else value for key, value in fields.items()}}


def _timeout(request: HTTPRequest) -> float:
    """Return how many seconds the handler may take. The API server sends its own limit in the query: ``?timeout=10s``.

    Raises:
        UnreadableError: the text of the limit is too long to be a duration.
    """
    text = (request.query.get("timeout") or [""])[0]
    if len(text) > _LONGEST_DURATION:
        raise envelope.UnreadableError(f"timeout is not a duration: {log.cut(text)}")
    return _seconds(text)


@lru_cache(maxsize=16)  # an API server always sends the timeout of its configuration
def _seconds(text: str) -> float:
    asked = _DURATION.fullmatch(text)
    seconds = int(asked[1] or 0) * 60 + float(asked[2]) if asked else MAX_WAIT
    return min(seconds, MAX_WAIT) * _TIMEOUT_FRACTION
