# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests and responses: objects, lists, apply configurations and DeleteOptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack

import anyio.lowlevel
import msgspec

from controller_runtime import log, offload, rest
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import (
    JSON,
    LazyObject,
    Object,
    PartialObjectMetadata,
    Struct,
    errors,
    rawjson,
)
from controller_runtime.machinery.base import unset_fields

from . import interfaces
from .options import DeleteOptions

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)
_log = log.logger_from("client")


class ResponseObject(LazyObject[T]):
    """The object in the response to a request.

    Reading ``object`` raises StatusError if the response is a Status that reports a failure. It raises AnswerError if
    the object is of another kind or exceeds the limits of ``machinery.rawjson``. If ``name`` is given, an object of
    another name is an AnswerError, too. Reading ``metadata`` raises AnswerError if the metadata cannot be decoded or
    has another name.
    """

    __slots__ = ("_name",)

    def __init__(self, kind: type[T], text: bytes, *, name: str = "") -> None:
        super().__init__(kind, text)
        self._name = name

    def _decode(self) -> T:
        text, kind = self.text or b"", self.kind
        if len(text) > rawjson.SMALL:
            text = within_limits(text)
        try:
            obj = rest.decoded(kind.from_json, text)
        except rest.AnswerError:
            _check_kind(text, kind.gvk.kind)
            raise
        if issubclass(kind, PartialObjectMetadata):
            _check_kind(text, "")
            obj.api_version, obj.kind = kind.gvk.api_version, kind.gvk.kind
        if obj.metadata.name != self._name:
            _check_name(obj.name, self._name)
        return obj

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        return None  # a response is only checked as a whole

    def _decode_metadata(self) -> ObjectMeta:
        metadata = rest.decoded(_metadata, self.text or b"")
        _check_name(metadata.name, self._name)
        return metadata


def within_limits(text: bytes) -> bytes:
    """Return an object's JSON. If it exceeds the limits of ``machinery.rawjson``, remove its managedFields.

    Raises:
        AnswerError: the object exceeds the limits even without managedFields; decoding it would block the process.
    """
    if rawjson.check(text, rawjson.WIDE) is not None:
        text = rawjson.without_managed_fields(text)
        if (reason := rawjson.check(text, rawjson.WIDE)) is not None:
            raise rest.AnswerError(f"the object is not decoded: {reason}")
    return text


def _metadata(text: bytes) -> ObjectMeta:
    fields = rawjson.parts(rawjson.metadata_text(text))
    fields.pop("managedFields", None)
    return ObjectMeta.from_json(within_limits(msgspec.json.encode(fields)))


def _check_kind(text: bytes, kind: str) -> None:
    """Raise StatusError for a Status that reports a failure, and AnswerError for an object that is not of ``kind``."""
    found = rest.decoded(_decode_names, text)
    if found.kind == "Status" != kind and found.status != "Success":
        raise errors.from_status(rest.decoded(msgspec.json.decode, text), http_code=500)
    if kind and found.kind and found.kind != kind:
        raise rest.AnswerError(f"the response is a {found.kind}, not a {kind}")


class _Names(msgspec.Struct):
    kind: object = None
    status: object = None


_decode_names: Final = msgspec.json.Decoder(_Names).decode


def _check_name(found: str | None, name: str) -> None:
    if name and found != name:
        raise rest.AnswerError(f"the response is the object {found!r}, not {name!r}")


decode_answer: Final = msgspec.json.Decoder(dict[str, JSON]).decode


def decode(kind: type[T], body: bytes) -> T:
    """Return the object in ``body`` as a ``kind``; metadata-only objects get the apiVersion and kind of ``kind``."""
    return ResponseObject(kind, body).object


async def decode_list(kind: type[T], body: bytes) -> interfaces.ObjectList[T]:
    """Return the objects of a list in ``body``; the items get their apiVersion and kind.

    Objects that cannot be decoded are left out, so that one such object cannot make lists fail; ``skipped`` has the
    reasons.
    """
    listed = rest.decoded(rawjson.split_page, body)
    skipped: list[Exception] = []
    objects: interfaces.ObjectList[T] = interfaces.ObjectList()
    for number, item in enumerate(listed.items or (), 1):
        if (found := decode_listed(kind, bytes(item), skipped.append)) is not None:
            objects.append(found)
        if number % offload.STEP == 0:
            await anyio.lowlevel.checkpoint()
    objects.skipped = skipped
    objects.resource_version = listed.metadata.resource_version
    objects.continue_token = listed.metadata.continue_
    objects.remaining = listed.metadata.remaining_item_count
    return objects


def decode_listed(kind: type[T], text: bytes, skip: Callable[[Exception], object] | None = None) -> T | None:
    """Return an object of a list or watch.

    If the object is not of the kind or exceeds the limits of ``machinery.rawjson``, log its name, return None and call
    ``skip`` with the reason.
    """
    try:
        return decode(kind, text)
    except rest.AnswerError as error:
        group_kind, key = str(kind.gvk.group_kind), _key_of(text)
        _log.warning("Object skipped", kind=group_kind, object=key, reason=str(error))
        if skip is not None:
            skip(rest.AnswerError(f"{group_kind} {key}: {error}"))
        return None


def _key_of(text: bytes) -> str:
    """Return namespace and name of an object, or ``?`` if they cannot be read."""
    try:
        return str(ResponseObject(Object, text).key)
    except rest.AnswerError:
        return "?"


def check_single(obj: Object) -> None:
    """Raise InvalidRequestError for a list of objects, such as a ``v1`` List: the server stores only its items."""
    kind = type(obj).gvk.kind
    unnamed = kind.endswith("List") and not obj.name and not obj.metadata.generate_name
    if unnamed and isinstance(obj.to_dict().get("items"), list):
        text = "this is a list of objects; write each of its items"
        raise rest.InvalidRequestError(f"{type(obj).gvk.api_version} {kind}: {text}")


def apply_configuration(obj: Object) -> bytes:
    """Return ``obj`` as an apply configuration: the fields that were set, without Python defaults.

    The configuration has no ``managedFields``, which the server rejects.
    """
    fields = obj.metadata.managed_fields
    unset: dict[Any, Any] = {} if obj.applies_defaults else unset_fields(obj)
    if not unset and fields is None:
        return obj.to_json()
    if obj.applies_defaults:
        data = obj.to_dict()
        data["metadata"].pop("managedFields")
        return msgspec.json.encode(data)
    if fields is not None:
        unset["metadata"] = {**unset.get("metadata", {}), "managed_fields": True}
    body: bytes = obj.__pydantic_serializer__.to_json(obj, exclude_none=True, by_alias=True, exclude=unset)
    return body


def delete_options(**options: Unpack[DeleteOptions]) -> bytes:
    """Return the body of a deletion request, a DeleteOptions object."""
    body: dict[str, JSON] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if (propagation := options.get("propagation")) is not None:
        body["propagationPolicy"] = propagation
    if (grace_period := options.get("grace_period_seconds")) is not None:
        body["gracePeriodSeconds"] = grace_period
    if preconditions := options.get("preconditions"):
        body["preconditions"] = dict(preconditions)
    if options.get("dry_run"):
        body["dryRun"] = ["All"]
    return msgspec.json.encode(body)


def still_exists(answer: dict[str, JSON]) -> bool:
    """Return True if the server's response to a DELETE shows that the object still exists."""
    if answer.get("kind") == "Status":
        return False
    metadata, spec = answer.get("metadata"), answer.get("spec")
    if not isinstance(metadata, dict):
        return False
    waiting = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    waiting = waiting or (isinstance(spec, dict) and spec.get("finalizers"))  # those of a Namespace
    return bool(metadata.get("deletionTimestamp") and waiting)


def is_success(answer: dict[str, JSON]) -> bool:
    """Return True if a response is a Status that reports success."""
    return bool(answer.get("kind") == "Status" and answer.get("status") == "Success")
