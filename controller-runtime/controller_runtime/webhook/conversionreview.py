# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ConversionReviews over HTTP: every object of a review in one other version, or why not.

A response contains all of the objects or none: if some cannot be converted, its message names each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from controller_runtime import cancellation, log, metrics, offload
from controller_runtime.apis.machinery import raised, shape
from controller_runtime.httpserver import HTTPRequest, HTTPResponse

from . import admission, bounds, conversion, endpoint, envelope

_VERSION: Final = "apiextensions.k8s.io/v1"
_MOST_ERRORS: Final = 20
"""Failed objects after which the rest of a review is not converted."""

_log = log.logger_from("conversion-webhook")


class _Request(msgspec.Struct, rename={"desired_api_version": "desiredAPIVersion"}):
    uid: str
    desired_api_version: str
    objects: list[msgspec.Raw] = []


class _Result(msgspec.Struct, omit_defaults=True):
    status: str
    message: str = ""


class _Response(msgspec.Struct, rename="camel"):
    uid: str
    converted_objects: list[msgspec.Raw]
    result: _Result


class _Review(msgspec.Struct, rename="camel"):
    """The review that the API server sends; it sends an empty response, too."""

    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _Answer(msgspec.Struct, rename="camel"):
    response: _Response
    api_version: str = _VERSION
    kind: str = "ConversionReview"


_DECODER: Final = msgspec.json.Decoder(_Review)


class ConversionWebhook(endpoint.Endpoint):
    """Serves ``conversions`` at ``path``."""

    def __init__(
        self,
        conversions: conversion.Conversions,
        path: str = conversion.PATH,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(path, clock=clock)
        self._conversions = conversions

    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one ConversionReview."""
        try:
            asked = _read(endpoint.content(request))
        except envelope.UnreadableError as error:
            return self.unreadable(error.code, str(error))
        converted: list[msgspec.Raw] = []
        errors: list[str] = []
        for raw in asked.objects:
            try:
                converted.append(msgspec.Raw(await self._convert(bytes(raw), asked.desired_api_version)))
            except conversion.ConversionError as error:
                errors.append(log.cut(raised.text(error), admission.LONGEST_MESSAGE))
                if len(errors) == _MOST_ERRORS:
                    break
        if errors:
            converted = []
            result = _Result("Failed", log.cut("; ".join(errors), admission.LONGEST_MESSAGE))
        else:
            result = _Result("Success")
        answer = _Answer(_Response(asked.uid, converted, result))
        return HTTPResponse(body=msgspec.json.encode(answer), content_type=endpoint.JSON)

    async def _convert(self, data: bytes, api_version: str) -> bytes:
        with offload.weighing(len(data)):
            try:
                return await offload.run(self._conversions.convert, data, api_version)
            except conversion.ConversionError:
                raise
            except cancellation.FAILURES as error:
                failure = cancellation.as_error_of_plain_task(error)
                metrics.CONVERSION_PANICS.inc()
                if (held_back := self.lines.allow()) is not None:
                    _log.error("Observed a panic in conversion webhook", error=failure, **held_back)
                text = f"panic: {raised.name(failure)}: {log.cut(log.describe(failure))} [recovered]"
                raise conversion.ConversionError(text) from error


def _read(body: bytes) -> _Request:
    if (reason := shape.check(body, bounds.BODY)) is not None:
        raise envelope.UnreadableError(f"ConversionReview is too large: it has {reason}", code=413)
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise envelope.UnreadableError(f"body is not a ConversionReview: {log.cut(str(error))}") from error
    if (review.api_version, review.kind) != (_VERSION, "ConversionReview"):
        text = f"{log.cut(review.api_version)}, Kind={log.cut(review.kind)}"
        raise envelope.UnreadableError(f"body is not a ConversionReview of {_VERSION}: {text}")
    if review.request is None or not review.request.uid:
        raise envelope.UnreadableError("ConversionReview has no request, or a request without uid")
    if len(review.request.uid) > log.CUT:
        raise envelope.UnreadableError(f"uid of the ConversionReview is longer than {log.CUT} characters")
    return review.request
