# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Object: the base class of all kinds with metadata: typed, unstructured or metadata only."""

from __future__ import annotations

import types
from functools import lru_cache
from typing import Any, ClassVar, Final, Self, TypeVar, cast

from pydantic import Field

from .base import JSON, Struct
from .gvk import GVK, NamespacedName, Resource
from .meta import ObjectMeta

T = TypeVar("T", bound="Object")
IDENTIFYING: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""The metadata fields that identify an object and its state; no field manager owns them."""


class Object(Struct):
    """A kind, declared with its names: ``class TrainJob(Object, group=…, version=…, plural=…)``.

    ``kind`` defaults to the class's name. ``gvk`` and ``resource`` are class attributes. Without ``plural``
    (see :func:`unstructured` and :func:`metadata_only`), ``resource`` is None and the client uses discovery.
    """

    __slots__ = ("_size",)

    gvk: ClassVar[GVK]
    resource: ClassVar[Resource | None] = None

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    def __init_subclass__(
        cls,
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        namespaced: bool = True,
        **kwargs: Any,
    ) -> None:
        """Set the class's names; a class with neither ``version`` nor ``kind`` is a base class."""
        super().__init_subclass__(**kwargs)
        kind = kind or (cls.__name__ if version else "")
        if kind:
            cls.gvk = GVK(group, version, kind)
            cls.resource = Resource(group, version, plural, namespaced) if plural else None

    def model_post_init(self, context: object, /) -> None:
        """Set ``apiVersion`` and ``kind`` if the caller did not. Another kind is an error."""
        gvk = getattr(type(self), "gvk", None)
        if gvk is None:
            return
        # Bypasses pydantic's assignment, which costs as much as decoding a small object.
        values, known = self.__dict__, self.__pydantic_fields_set__
        if values["api_version"] is None:
            values["api_version"] = gvk.api_version
            known.add("api_version")
        if values["kind"] is None:
            values["kind"] = gvk.kind
            known.add("kind")
        elif values["kind"] != gvk.kind and not issubclass(type(self), PartialObjectMetadata):
            raise ValueError(f"kind is {values['kind']}, not {gvk.kind}")

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decode JSON text and set :attr:`decoded_size`. Raises like :meth:`from_dict`."""
        decoded = super().from_json(data)
        object.__setattr__(decoded, "_size", len(data))
        return decoded

    @classmethod
    def of_metadata(cls, metadata: ObjectMeta) -> Self:
        """Return an object of this kind with only ``metadata``, which is not copied."""
        return cls.model_construct(api_version=cls.gvk.api_version, kind=cls.gvk.kind, metadata=metadata)

    def deep_copy(self) -> Self:
        """Return a copy that shares no data with this object."""
        return self._sized(super().deep_copy())

    def shallow_copy(self) -> Self:
        """Return a copy whose fields may be replaced independently; their values are shared."""
        return self._sized(super().shallow_copy())

    def _sized(self, copied: Self) -> Self:
        if size := self.decoded_size:
            object.__setattr__(copied, "_size", size)
        return copied

    @property
    def decoded_size(self) -> int:
        """Size in bytes of the text that this object or its original was decoded from; 0 if there was none."""
        try:
            size: int = object.__getattribute__(self, "_size")
        except AttributeError:
            return 0
        return size

    @property
    def key(self) -> NamespacedName:
        """Namespace and name; empty strings if unset."""
        metadata = self.metadata
        # A named tuple's constructor is a Python function.
        return tuple.__new__(NamespacedName, (metadata.namespace or "", metadata.name or ""))

    @property
    def name(self) -> str:
        """``metadata.name``, or the empty string."""
        return self.metadata.name or ""

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, or the empty string."""
        return self.metadata.namespace or ""

    @property
    def labels(self) -> dict[str, str]:
        """The labels, or a new empty map if there are none; to add labels, set ``metadata.labels``."""
        return self.metadata.labels if self.metadata.labels is not None else {}

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations, with the same rules as :attr:`labels`."""
        return self.metadata.annotations if self.metadata.annotations is not None else {}

    def to_dict(self) -> dict[str, JSON]:
        """Return the wire form, without ``metadata``, ``spec`` and ``status`` if they were not set."""
        return self.model_dump(exclude_none=True, exclude=self._unset_parts())

    def to_json(self) -> bytes:
        """Return :meth:`to_dict` as compact JSON text."""
        data: bytes = self.__pydantic_serializer__.to_json(
            self, exclude_none=True, by_alias=True, exclude=self._unset_parts()
        )
        return data

    def _unset_parts(self) -> set[str] | None:
        """Return the top-level structs that were created by default and have no field set."""
        unset: set[str] | None = None
        for part in ("metadata", "spec", "status"):
            if part in self.model_fields_set:
                continue
            value = getattr(self, part, None)
            if isinstance(value, Struct) and not value.to_dict():
                unset = (unset or set()) | {part}
        return unset


class Unstructured(Object):
    """An object whose content is plain JSON; ``obj["spec"]``, ``obj.nested("spec", "template")``."""

    takes_any_field: ClassVar[bool] = True

    def __getitem__(self, field: str) -> JSON:
        """Return a top-level field other than apiVersion, kind and metadata; KeyError if it is absent."""
        return self.unknown_fields[field]

    def __setitem__(self, field: str, value: JSON) -> None:
        """Set a top-level field."""
        extra = self.__pydantic_extra__
        if extra is None:
            extra = self.__pydantic_extra__ = {}
        extra[field] = value

    def nested(self, *path: str) -> JSON:
        """Return the value at ``path``, or None if a step is missing or its parent is not a map."""
        value: JSON = self.unknown_fields
        for step in path:
            if not isinstance(value, dict) or step not in value:
                return None
            value = value[step]
        return value

    @classmethod
    def wrap(cls, data: dict[str, JSON]) -> Self:
        """Return ``data`` as an object of the class for its apiVersion and kind."""
        gvk = GVK.parse(str(data.get("apiVersion", "")), str(data.get("kind", "")))
        kind = unstructured(gvk)
        if not issubclass(kind, cls):
            raise TypeError(f"{gvk} is not a {cls.__name__}")
        return kind.from_dict(data)


class PartialObjectMetadata(Object):
    """An object of which only the metadata is read; create its class with :func:`metadata_only`."""


@lru_cache(maxsize=1024)
def unstructured(gvk: GVK) -> type[Unstructured]:
    """Return the class for a kind without a model; calls for the same kind return the same class."""
    return _of(Unstructured, gvk)


@lru_cache(maxsize=1024)
def metadata_only(kind: type[Object] | GVK) -> type[PartialObjectMetadata]:
    """Return the class that represents ``kind`` when only metadata is listed, watched and read.

    Its instances have the ``apiVersion`` and ``kind`` of ``kind``.
    """
    if isinstance(kind, GVK):
        return _of(PartialObjectMetadata, kind)
    cls = _of(PartialObjectMetadata, kind.gvk)
    cls.resource = kind.resource
    return cls


def _of(base: type[T], gvk: GVK) -> type[T]:
    # types.new_class passes the class keywords to the metaclass.
    made = types.new_class(
        gvk.kind, (base,), {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}, _same_module
    )
    return cast("type[T]", made)


def _same_module(namespace: dict[str, object]) -> None:
    namespace["__module__"] = __name__
