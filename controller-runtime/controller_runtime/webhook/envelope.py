# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Decode AdmissionReviews. Their objects stay JSON text, because they must be checked before they are decoded."""

from __future__ import annotations

import codecs
from typing import Final

import msgspec
import pydantic_core

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.log import CUT, cut
from controller_runtime.machinery import rawjson
from controller_runtime.machinery.errors import first_problem

MAX_REST: Final = 256 * 1024
"""Maximum number of bytes of all fields of a review except its two objects, e.g. of the user's groups."""
_PIECE: Final = 256 * 1024
_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_KIND: Final = "AdmissionReview"
_NULL: Final = b"null"
_NONE: Final = msgspec.Raw(_NULL)
_OBJECTS: Final = ("object", "oldObject")


class UnreadableError(Exception):
    """A body is not an AdmissionReview, or is too large. ``code`` is the HTTP status of the answer."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class _Request(msgspec.Struct, rename="camel"):
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


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _Object(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An object of a kind that has only these fields. Their values stay JSON text."""

    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = _NONE
    spec: msgspec.Raw = _NONE
    status: msgspec.Raw = _NONE


_DECODER: Final = msgspec.json.Decoder(_Review)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_SMALL: Final = tuple(
    (field.name, field.encode_name)
    for field in msgspec.structs.fields(_Request)
    if field.encode_name not in ("uid", *_OBJECTS)
)


class Review(msgspec.Struct):
    """A request whose objects are not decoded: ``request.object`` and ``request.old_object`` are None."""

    api_version: str
    request: AdmissionRequest
    object: bytes | None
    old_object: bytes | None

    @property
    def size(self) -> int:
        """The number of bytes of both objects together."""
        return len(self.object or b"") + len(self.old_object or b"")

    def only_metadata_changes(self) -> bool:
        """Return True if the old and the new object differ only in metadata and status, or not at all.

        Comparing the texts is enough, because the API server sorts the fields.
        """
        if self.object is None or self.old_object is None:
            return False
        try:
            new, old = _OBJECT.decode(self.object), _OBJECT.decode(self.old_object)
        except rawjson.UNREADABLE:
            return False
        return (new.api_version, new.kind, bytes(new.spec)) == (old.api_version, old.kind, bytes(old.spec))


def read(body: bytes) -> Review:
    """Decode a body.

    Raises:
        UnreadableError: the body is not an AdmissionReview, or the fields other than its objects are too large.
    """
    try:
        if not body.isascii():
            # Check that this is UTF-8, in pieces: the whole string could take four times as much memory as the body.
            decode = codecs.getincrementaldecoder("utf-8")().decode
            for at in range(0, len(body), _PIECE):
                decode(body[at : at + _PIECE])
            decode(b"", final=True)
        review = _DECODER.decode(body)
    except rawjson.UNREADABLE as error:
        raise UnreadableError(f"body is not an AdmissionReview: {cut(str(error))}") from error
    if review.api_version not in _VERSIONS or review.kind != _KIND:
        text = f"{cut(review.api_version)}, Kind={cut(review.kind)}"
        raise UnreadableError(f"body is not an AdmissionReview: {text}")
    fields = review.request
    if fields is None or not fields.uid:
        raise UnreadableError("AdmissionReview has no request, or a request without uid")
    if len(fields.uid) > CUT:
        raise UnreadableError(f"uid of the AdmissionReview is longer than {CUT} characters")
    # All fields except the two objects are decoded now.
    values = {wire: raw for name, wire in _SMALL if (raw := getattr(fields, name)) is not _NONE}
    if (size := sum(map(len, values.values()))) > MAX_REST:
        text = f"AdmissionReview has {size} bytes besides its objects; limit is {MAX_REST} bytes"
        raise UnreadableError(text, code=413)
    if size > rawjson.SMALL:
        for wire, raw in values.items():
            if (reason := rawjson.check(bytes(raw))) is not None:
                raise UnreadableError(f"AdmissionReview has {reason} in its {wire}", code=413)
    try:
        request = AdmissionRequest.from_json(msgspec.json.encode({**values, "uid": fields.uid}))
    except rawjson.UNREADABLE as error:
        raise UnreadableError(f"body is not an AdmissionReview: {cut(str(error))}") from error
    except pydantic_core.ValidationError as error:
        _, problem = first_problem(error)
        raise UnreadableError(f"body is not an AdmissionReview: {cut(problem)}") from error
    obj, old = bytes(fields.object), bytes(fields.old_object)
    return Review(review.api_version, request, None if obj == _NULL else obj, None if old == _NULL else old)
