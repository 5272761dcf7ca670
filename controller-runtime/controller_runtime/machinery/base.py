# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The base class of all API structs: pydantic models with snake_case attributes and camelCase JSON.

One class serves as the typed object, the patch and the apply configuration: a field that is ``None`` is
not written; an empty list or map is written. Fields that the model does not declare, for instance from a newer
server, are kept as decoded JSON and written back. Decoding is strict about JSON types, as in Go: the string
``"3"`` is not an integer.

Floats that are not finite and times without a time zone raise an error when they are decoded, passed to a constructor
or written, because JSON or Kubernetes cannot represent them. Sets are written sorted, so that equal objects have equal
texts. Computed fields are written; decoding ignores their values, because the class computes them.

Modules of kinds do not import ``annotations`` from ``__future__``: for each field, pydantic would compile the text of
its annotation, which takes a twentieth of the instructions of a manager's imports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    ValidationError,
    WrapSerializer,
)
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic_core import CoreSchema, PydanticCustomError, PydanticUndefined, core_schema, from_json, to_json

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import InitErrorDetails

JSON = Any

_completed: ContextVar[frozenset[type[BaseModel]]] = ContextVar("_completed", default=frozenset())
"""The struct that is being completed, and those that contain it."""
_MOST_ERRORS: Final = 1000
"""If decoding finds more validation errors than this, the object is rejected without a second attempt."""


def camel(name: str) -> str:
    """Return the wire name of an attribute: ``restart_policy`` → ``restartPolicy``; ``from_`` → ``from``.

    Fields whose wire name has several capitals in a row (``podIP``) need an explicit ``alias``.
    """
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class NoFieldError(AttributeError):
    """A model has no field of this name, or the attribute can only be read."""

    def __init__(self, model: type[Struct], field: str, *, read_only: bool = False) -> None:
        super().__init__()
        self._model = model
        self._field = field
        self._read_only = read_only

    def __str__(self) -> str:
        # Made when it is shown, because most such errors belong to ``hasattr`` or ``getattr`` with a default.
        return _no_field(self._model, self._field, read_only=self._read_only)


S = TypeVar("S", bound="Struct")


class Struct(BaseModel):
    """A JSON object with typed fields."""

    model_config = ConfigDict(
        alias_generator=camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="allow",
        strict=True,
        defer_build=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )
    if TYPE_CHECKING:  # their values are set below
        go_always: ClassVar[frozenset[str]]
        """Fields that Go writes even when they are unset; used only for messages that quote Go's JSON."""
        go_pointers: ClassVar[frozenset[str]]
        """Scalar fields that are pointers in Go. Go writes their zero value, but omits that of other scalars."""
        accepts_unknown_fields: ClassVar[bool]
        """True if the constructor and assignments accept fields that the model does not declare."""
        write_inside: ClassVar[Any]
        """A function that writes a struct of this class as the value of a field: a wrap serializer of pydantic."""
        keeps_size: ClassVar[bool]
        """True if :meth:`from_json` keeps the length of the text as ``_size``; the class declares this attribute."""

    if not TYPE_CHECKING:  # a type checker derives each model's own signature, and knows all attributes

        def __init__(self, /, **data: JSON) -> None:
            """Initialize a struct from fields given by attribute name or wire name.

            Unknown fields are errors, because they are likely misspelled; only decoding keeps them.

            Raises:
                TypeError: the model does not declare a field.
                pydantic.ValidationError: a value has the wrong type.
            """
            # Names are compared only if validation failed or left extra fields; always doing so would double the cost.
            try:
                self.__pydantic_validator__.validate_python(data, self_instance=self)
            except ValidationError:
                if not self.accepts_unknown_fields:
                    _check_names(type(self), data)
                raise
            extra = self.__pydantic_extra__  # None if the class does not keep extra fields
            if (extra or extra is None) and not self.accepts_unknown_fields:
                _check_names(type(self), data)

        # Without this mark, pydantic would call the constructor for each nested struct that it decodes.
        __init__.__pydantic_base_init__ = True

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field without checking the type of ``value``; the field then counts as set.

            Raises:
                AttributeError: the model does not declare the field; see :meth:`set_unknown_fields`.
            """
            kind = type(self)
            # pydantic's handler for an attribute of this name that was set before, which was therefore allowed.
            if (assign := kind.__pydantic_setattr_handlers__.get(name)) is not None:
                assign(self, name, value)
                return
            if name in kind.__pydantic_fields__:
                super().__setattr__(name, value)
                return
            attribute = getattr(kind, name, None)
            read_only = isinstance(attribute, property) and attribute.fset is None
            may_set = name.startswith("_") or kind.accepts_unknown_fields or hasattr(kind, name)
            if read_only or not may_set:
                raise NoFieldError(kind, name, read_only=read_only)
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            """Return a field that the model does not declare.

            Raises:
                AttributeError: the object has no such field; the message names the field that may be meant.
            """
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("_"):
                    raise
            raise NoFieldError(type(self), name)

    def __copy__(self) -> Self:
        # Three times as fast as pydantic's method, which calls copy.copy for each part.
        extra, private = self.__pydantic_extra__, self.__pydantic_private__
        return _made(self, self.__dict__.copy(), None if extra is None else extra.copy(), private)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Check the names of the fields.

        Raises:
            TypeError: a field is written under a name that decoding does not accept, or as asterisks.
        """
        _check_secrets(cls)
        for name, field in cls.__pydantic_fields__.items():
            if field.serialization_alias != field.validation_alias:
                _check_aliases(cls, name, field)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Add the rules that the module's docstring lists to pydantic's schema of the class.

        A class that is contained in others is completed before them, so that they share its validator and serializer.
        Otherwise pydantic would build these again for each class that contains it.
        """
        containing = _completed.get()
        token = _completed.set(containing | {cls})
        try:
            if containing and cls not in containing:
                cls.model_rebuild(raise_errors=False)
            schema = handler(source)
            return schema if cls.__pydantic_complete__ else _with_json_rules(cls, schema, handler)
        finally:
            _completed.reset(token)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Decode a parsed JSON object. A null field counts as unset, as in Go.

        Raises:
            pydantic.ValidationError: a field's JSON type differs from the model's.
        """
        try:
            return cls.model_validate(data, by_alias=True, by_name=False)
        except ValidationError as error:
            _check_number(error)
        # Enums and times are texts in JSON; strict pydantic accepts such texts only when it decodes JSON text.
        return cls.model_validate_json(to_json(_without_nulls(data)), by_alias=True, by_name=False)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decode JSON text. Raises like :meth:`from_dict`."""
        try:
            decoded: Self = cls.__pydantic_validator__.validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            _check_number(error)
            if error.error_count() == 1 and error.errors(include_url=False)[0]["type"] == "json_invalid":
                raise
            cleaned = to_json(_without_nulls(from_json(data)))
            decoded = cls.model_validate_json(cleaned, by_alias=True, by_name=False)
        if cls.keeps_size:
            _set(decoded, "_size", len(data))
        return decoded

    def to_dict(self) -> dict[str, JSON]:
        """Return a new JSON object with wire names and without unset fields."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_json(self) -> bytes:
        """Return :meth:`to_dict` as compact JSON text.

        Raises:
            TypeError: a value is a secret of pydantic, which would be written as asterisks.
        """
        text = self.__pydantic_serializer__.to_json(self, exclude_none=True)
        if MASK in text:
            check_secret_values(self)
        return text

    @property
    def unknown_fields(self) -> dict[str, JSON]:
        """The fields that the model does not declare, as decoded JSON; a new empty map if there are none."""
        return self.__pydantic_extra__ or {}

    def set_unknown_fields(self, fields: dict[str, JSON]) -> None:
        """Replace the fields that the model does not declare; ``fields`` is not copied."""
        object.__setattr__(self, "__pydantic_extra__", fields)

    def set_unchecked(self, field: str, value: object) -> None:
        """Replace a field's value without validation and without marking the field as set."""
        self.__dict__[field] = value

    def deep_copy(self) -> Self:
        """Return a copy that shares no data with this object."""
        copied: Self = _copy(self)
        return copied

    def shallow_copy(self) -> Self:
        """Return a copy whose fields may be replaced independently; their values are shared."""
        return self.__copy__()


# Pydantic evaluates the annotations of all bases again for each struct. Those of these class variables would take a
# twelfth of the instructions of a start, so pydantic does not see them.
_CLASS_VARIABLES: Final = {
    "go_always": frozenset[str](),
    "go_pointers": frozenset[str](),
    "accepts_unknown_fields": False,
    "write_inside": None,
    "keeps_size": False,
}
for _variable, _default in _CLASS_VARIABLES.items():
    setattr(Struct, _variable, _default)
Struct.__class_vars__ |= _CLASS_VARIABLES.keys()  # subclasses may set them, and objects may not


def fields_of(model: type[Struct]) -> dict[str, FieldInfo]:
    """Return the fields by attribute name, with evaluated annotations.

    Raises:
        TypeError: an annotation names a class that does not exist.
    """
    if not model.__pydantic_fields_complete__:  # an annotation names a class that is declared later
        try:
            model.model_rebuild()
        except PydanticUndefinedAnnotation as error:
            raise TypeError(
                f"{model.__name__}: the type {error.name} of a field is not defined; import it in the module of the "
                "class, and not only for type checkers"
            ) from error
    return model.model_fields


def wire_name(attribute: str, field: FieldInfo) -> str:
    """Return the name of a field in JSON."""
    return field.serialization_alias or camel(attribute)


def computed_wire_names(model: type[Struct]) -> dict[str, str]:
    """Return the names in JSON of the computed fields, by attribute name."""
    return {name: info.alias or camel(name) for name, info in model.model_computed_fields.items()}


def _check_aliases(model: type[Struct], name: str, field: FieldInfo) -> None:
    read = field.validation_alias or camel(name)
    choices = read.choices if isinstance(read, AliasChoices) else [read]
    if (written := wire_name(name, field)) not in choices:
        shown = " or ".join(str(choice) for choice in choices)
        raise TypeError(
            f"{model.__name__}.{name} is written as {written} and read as {shown}; give it one alias"
        )


_SECRETS: Final = (SecretStr, SecretBytes, Secret)
_HARMLESS: Final = frozenset({str, bytes, int, float, bool, datetime, timedelta, type(None), Any})
_CONTAINERS: Final = frozenset({list, dict, Union, UnionType})


def _check_secrets(model: type[Struct]) -> None:
    """Raise TypeError for a field of which pydantic writes only asterisks: they would replace the stored value."""
    for name, field in model.__pydantic_fields__.items():
        annotation: Any = field.annotation
        if _is_harmless(annotation):
            continue
        if (secret := _secret_of(model, name, field, {model})) is not None:
            text = f"{model.__name__}.{name} is a {secret}, which is written as asterisks and would replace"
            raise TypeError(f"{text} the stored value; use str or bytes, or give it a serializer")
    for name, computed in model.model_computed_fields.items():
        getter: Any = computed.wrapped_property
        returned: Any = computed.return_type
        if returned is PydanticUndefined:
            try:
                hints = get_type_hints(
                    getter.fget if isinstance(getter, property) else getter.func, None, None, True
                )
            except NameError:  # of a class that is declared later: this is called again with the schema
                continue
            returned = hints.get("return")
        if not _has_writer(model, name) and (secret := _secret_in(returned, {model})) is not None:
            raise TypeError(f"{model.__name__}.{name} is a {secret}, which is written as asterisks")


MASK: Final = b'"**********"'
"""What pydantic writes for a secret that is not empty."""


def check_secret_values(value: object) -> None:
    """Raise TypeError if a secret of pydantic is anywhere in ``value``, such as in a field of type Any.

    Call this only for a value whose text contains :data:`MASK`: other texts of asterisks are allowed, and this function
    looks at every value.
    """
    if (path := next(_secret_values(value, type(value).__name__), None)) is not None:
        raise TypeError(f"{path}, which is written as asterisks; use its get_secret_value()")


def _secret_values(value: Any, path: str) -> Iterator[str]:
    """Yield the path and the type of each secret that no serializer of a field or model writes."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, _SECRETS):
        yield f"{path} is a {type(value).__name__}"
    elif isinstance(value, BaseModel):
        if not _writes_itself(type(value)):
            fields = {**value.__dict__, **(value.__pydantic_extra__ or {})}
            parts = [(name, part) for name, part in fields.items() if not _is_safe(type(value), name)]
    elif isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        parts = enumerate(value)
    elif is_dataclass(value):
        parts = vars(value).items()
    for name, part in parts:
        yield from _secret_values(part, f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}")


@lru_cache(maxsize=1024)
def _is_harmless(annotation: Hashable) -> bool:
    """Return True for a type such as ``dict[str, str] | None``, which contains only structs and types without secrets.

    The fields of all structs have few different types, so most calls are answered from the cache.
    """
    if isinstance(annotation, type):
        return annotation in _HARMLESS or Struct in annotation.__mro__
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_harmless(arguments[0])
    return origin in _CONTAINERS and all(map(_is_harmless, arguments))


def _secret_of(model: type[BaseModel], name: str, field: FieldInfo, seen: set[object]) -> str | None:
    """Return the name of the secret that a field contains, unless a serializer writes the field."""
    if _writes_itself(model) or _is_safe(model, name):
        return None
    return _secret_in(field.annotation, seen)


def _is_safe(model: type[BaseModel], name: str) -> bool:
    """Return True if a serializer writes the field, or if the field is not written."""
    field = model.__pydantic_fields__.get(name)
    return _has_writer(model, name) or (
        field is not None and (bool(field.exclude) or _has_serializer(field.metadata))
    )


def _writes_itself(model: type[BaseModel]) -> bool:
    serializers = model.__pydantic_decorators__.model_serializers.values()
    return any(serializer.info.mode == "plain" for serializer in serializers)


def _has_writer(model: type[BaseModel], name: str) -> bool:
    writers = model.__pydantic_decorators__.field_serializers.values()
    return any({name, "*"} & {*writer.info.fields} for writer in writers)


def _has_serializer(metadata: Iterable[object]) -> bool:
    return any(isinstance(entry, PlainSerializer | WrapSerializer) for entry in metadata)


def _secret_in(annotation: Any, seen: set[object]) -> str | None:
    """Return the name of the secret in a type, also inside plain models, dataclasses, typed dicts and named tuples.

    Structs are skipped: each of them is checked by itself.
    """
    if isinstance(annotation, type) and (annotation in _HARMLESS or Struct in annotation.__mro__):
        return None
    if (metadata := getattr(annotation, "__metadata__", None)) and _has_serializer(metadata):
        return None
    annotation = getattr(annotation, "__supertype__", annotation)  # of a NewType
    inside = list(get_args(annotation))
    if isinstance(annotation, TypeVar):
        inside += annotation.__constraints__ or (annotation.__bound__,)
    if isinstance(annotation, list):  # the arguments of a Callable
        return next((secret for part in annotation if (secret := _secret_in(part, seen)) is not None), None)
    for kind in (annotation, get_origin(annotation)):
        if kind in seen:
            continue
        if not isinstance(kind, type):
            if hasattr(kind, "__value__"):  # of a TypeAliasType, which may contain itself
                seen.add(kind)
                inside.append(kind.__value__)
            continue
        if issubclass(kind, _SECRETS):
            return kind.__name__
        seen.add(kind)
        if issubclass(kind, BaseModel):
            if not issubclass(kind, Struct):
                fields = kind.__pydantic_fields__.items()
                secrets = (_secret_of(kind, name, field, seen) for name, field in fields)
                if (secret := next(filter(None, secrets), None)) is not None:
                    return secret
        elif is_dataclass(kind) or hasattr(kind, "__required_keys__") or hasattr(kind, "_field_defaults"):
            inside += _hints(kind).values()  # of a dataclass, a typed dict or a named tuple
    return next((secret for part in inside if (secret := _secret_in(part, seen)) is not None), None)


def _hints(owner: type) -> dict[str, Any]:
    try:
        return get_type_hints(owner, include_extras=True)
    except NameError:  # of a class that is declared later
        return getattr(owner, "__annotations__", {})


def _with_json_rules(model: type[Struct], schema: CoreSchema, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return a struct's schema with the rules that the module's docstring lists."""
    _check_secrets(model)  # with the annotations that were not known when the class was made
    _add_rules(schema, model, handler, set())
    computed = frozenset(computed_wire_names(model).values())
    if not computed:
        return schema

    def without_computed(decoded: Struct) -> Struct:
        for name in computed.intersection(decoded.unknown_fields):
            del decoded.unknown_fields[name]
        return decoded

    unnamed = {key: value for key, value in schema.items() if key != "ref"}
    whole = core_schema.no_info_after_validator_function(without_computed, unnamed)
    return {**whole, "ref": schema["ref"]} if "ref" in schema else whole


def _add_rules(part: object, model: type[Struct], handler: GetCoreSchemaHandler, seen: set[str]) -> None:
    """Add the rules to a part of the schema of ``model``, including its typed dicts and dataclasses.

    Nested structs are skipped: their own classes add the rules to them.
    """
    if isinstance(part, _LISTS):
        for child in part:
            _add_rules(child, model, handler, seen)
    if not isinstance(part, dict):
        return
    kind = part.get("type")
    if kind == "model" and part["cls"] is not model and issubclass(part["cls"], Struct):
        return
    if kind == "definition-ref":
        _add_rules_to_definition(part, model, handler, seen)
    elif kind == "datetime":
        part.setdefault("tz_constraint", "aware")
    if (rule := _RULES.get(kind)) is not None:
        part.setdefault(
            "serialization", core_schema.wrap_serializer_function_ser_schema(rule, when_used="json")
        )
    for key, value in part.items():
        if key in ("fields", "choices") and isinstance(value, dict):  # keyed by name or by tag
            _add_rules([*value.values()], model, handler, seen)
        elif isinstance(value, _PARTS) and key not in _VALUES:
            _add_rules(value, model, handler, seen)


def _add_rules_to_definition(
    part: Any, model: type[Struct], handler: GetCoreSchemaHandler, seen: set[str]
) -> None:
    try:
        target = handler.resolve_ref_schema(part)
    except LookupError:  # a class that contains this one and is not complete yet
        return
    kind: Any = target
    while kind["type"] == "function-after":  # of computed fields
        kind = kind["schema"]
    if (rule := getattr(kind.get("cls"), "write_inside", None)) is not None:
        rule_schema = core_schema.wrap_serializer_function_ser_schema(rule, when_used="json")
        part["serialization"] = rule_schema
    reference = part["schema_ref"]
    if reference in seen:
        return
    seen.add(reference)
    if target["type"] in ("typed-dict", "dataclass"):
        _add_rules(target, model, handler, seen)


def _finite(value: Any, write: Callable[[Any], Any]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no number {value}")
    return write(value)


def _aware(value: Any, write: Callable[[Any], Any]) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(f"the time {value} has no time zone; write datetime.now(UTC), for instance")
    return write(value)


def _sorted(value: Any, write: Callable[[Any], Any]) -> Any:
    items = write(value)
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=to_json)


_RULES: Final[dict[Any, Callable[[Any, Callable[[Any], Any]], Any]]] = {
    "float": _finite,
    "datetime": _aware,
    "set": _sorted,
    "frozenset": _sorted,
}
_VALUES: Final = frozenset({"default", "expected", "members", "metadata", "config", "serialization"})
"""Keys to skip in pydantic's schemas: their values contain no schemas of fields."""
_LISTS: Final = (list, tuple)
_PARTS: Final = (dict, *_LISTS)
"""Tuples, because ``isinstance`` with ``dict | list`` makes the union again for each of thousands of parts."""


def _check_number(error: ValidationError) -> None:
    """Replace a very large number of errors by one: describing each of them would take longer than decoding did."""
    if error.error_count() > _MOST_ERRORS:
        text = f"{error.error_count()} values have another type than their fields"
        details: InitErrorDetails = {"type": PydanticCustomError("too_many", text), "input": None}
        raise ValidationError.from_exception_data(error.title, [details]) from None


def _check_names(model: type[Struct], data: Collection[str]) -> None:
    fields = model.model_fields
    known = {*fields, *(wire_name(name, field) for name, field in fields.items())}
    for name in data:
        if name not in known:
            raise TypeError(_no_field(model, name))


def _no_field(model: type[Struct], name: str, *, read_only: bool = False) -> str:
    import difflib  # only for this error

    fields = fields_of(model)
    meant = [attribute for attribute, field in fields.items() if wire_name(attribute, field) == name]
    meant = meant or [*_nested(fields, name)] or difflib.get_close_matches(name, fields, n=1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    if read_only:
        return f"{model.__name__}.{name} can only be read{hint}"
    return f"{model.__name__} has no field {name}{hint}"


def _nested(fields: Mapping[str, FieldInfo], name: str) -> Iterator[str]:
    """Yield the path of a field of this name in ``metadata``, ``spec`` or ``status``."""
    for part in ("metadata", "spec", "status"):
        annotation = fields[part].annotation if part in fields else None
        for kind in (annotation, *get_args(annotation)):
            if isinstance(kind, type) and issubclass(kind, Struct):
                inside = fields_of(kind).items()
                yield from (
                    f"{part}.{path}" for path, field in inside if name in (path, wire_name(path, field))
                )


def _without_nulls(data: JSON) -> JSON:
    """Return ``data`` without its null fields."""
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [_without_nulls(value) for value in data]
    return data


_ATOMS: Final = frozenset({str, int, bool, float, type(None)})
_set: Final = object.__setattr__


def _copy(value: JSON) -> JSON:
    # Six times as fast as copy.deepcopy, because JSON has neither cycles nor shared parts.
    kind = type(value)
    if kind is list:
        return [part if type(part) in _ATOMS else _copy(part) for part in value]
    if kind is dict:
        return {key: part if type(part) in _ATOMS else _copy(part) for key, part in value.items()}
    if not issubclass(kind, Struct):
        return value
    fields = value.__dict__.copy()
    for name, part in fields.items():
        if type(part) not in _ATOMS:
            fields[name] = _copy(part)
    extra = value.__pydantic_extra__
    return _made(value, fields, None if extra is None else _copy(extra), value.__pydantic_private__)


def _made(like: S, fields: dict[str, JSON], extra: JSON, private: dict[str, JSON] | None) -> S:
    """Return a struct of the class of ``like`` with the same fields set and a copy of the private attributes."""
    kind = type(like)
    made = kind.__new__(kind)
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", like.__pydantic_fields_set__.copy())
    _set(made, "__pydantic_extra__", extra)
    _set(made, "__pydantic_private__", None if private is None else private.copy())
    return made


def unset_fields(model: BaseModel) -> dict[str | int, JSON]:
    """Return the fields of ``model`` that were not set, in the form of pydantic's ``exclude``.

    A field counts as set if the constructor, the decoder or an assignment set it, or if its default, such as a struct
    or a list that a factory made, was changed afterwards. A field of one possible value always counts as set, because
    it may tell the members of a union apart.
    """
    unset: dict[str | int, JSON] = {}
    constants = _constants(type(model))
    for name, value in model.__dict__.items():
        if value is None:
            continue  # it is not written anyway
        if name in model.__pydantic_fields_set__ or name in constants or _is_changed(model, name, value):
            if inside := _unset_inside(value):
                unset[name] = inside
        else:
            unset[name] = True
    return unset


@lru_cache(maxsize=1024)
def _constants(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that are annotated with ``Literal`` and one value."""
    fields = model.model_fields.items()
    return frozenset(
        name
        for name, info in fields
        if get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1
    )


def _unset_inside(value: JSON) -> dict[Any, JSON]:
    if isinstance(value, BaseModel):
        return {} if isinstance(value, RootModel) else unset_fields(value)
    if isinstance(value, dict):
        parts: Iterable[tuple[Any, JSON]] = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return {}
    return {key: inside for key, part in parts if (inside := _unset_inside(part))}


def _is_changed(model: BaseModel, name: str, value: JSON) -> bool:
    """Return True if the default of a field was changed in place after the object was made."""
    if not isinstance(value, _MUTABLE):
        return False
    info = type(model).model_fields[name]
    return _differs(value, info.get_default(call_default_factory=True, validated_data=model.__dict__))


def _differs(value: JSON, default: JSON) -> bool:
    if not isinstance(value, BaseModel) or type(value) is not type(default):
        return bool(value != default)
    known = value.__pydantic_fields_set__
    return (
        known != default.__pydantic_fields_set__
        or value.__pydantic_extra__ != default.__pydantic_extra__
        or any(
            _differs(part, default.__dict__.get(name))
            for name, part in value.__dict__.items()
            if name in known or isinstance(part, _MUTABLE)
        )
    )


_MUTABLE: Final = (BaseModel, dict, list, set)


def is_unset(value: Struct) -> bool:
    """Return True if no field was set, neither in the struct nor in any struct inside it.

    This is for structs that Go embeds by value, such as ``spec`` and ``template``. In Python such a struct always
    exists, but it is written only if one of its fields was set.
    """
    if value.__pydantic_fields_set__ or value.__pydantic_extra__:
        return False
    return all(is_unset(part) for part in value.__dict__.values() if isinstance(part, Struct))
