# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Conversion of objects between the versions of their kind, and the webhook for it.

One version of a kind is the hub. A :class:`Spoke` converts another version to the hub and back; all conversions go
through the hub. :class:`Conversions` contains the versions of several kinds, because a webhook server has one path for
all of them, :data:`CONVERSION_PATH`. :class:`ConversionWebhook` answers a ConversionReview with all objects in the
requested version. If an object cannot be converted, it answers with the reasons and without objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

import msgspec
import pydantic_core

from controller_runtime import fairness, log, metrics, offload
from controller_runtime.machinery import GVK, GroupKind, Object, raised, rawjson
from controller_runtime.machinery.errors import first_problem
from controller_runtime.serving import HTTPRequest, HTTPResponse

from . import admission
from .review import BODY, BadReviewError, Endpoint, content
from .review import JSON as JSON_TYPE

if TYPE_CHECKING:
    from controller_runtime.apis.apiextensions.v1 import CustomResourceDefinition

CONVERSION_PATH: Final = "/convert"
"""The path of the webhook. Go's controller-runtime and generated CustomResourceDefinitions use the same path."""

_VERSION: Final = "apiextensions.k8s.io/v1"
_MOST_ERRORS: Final = 20
"""If this many objects of a review have failed, no further object is converted."""

_log = log.logger_from("conversion-webhook")

H = TypeVar("H", bound=Object)
S = TypeVar("S", bound=Object)


class ConversionError(Exception):
    """An object cannot be converted. Converters may raise this error; the API server's client sees the message."""


class Convertible(Protocol[H]):
    """A kind that converts itself to and from the hub ``H``, like Go's ``conversion.Convertible``."""

    def convert_to_hub(self) -> H:
        """Return this object in the hub's version."""

    @classmethod
    def convert_from_hub(cls, hub: H, /) -> Self:
        """Return ``hub`` in this version."""


@dataclass(frozen=True, slots=True)
class Spoke(Generic[S, H]):
    """Converts objects of ``kind`` to the hub's version and back.

    Both functions must return a new object and have no side effects, because large objects are converted in a thread.
    If the result has no metadata, it gets the metadata of the source. The API server accepts changes of labels and
    annotations, but not of name, namespace and uid.
    """

    kind: type[S]
    to_hub: Callable[[S], H]
    from_hub: Callable[[H], S]


def spoke_of(kind: type[Any]) -> Spoke[Any, Any]:
    """Return the spoke for a :class:`Convertible` kind.

    Raises:
        ValueError: the kind lacks one of the methods.
    """
    missing = [name for name in ("convert_to_hub", "convert_from_hub") if not hasattr(kind, name)]
    if missing:
        raise ValueError(f"{kind.gvk} cannot be converted: it has no {' and no '.join(missing)}")
    return Spoke(kind, kind.convert_to_hub, kind.convert_from_hub)


class Conversions:
    """Converts objects between any two versions of a registered kind."""

    def __init__(self) -> None:
        self._versions: dict[GroupKind, dict[str, Spoke[Any, Any]]] = {}

    def register(self, hub: type[H], *spokes: Spoke[Any, H]) -> None:
        """Register a kind, with the version of ``hub`` and the versions of ``spokes``.

        Raises:
            ValueError: a spoke is of another kind, a version is given twice, or the kind is registered already.
        """
        name = hub.gvk.group_kind
        if name in self._versions:
            raise ValueError(f"conversion of {name} is registered already")
        versions: dict[str, Spoke[Any, Any]] = {hub.gvk.version: Spoke(hub, _same, _same)}
        for spoke in spokes:
            gvk = spoke.kind.gvk
            if gvk.group_kind != name:
                raise ValueError(f"conversion of {name}: {gvk} is another kind")
            if gvk.version in versions:
                raise ValueError(f"conversion of {name}: version {gvk.version} is given twice")
            versions[gvk.version] = spoke
        self._versions[name] = versions

    def check(self, kind: GroupKind, versions: Iterable[str]) -> None:
        """Check that ``kind`` can be converted between all of ``versions``.

        Raises:
            ValueError: some of the versions have no converter; the message names these versions.
        """
        missing = sorted(set(versions) - self._versions.get(kind, {}).keys())
        if missing:
            raise ValueError(f"conversion of {kind}: no converter for {', '.join(missing)}")

    def check_crd(self, crd: CustomResourceDefinition) -> None:
        """Check that every version in a CustomResourceDefinition can be converted. Raises like :meth:`check`."""
        names = crd.spec.names
        kind = GroupKind(crd.spec.group, names.kind if names is not None else "")
        self.check(kind, (version.name for version in crd.spec.versions or ()))

    def convert(self, data: bytes, api_version: str) -> bytes:
        """Convert the object in the JSON text ``data`` to ``api_version``, and return it as JSON text.

        Raises:
            ConversionError: one of the versions is unknown, the object is not valid, or a converter rejects it.
        """
        head = _head(data)
        gvk, wanted = _gvk(head.api_version, head.kind), _gvk(api_version, head.kind)
        if gvk == wanted:
            return data
        name = f"{gvk.kind} {head.metadata.named}"
        if gvk.group != wanted.group:
            raise ConversionError(f"{name}: cannot be converted from group {gvk.group!r} to {wanted.group!r}")
        source, target = self._spoke(gvk, name), self._spoke(wanted, name)
        if (reason := rawjson.check(data)) is not None:
            raise ConversionError(f"{name}: the object is too large: it has {reason}")
        try:
            given = source.kind.from_json(data)
            converted = target.from_hub(_with_metadata(given, source.to_hub(given)))
        except pydantic_core.ValidationError as error:
            path, problem = first_problem(error)
            raise ConversionError(f"{name}: {log.cut(path)}: {log.cut(problem)}") from error
        except ConversionError as error:
            raise ConversionError(f"{name}: {raised.text(error)}") from error
        if not isinstance(converted, target.kind):
            raise TypeError(f"{name}: converter for {wanted} returned {type(converted).__name__}")
        answer: bytes = _with_metadata(given, converted).to_json()
        return answer

    def _spoke(self, gvk: GVK, name: str) -> Spoke[Any, Any]:
        spoke = self._versions.get(gvk.group_kind, {}).get(gvk.version)
        if spoke is None:
            raise ConversionError(f"{name}: no converter for {gvk}")
        return spoke


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""

    @property
    def named(self) -> str:
        return log.cut(f"{self.namespace}/{self.name}" if self.namespace else self.name)


class _Head(msgspec.Struct, rename="camel"):
    """The identifying fields of an object."""

    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_HEADS: Final = msgspec.json.Decoder(_Head)


def _head(data: bytes) -> _Head:
    try:
        return _HEADS.decode(data)
    except rawjson.UNREADABLE as error:
        raise ConversionError(f"the object cannot be decoded: {log.cut(str(error))}") from error


def _gvk(api_version: str, kind: str) -> GVK:
    try:
        return GVK.parse(log.cut(api_version), log.cut(kind))
    except ValueError as error:
        raise ConversionError(str(error)) from error


def _with_metadata(source: Object, converted: H) -> H:
    if converted is not source and "metadata" not in converted.model_fields_set:
        converted.metadata = source.metadata
    return converted


def _same(hub: H) -> H:
    return hub


class _ConversionRequest(msgspec.Struct, rename={"desired_api_version": "desiredAPIVersion"}):
    uid: str
    desired_api_version: str
    objects: list[msgspec.Raw] = []


class _Result(msgspec.Struct, omit_defaults=True):
    status: str
    message: str = ""


class _ConversionResponse(msgspec.Struct, rename="camel"):
    uid: str
    converted_objects: list[msgspec.Raw]
    result: _Result


class _ConversionReview(msgspec.Struct, rename="camel"):
    """The review that the API server sends. It also has an empty response, which is ignored."""

    api_version: str = ""
    kind: str = ""
    request: _ConversionRequest | None = None


class _Answer(msgspec.Struct, rename="camel"):
    response: _ConversionResponse
    api_version: str = _VERSION
    kind: str = "ConversionReview"


_REVIEWS: Final = msgspec.json.Decoder(_ConversionReview)


class ConversionWebhook(Endpoint):
    """Serves ``conversions`` at ``path``."""

    def __init__(self, conversions: Conversions, path: str = CONVERSION_PATH) -> None:
        super().__init__(path)
        self._conversions = conversions

    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one ConversionReview."""
        try:
            asked = _request_of(content(request))
        except BadReviewError as error:
            return self.unreadable(error.code, str(error))
        converted: list[msgspec.Raw] = []
        errors: list[str] = []
        for raw in asked.objects:
            try:
                converted.append(msgspec.Raw(await self._convert(bytes(raw), asked.desired_api_version)))
            except ConversionError as error:
                errors.append(log.cut(raised.text(error), admission.LONGEST_MESSAGE))
                if len(errors) == _MOST_ERRORS:
                    break
        if errors:
            converted = []
            result = _Result("Failed", log.cut("; ".join(errors), admission.LONGEST_MESSAGE))
        else:
            result = _Result("Success")
        answer = _Answer(_ConversionResponse(asked.uid, converted, result))
        return HTTPResponse(body=msgspec.json.encode(answer), content_type=JSON_TYPE)

    async def _convert(self, data: bytes, api_version: str) -> bytes:
        # A small object is converted at once, so its namespace does not matter.
        namespace = _head(data).metadata.namespace if len(data) > offload.LARGE else ""
        tenant = fairness.Tenant(namespace, is_review=True)
        with fairness.working_for(tenant), offload.object_size(len(data)):
            try:
                return await offload.run(self._conversions.convert, data, api_version)
            except ConversionError:
                raise
            except raised.FAILURES as error:
                failure = raised.as_error_of_plain_task(error)
                metrics.CONVERSION_PANICS.inc()
                if (held_back := self.log_limiter.allow()) is not None:
                    _log.error("Observed a panic in conversion webhook", error=failure, **held_back)
                text = f"panic: {raised.name(failure)}: {log.cut(log.describe(failure))} [recovered]"
                raise ConversionError(text) from error


def _request_of(body: bytes) -> _ConversionRequest:
    if (reason := rawjson.check(body, BODY)) is not None:
        raise BadReviewError(f"ConversionReview is too large: it has {reason}", code=413)
    try:
        review = _REVIEWS.decode(body)
    except rawjson.UNREADABLE as error:
        raise BadReviewError(f"body is not a ConversionReview: {log.cut(str(error))}") from error
    if (review.api_version, review.kind) != (_VERSION, "ConversionReview"):
        text = f"{log.cut(review.api_version)}, Kind={log.cut(review.kind)}"
        raise BadReviewError(f"body is not a ConversionReview of {_VERSION}: {text}")
    if review.request is None or not review.request.uid:
        raise BadReviewError("ConversionReview has no request, or a request without uid")
    if len(review.request.uid) > log.CUT:
        raise BadReviewError(f"uid of the ConversionReview is longer than {log.CUT} characters")
    return review.request
