# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Object, the base class of all kinds; LazyObject, an object that is decoded when it is read; Scheme, the known kinds.

Watch events, cached reads and responses to writes contain lazy objects. Most handlers and writers need only a key, a
version or an owner, and decoding an object costs a hundred times as much as extracting these from its text.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, cast

import msgspec
from pydantic import Field

from . import rawjson
from .base import JSON, MASK, Struct, check_secret_values
from .meta import ObjectMeta, OwnerReference
from .names import GVK, NamespacedName, Resource

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound="Object")
V = TypeVar("V", bound=msgspec.Struct)
T_co = TypeVar("T_co", bound="Object", covariant=True)

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
_NULL: Final = b"null"


class _Empty(dict[str, str]):
    """An empty map that cannot be changed, because the change would not reach the object."""

    def __init__(self, field: str) -> None:
        self._field = field

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"the object has no {self._field}: set metadata.{self._field} to a map")

    __setitem__ = __ior__ = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[()]]:
        return dict, ()


_NO_LABELS: Final = _Empty("labels")
_NO_ANNOTATIONS: Final = _Empty("annotations")


class NoKindError(AttributeError, TypeError):
    """A class without a group, version and kind is used as a kind.

    It is an AttributeError, too, so that ``hasattr(cls, "gvk")`` and ``unittest.mock`` work as with any other class.
    """


if TYPE_CHECKING:  # for checkers, only pydantic's own metaclass makes fields arguments
    from pydantic._internal._model_construction import ModelMetaclass as _KindType
else:

    class _KindType(type(Struct)):
        def __getattr__(cls, name: str) -> Any:
            if name == "gvk":
                raise NoKindError(f"{cls.__name__} has no group, version and kind; {_remedy(cls)}")
            return super().__getattr__(name)


def _remedy(owner: type[Object]) -> str:
    if issubclass(owner, Unstructured):
        return "use ctrl.unstructured(ctrl.GVK(…)), or ctrl.Unstructured.wrap(…) for an object as a dict"
    if issubclass(owner, PartialObjectMetadata):
        return "use ctrl.metadata_only(…)"
    return f"declare them, as in class {owner.__name__}(…, group=…, version=…, plural=…)"


def _write_inside(value: object, write: Callable[[Any], Any]) -> Any:
    """Write an object that is the value of a field, such as a template, as it is written by itself."""
    written = write(value)
    for part in (isinstance(value, Object) and value._unset_parts()) or ():
        written.pop(part, None)
    return written


class Object(Struct, metaclass=_KindType):
    """A kind, declared with its names: ``class CronTab(Object, group=…, version=…, plural=…)``.

    ``kind`` defaults to the class's name. ``gvk`` and ``resource`` are class attributes. Without ``plural``
    (see :func:`unstructured` and :func:`metadata_only`), ``resource`` is None and the client uses discovery.
    """

    __slots__ = ("_size",)

    keeps_size: ClassVar[bool] = True
    gvk: ClassVar[GVK]
    resource: ClassVar[Resource | None] = None
    write_inside = staticmethod(_write_inside)
    applies_defaults: ClassVar[bool] = False
    """True if server-side apply also sends fields that were not set and that have a default other than None.

    This is for kinds whose defaults are the zero values that a typed Go client sends and owns.
    """

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
        """Set the class's names; a class with neither ``version`` nor ``kind`` is a base class.

        Raises:
            TypeError: the class declaration has an unknown keyword.
        """
        if kwargs:
            known = "group, version, kind, plural, namespaced"
            raise TypeError(
                f"{cls.__name__} has the unknown keyword {next(iter(kwargs))}; a kind has {known}"
            )
        super().__init_subclass__()
        kind = kind or (cls.__name__ if version else "")
        if kind:
            cls.gvk = GVK(group, version, kind)
            cls.resource = Resource(group, version, plural, namespaced) if plural else None

    def model_post_init(self, context: object, /) -> None:
        """Set ``apiVersion`` and ``kind`` if the caller did not.

        Raises:
            ValueError: ``kind`` differs from the kind of the class; PartialObjectMetadata accepts any kind.
        """
        gvk = getattr(type(self), "gvk", None)
        if gvk is None:
            return
        # Bypasses pydantic's assignment, which costs as much as decoding a small object.
        values, known = self.__dict__, self.__pydantic_fields_set__
        if values["api_version"] is None:
            values["api_version"] = f"{gvk.group}/{gvk.version}" if gvk.group else gvk.version
            known.add("api_version")
        if values["kind"] is None:
            values["kind"] = gvk.kind
            known.add("kind")
        elif values["kind"] != gvk.kind and not issubclass(type(self), PartialObjectMetadata):
            raise ValueError(f"kind is {values['kind']}, not {gvk.kind}")

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
        """Size in bytes of the text that the object was decoded from, or 0 if there was none. Copies keep the size."""
        try:
            size: int = object.__getattribute__(self, "_size")
        except AttributeError:
            return 0
        return size

    @property
    def key(self) -> NamespacedName:
        """Namespace and name; empty strings if unset."""
        metadata = self.metadata
        return NamespacedName(metadata.namespace or "", metadata.name or "")

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
        """The labels, or an empty map that cannot be changed if there are none: to add the first, set
        ``metadata.labels``.
        """
        return self.metadata.labels if self.metadata.labels is not None else _NO_LABELS

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations, or an empty map that cannot be changed if there are none: to add the first, set
        ``metadata.annotations``.
        """
        return self.metadata.annotations if self.metadata.annotations is not None else _NO_ANNOTATIONS

    def to_dict(self) -> dict[str, JSON]:
        """Return the wire form.

        An empty ``metadata``, ``spec`` or ``status`` that was created by default is left out.
        """
        return self.model_dump(mode="json", exclude_none=True, exclude=self._unset_parts())

    def to_json(self) -> bytes:
        """Return :meth:`to_dict` as compact JSON text. Raises like :meth:`Struct.to_json`."""
        data: bytes = self.__pydantic_serializer__.to_json(
            self, exclude_none=True, by_alias=True, exclude=self._unset_parts()
        )
        if MASK in data:
            check_secret_values(self)
        return data

    def _unset_parts(self) -> set[str] | None:
        """Return the names of top-level structs that were created by default and are still empty."""
        unset: set[str] | None = None
        known = self.__pydantic_fields_set__  # the property of this set takes five times as long
        for part in ("metadata", "spec", "status"):
            if part in known:
                continue
            value = self.__dict__.get(part)
            if isinstance(value, Struct) and not value.to_dict():
                unset = (unset or set()) | {part}
        return unset


class Unstructured(Object):
    """An object whose content is plain JSON, read as ``obj["spec"]`` or ``obj.nested("spec", "template")``."""

    accepts_unknown_fields: ClassVar[bool] = True

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
        """Return the value at ``path``, or None if the path does not exist or leads into a value that is not a map."""
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

    Clients return objects of this class with the ``apiVersion`` and ``kind`` of the full object, not those of
    PartialObjectMetadata.
    """
    if isinstance(kind, GVK):
        return _of(PartialObjectMetadata, kind)
    cls = _of(PartialObjectMetadata, kind.gvk)
    cls.resource = kind.resource
    return cls


def _of(base: type[T], gvk: GVK) -> type[T]:
    # types.new_class passes the class keywords to the metaclass.
    made = types.new_class(
        gvk.kind, (base,), gvk._asdict(), lambda namespace: namespace.update(__module__=__name__)
    )
    return cast("type[T]", made)


class Owner(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An owner reference read from the text of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


Owners = Sequence[Owner | OwnerReference]


class LazyObject(Generic[T_co]):
    """An object of class ``kind`` that is decoded when it is read.

    The object, the result of :meth:`only` and the metadata are each decoded once and kept. :meth:`part` and
    :attr:`owner_references` read the text again on each call, unless the object is already decoded. Several readers may
    share a lazy object, so the returned values must not be changed. Decoding raises ``pydantic.ValidationError`` if the
    text does not match ``kind``. A subclass may refuse to decode large objects, and may raise its own error.
    """

    __slots__ = ("_metadata", "_object", "_only", "_view", "kind", "own_write", "text")

    sent: bytes | None = None
    """The body of the request that this object answers; None if there was none, or if the client does not keep it."""

    def __init__(self, kind: type[T_co], text: bytes | None = None, known: T_co | None = None) -> None:
        """``known`` is the object if it is already decoded; otherwise ``text`` is required."""
        self.kind = kind
        self.text = text
        self.own_write = False
        """True if the cache's client wrote this state. If the state comes from a list, this is False: another writer
        may have changed the object before the client's write. It is False, too, for the first state after a deletion,
        in which the object still has finalizers."""
        self._object = known
        self._metadata: ObjectMeta | None = None
        self._only: tuple[tuple[str, ...], T_co] | None = None
        self._view: msgspec.Struct | None = None

    @staticmethod
    def of(obj: T | LazyObject[T]) -> LazyObject[T]:
        """Return ``obj`` as a LazyObject; a LazyObject is returned unchanged."""
        return obj if isinstance(obj, LazyObject) else LazyObject(type(obj), known=obj)

    @property
    def known(self) -> T_co | None:
        """The object if it is already decoded."""
        return self._object

    @property
    def object(self) -> T_co:
        """The decoded object."""
        if self._object is None:
            self._object = self._decode()
        return self._object

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata, possibly without ``managedFields``; readable even if the rest of the object is malformed."""
        if self._object is not None:
            return self._object.metadata
        if self._metadata is None:
            self._metadata = self._decode_metadata()
        return self._metadata

    def part(self, name: str, kind: type[S]) -> S:
        """Return the field ``name`` as an instance of ``kind``; if the field is absent, return an empty instance.

        The attribute and the field in JSON must have the same name. The field is readable even if the rest of the
        object is malformed.
        """
        whole = self._object
        if whole is None and self._only is not None and name in self._only[0]:
            whole = self._only[1]
        if whole is None and (decoded := self._decode_part(name, kind)) is not None:
            return decoded
        value: S = getattr(self.object if whole is None else whole, name)
        return value

    def only(self, *names: str) -> T_co:
        """Return the object with only its metadata and the fields ``names``; the other fields have their defaults.

        Consecutive calls with the same names return the same object. If the whole object is already decoded, it is
        returned. The attributes and the fields in JSON must have the same names.
        """
        if self._object is not None:
            return self._object
        if self._only is None or self._only[0] != names:
            self._only = names, self._decode_only(names)
        return self._only[1]

    def view(self, shape: type[V]) -> V | None:
        """Return the fields that ``shape`` declares; consecutive calls with the same shape return the same value.

        The result is None if the object is already decoded or its text does not match ``shape``. The caller must then
        read :attr:`object`.
        """
        if self._object is not None:
            return None
        if type(self._view) is not shape:
            try:
                self._view = self._decode_view(shape)
            except rawjson.UNREADABLE:
                return None  # decoding the object reports the error
        return self._view

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return NamespacedName(self.metadata.namespace or "", self.metadata.name or "")

    @property
    def uid(self) -> str:
        """``metadata.uid``, or the empty string."""
        return self.metadata.uid or ""

    @property
    def resource_version(self) -> str:
        """``metadata.resourceVersion``, or the empty string."""
        return self.metadata.resource_version or ""

    @property
    def owner_references(self) -> Owners:
        """The owner references; reading them costs a tenth of reading :attr:`metadata`."""
        if self._object is None and self._metadata is None and self.text is not None:
            try:
                return _decode_owned(self.text).metadata.owner_references or ()
            except rawjson.UNREADABLE:
                pass  # decoding the metadata reports the error
        return self.metadata.owner_references or ()

    def _decode(self) -> T_co:
        return self.kind.from_json(self.text or b"")

    def _decode_view(self, shape: type[V]) -> V | None:
        """Return the fields of ``shape``, or None if the caller must decode the whole object."""
        seen: V = _viewer(shape).decode(self.text or b"")
        return seen

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        """Return the field, or None if the caller must decode the whole object."""
        text = bytes(rawjson.parts(self.text or b"").get(name, _NULL))
        return kind() if text == _NULL else kind.from_json(text)

    def _decode_only(self, names: tuple[str, ...]) -> T_co:
        parts = rawjson.parts(self.text or b"")
        return self.kind.from_json(
            msgspec.json.encode({name: parts[name] for name in ("metadata", *names) if name in parts})
        )

    def _decode_metadata(self) -> ObjectMeta:
        return ObjectMeta.from_json(rawjson.metadata_text(self.text or b""))


@lru_cache(maxsize=64)
def _viewer(shape: type[V]) -> msgspec.json.Decoder[V]:
    return msgspec.json.Decoder(shape)


class _OwnedMeta(msgspec.Struct, rename="camel"):
    owner_references: list[Owner] | None = None


class _Owned(msgspec.Struct):
    metadata: _OwnedMeta


_decode_owned: Final = msgspec.json.Decoder(_Owned).decode


class Scheme:
    """A registry of kinds. Registering two classes for one kind is an error."""

    def __init__(
        self, *kinds: type[Object], later: Callable[[], Iterable[type[Object]]] | None = None
    ) -> None:
        """Register ``kinds``.

        ``later`` returns further kinds. It is called when the scheme is first used, because importing kinds is
        expensive.
        """
        self._known: dict[GVK, type[Object]] = {}
        self._later = later
        if kinds:
            self.register(*kinds)

    @property
    def _kinds(self) -> dict[GVK, type[Object]]:
        if self._later is not None:
            later, self._later = self._later, None
            self.register(*later())
        return self._known

    def register(self, *kinds: type[Object]) -> None:
        """Add kinds.

        Raises:
            ValueError: another class is registered for the same kind.
        """
        for kind in kinds:
            known = self._kinds.setdefault(kind.gvk, kind)
            if known is not kind:
                raise ValueError(f"{kind.gvk} is registered as {known.__qualname__} already")

    def kind_for(self, gvk: GVK) -> type[Object]:
        """Return the class for ``gvk``, or an unstructured one if there is no model."""
        return self._kinds.get(gvk) or unstructured(gvk)

    def decode(self, data: dict[str, JSON]) -> Object:
        """Return ``data`` as an object of the class for its apiVersion and kind."""
        gvk = GVK.parse(str(data.get("apiVersion") or ""), str(data.get("kind") or ""))
        return self.kind_for(gvk).from_dict(data)

    def __contains__(self, gvk: GVK) -> bool:
        return gvk in self._kinds

    def __iter__(self) -> Iterator[type[Object]]:
        return iter(self._kinds.values())


def check_object(value: object, argument: str = "obj") -> None:
    """Raise TypeError for an argument that is not an object of a kind, such as ``ConfigMap(…)``."""
    if Object in type(value).__mro__:  # pydantic's own ``isinstance`` takes ten times as long
        return
    if isinstance(value, type):
        hint = f"not the class {value.__name__}"
    elif isinstance(value, Mapping):
        hint = "not a map; use the kind's from_dict(…), or ctrl.Unstructured.wrap(…)"
    else:
        hint = f"not {value!r:.100}"
    raise TypeError(f"{argument} must be an object of a kind, such as ConfigMap(…), {hint}")


def check_kind(value: object, argument: str = "kind") -> None:
    """Raise TypeError for an argument that is not the class of a kind, such as ``ConfigMap``."""
    if isinstance(value, type):
        if Object in value.__mro__:
            return
        hint = f"not {value.__name__}, which is no subclass of ctrl.Object"
    elif Object in type(value).__mro__:
        hint = f"not an object: pass {type(value).__name__}"
    elif isinstance(value, GVK):
        hint = "not a GVK; use ctrl.unstructured(…)"
    else:
        hint = f"not {value!r:.100}"
    raise TypeError(f"{argument} must be the class of a kind, such as ConfigMap, {hint}")
