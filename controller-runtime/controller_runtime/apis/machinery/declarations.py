# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Field declarations of structs: what authors of kinds write, and what the rest of the machinery reads.

A class body is only recorded when its class is created. Its annotations are evaluated when the fields are first
used, because a program imports many more kinds than it decodes.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic_core import PydanticUndefined

_CONSTANT: Final = re.compile(r"(?:\w+\.)*(ClassVar|Final)\b")
_WORD: Final = re.compile(r"[^\W\d]\w*")


class Converter(msgspec.Struct, frozen=True):
    """Metadata of a field: ``convert`` replaces a value before its type is checked.

    ::

        Quantity = Annotated[str, Converter(canonical_text)]
    """

    convert: Callable[[Any], Any]


_NO_EXTRAS: Final[Mapping[str, Any]] = types.MappingProxyType({})


class FieldInfo:
    """A field of a struct. Instances are shared by subclasses and must not be changed."""

    __slots__ = (
        "alias",
        "annotation",
        "default",
        "default_factory",
        "description",
        "exclude_if",
        "extras",
        "metadata",
    )

    def __init__(
        self,
        *,
        default: Any = PydanticUndefined,
        default_factory: Callable[[], Any] | None = None,
        alias: str | None = None,
        exclude_if: Callable[[Any], bool] | None = None,
        description: str | None = None,
    ) -> None:
        self.annotation: Any = None
        """The evaluated type, without ``Annotated``."""
        self.metadata: Sequence[Any] = ()
        """The metadata of ``Annotated``."""
        self.extras: Mapping[str, Any] = _NO_EXTRAS
        """Further keys of the field's core schema, from a field declared with pydantic's ``Field``."""
        self.default = default
        self.default_factory = default_factory
        self.alias = alias
        """The name on the wire."""
        self.exclude_if = exclude_if
        self.description = description

    def is_required(self) -> bool:
        """Return True if the field has no default."""
        return self.default is PydanticUndefined and self.default_factory is None

    def get_default(self) -> Any:
        """Return the default; a mutable one is not copied. Without one, the marker ``PydanticUndefined``."""
        return self.default if self.default_factory is None else self.default_factory()

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self.__slots__)
        return f"FieldInfo({', '.join(f'{name}={value!r}' for name, value in shown if value not in (None, (), {}))})"


def Field(  # noqa: N802  # the name that authors of pydantic models know
    *,
    default: Any = PydanticUndefined,
    default_factory: Callable[[], Any] | None = None,
    wire: str | None = None,
    exclude_if: Callable[[Any], bool] | None = None,
    description: str | None = None,
) -> Any:
    """Declare a field with more than a type and a default.

    ``wire`` is its JSON name if that is not the attribute in camelCase. A value for which ``exclude_if`` returns
    True is not written. ``default_factory`` returns the default of one object.
    """
    return FieldInfo(
        default=default,
        default_factory=default_factory,
        alias=wire,
        exclude_if=exclude_if,
        description=description,
    )


class Declared:
    """The field declarations of one class body. ``scope`` has the local names that its annotations mention."""

    __slots__ = ("_annotations", "_defaults", "_fields", "_scope")

    def __init__(
        self, annotations: Mapping[str, Any], defaults: Mapping[str, Any], scope: dict[str, Any]
    ) -> None:
        self._annotations: Mapping[str, Any] = annotations
        self._defaults = defaults
        self._scope = scope
        self._fields: dict[str, FieldInfo] | None = None

    @classmethod
    def taken_from(cls, namespace: dict[str, Any], depth: int) -> Declared:
        """Return the declarations in a class body, whose defaults are removed from it.

        ``depth`` is the number of frames between this function and the class statement's.

        Raises:
            TypeError: a private name is annotated.
        """
        annotations = {
            name: annotation
            for name, annotation in annotations_of(namespace).items()
            if not _is_constant(annotation, name in namespace)
        }
        if private := next((name for name in annotations if name.startswith("_")), None):
            raise TypeError(f"{private} is not a field, because it is private; declare it in __slots__")
        defaults = {name: namespace.pop(name) for name in annotations if name in namespace}
        scope: dict[str, Any] = {}
        if "<locals>" in namespace.get("__qualname__", ""):
            found = sys._getframe(depth + 1).f_locals
            scope = {name: found[name] for name in _mentioned(annotations.values()) if name in found}
        return cls(annotations, defaults, scope)

    @classmethod
    def of_mixin(cls, mixin: type) -> Declared | None:
        """Return the declarations of a base class that is not a struct."""
        values = mixin.__dict__
        annotations = annotations_of(values)  # without those of its bases
        if not annotations or mixin.__module__ == "typing":
            return None
        return cls(
            {name: each for name, each in annotations.items() if not _is_constant(each, name in values)},
            {name: values[name] for name in annotations if name in values},
            {},
        )

    def fields(self, owner: type, wire_name: Callable[[str], str] | None) -> dict[str, FieldInfo]:
        """Return the fields that ``owner`` declares.

        Raises:
            NameError: an annotation mentions an unknown name.
        """
        if self._fields is None:
            self._fields = {
                name: _field(
                    name,
                    self._evaluate(owner, name, raw),
                    self._defaults.get(name, PydanticUndefined),
                    wire_name,
                )
                for name, raw in self._annotations.items()
            }
            self._annotations, self._defaults, self._scope = {}, {}, {}
        return self._fields

    def _evaluate(self, owner: type, name: str, raw: Any) -> Any:
        if not isinstance(raw, str) and not _has_text(raw):
            return raw
        local = self._scope and {owner.__name__: owner, **self._scope}
        try:
            return _evaluated(owner.__module__, raw, local)
        except NameError:
            local = {**_frame_locals(owner), **vars(owner), owner.__name__: owner, **self._scope}
        try:
            return _evaluated(owner.__module__, raw, local)
        except NameError as error:
            raise NameError(f"field {name} of {owner.__qualname__}: {error}") from error


def taken_apart(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what ``typing.get_origin`` and ``typing.get_args`` return, in a tenth of their time for usual types."""
    kind = type(annotation)
    if kind is types.UnionType:
        return types.UnionType, annotation.__args__
    if kind is types.GenericAlias:
        return annotation.__origin__, annotation.__args__
    if isinstance(annotation, type):
        return None, ()
    return typing.get_origin(annotation), typing.get_args(annotation)


def annotations_of(namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotations in a class body, unevaluated where they are text or name what does not exist yet."""
    found: Mapping[str, Any] | None = namespace.get("__annotations__")
    if found is None and sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is not None:
            return annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF)
    return found or {}


def _is_constant(annotation: Any, has_value: bool) -> bool:
    if isinstance(annotation, str):
        match = _CONSTANT.match(annotation)
        return match is not None and (match[1] == "ClassVar" or has_value)
    origin = typing.get_origin(annotation) or annotation
    return origin is typing.ClassVar or (origin is Final and has_value)


def _mentioned(annotations: typing.Iterable[Any]) -> Iterator[str]:
    for each in annotations:
        yield from _WORD.findall(each if isinstance(each, str) else repr(each))


def _frame_locals(owner: type) -> Mapping[str, Any]:
    """Return the local names of the running function that defined ``owner``."""
    function = owner.__qualname__.rpartition(".<locals>.")[0]
    frame: types.FrameType | None = sys._getframe(1) if function else None
    while frame is not None:
        if frame.f_code.co_qualname == function:
            return frame.f_locals
        frame = frame.f_back
    return {}


_known: Final[dict[tuple[str, str], Any]] = {}
"""The annotations that are evaluated, by module and text: most texts, such as ``str | None``, are repeated."""


_ABSENT: Final = object()
_OR_NONE: Final = " | None"


def _evaluated(module: str, raw: Any, local: dict[str, Any]) -> Any:
    names = vars(sys.modules[module])
    if isinstance(raw, str):
        key = module, raw
        if local or key not in _known:
            found = _without_text(_of_text(raw, names, local), names, local)
            if local:
                return found
            _known[key] = found
        return _known[key]
    return _without_text(raw, names, local)


def _of_text(text: str, names: dict[str, Any], local: dict[str, Any]) -> Any:
    """Return what an annotation means; names, lists of them and ``| None`` are not compiled, which takes 20 µs."""
    if text.isidentifier() and not local and (found := names.get(text, _ABSENT)) is not _ABSENT:
        return found
    if text.endswith(_OR_NONE):
        return _of_text(text.removesuffix(_OR_NONE), names, local) | None
    if text.startswith("list[") and (item := text[5:-1]).isidentifier() and names.get("list", list) is list:
        return list[_of_text(item, names, local)]  # type: ignore[misc]
    return eval(text, names, local)  # noqa: S307  # text of a class body


def _without_text(found: Any, names: dict[str, Any], local: dict[str, Any]) -> Any:
    """Return an annotation with its parts that are still text evaluated, as in ``list["Shelf"]``."""
    if not _has_text(found):
        return found
    holder = types.SimpleNamespace(__annotations__={"it": found})
    return typing.get_type_hints(holder, names, local, include_extras=True)["it"]


def _has_text(annotation: Any) -> bool:
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    origin, arguments = taken_apart(annotation)
    if origin is None or origin is typing.Literal:
        return False
    return any(map(_has_text, arguments[:1] if origin is typing.Annotated else arguments))


def _field(name: str, annotation: Any, default: Any, wire_name: Callable[[str], str] | None) -> FieldInfo:
    made = FieldInfo()
    metadata: list[Any] = []
    origin, arguments = taken_apart(annotation)
    if origin is typing.Annotated:
        annotation, *metadata = arguments
    made.annotation = annotation
    made.metadata = tuple(
        each for each in metadata if not (isinstance(each, FieldInfo) or is_pydantic_field(each))
    )
    for each in metadata:
        if isinstance(each, FieldInfo) or is_pydantic_field(each):
            _merge(made, each)
    if isinstance(default, FieldInfo) or is_pydantic_field(default):
        _merge(made, default)
    elif default is not PydanticUndefined:
        made.default = default
    if made.alias is None and wire_name is not None:
        made.alias = wire_name(name)
    return made


def _merge(made: FieldInfo, declared: Any) -> None:
    if not isinstance(declared, FieldInfo):
        from .pydanticparts import converted_field  # its caller imported pydantic

        declared = converted_field(declared)
    for name in ("alias", "default_factory", "description", "exclude_if"):
        if (value := getattr(declared, name)) is not None:
            setattr(made, name, value)
    if declared.default is not PydanticUndefined:
        made.default = declared.default
    made.metadata = (*made.metadata, *declared.metadata)
    made.extras = {**made.extras, **declared.extras} or _NO_EXTRAS


def is_pydantic_field(value: object) -> bool:
    """Return True for what pydantic's ``Field`` returns; pydantic is not imported."""
    return hasattr(value, "_attributes_set") and type(value).__module__.startswith("pydantic.")
