# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each type of field has the expected schema, and its class and an API server accept the same values."""

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import random
import re
import types
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NewType, NotRequired, Optional, TypeVar

import msgspec
import pydantic
import pytest
from annotated_types import Ge, Len, MultipleOf
from pydantic import BeforeValidator, PlainSerializer, PositiveInt, StringConstraints
from typing_extensions import TypedDict

from controller_runtime.client import LiveClient, dry_run
from controller_runtime.envtest import Environment
from controller_runtime.machinery import JSON, Duration, Int32, Int64, Object, Struct, unstructured
from controller_runtime.machinery.crd import Markers, Rule, custom_resource_definition
from controller_runtime.machinery.errors import InvalidError
from controller_runtime.machinery.openapi import INT_OR_STRING, QUANTITY
from controller_runtime.machinery.quantity import IntOrString, Quantity

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Point(TypedDict):
    x: int
    y: int


@dataclasses.dataclass
class Range:
    begin: int
    end: int = 9


class Scale(TypedDict):
    max_size: int
    by_zone: NotRequired[list[str | None]]


@dataclasses.dataclass
class Window:
    first_day: int
    last_day: datetime.date | None = None


def _in_minutes(value: int) -> str:
    return f"{value}m"


def _minutes(value: object) -> object:
    return (
        int(value.removesuffix("m")) if isinstance(value, str) and re.match(MINUTES, value) else "not minutes"
    )


class Plain(pydantic.BaseModel):
    size: int


class Leaf(Struct):
    name: str | None = None
    pod_ip: Annotated[str | None, pydantic.Field(alias="podIP")] = None


class Box(Struct, Generic[T]):
    content: T


class Chain(Struct):
    after: "Chain | None" = None


TREE: Final = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {"name": {"type": "string"}},
}


class Tree(Struct):
    name: str | None = None
    branches: Annotated[list["Tree"] | None, Markers(schema={"type": "array", "items": TREE})] = None


class Loop(Struct):
    crd: ClassVar = Markers(schema=TREE, nullable=False)

    name: str | None = None
    next: "Loop | None" = None


class Cash(Struct):
    type: Literal["cash"] = "cash"
    amount: int
    note: str | None = None


class Card(Struct):
    type: Literal["credit", "debit"]
    number: str
    note: str | None = None


class Cheque(Struct):
    type: Literal["cheque"]
    amount: str


class Ruled(Struct):
    crd: ClassVar = Markers(rules=(Rule("true"),))

    type: Literal["ruled"]


Port = NewType("Port", int)
UserName = NewType("UserName", str)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field ``value`` of type ``annotation``. ``good`` and ``bad`` are JSON."""

    name: str
    annotation: Any
    schema: dict[str, Any] = dataclasses.field(default_factory=dict)
    good: Sequence[JSON] = ()
    bad: Sequence[JSON] = ()
    default: Any = None


STRING: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
MINUTES: Final = "^[0-9]+m$"
ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}


def _text(format_: str) -> dict[str, Any]:
    """Return the schema of a string with a format; the rule makes the API server refuse lists."""
    rule = {"rule": "self == self", "message": "must be a string"}
    return {**STRING, "format": format_, "x-kubernetes-validations": [rule]}


def _object(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}


DURATION: Final = {
    **STRING,
    "maxLength": 64,
    "pattern": r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$",
}
PAYMENT: Final = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {**STRING, "enum": ["cash", "credit", "debit"]},
        "amount": INTEGER,
        "note": STRING,
        "number": STRING,
    },
    "oneOf": [
        {"properties": {"type": {"enum": ["cash"]}}, "required": ["amount"]},
        {"properties": {"type": {"enum": ["credit", "debit"]}}, "required": ["number"]},
    ],
}

FIELDS: Final = [
    Field("str", str | None, STRING, ["", "ä"], [1, [], {}, True]),
    Field("int", int | None, INTEGER, [0, -3], ["1", 1.5, True]),
    Field("float", float | None, {"type": "number"}, [1, 1.5], ["1.5", True]),
    Field("bool", bool | None, {"type": "boolean"}, [True], ["true", 1]),
    Field("Optional", Optional[int], INTEGER, [1], ["1"]),  # noqa: UP045
    Field("JSON", JSON, ANYTHING, [1, "a", [1], {"a": {"b": [None]}}]),
    Field("object", object, ANYTHING, [1, {"a": 1}]),
    Field("IntOrString", IntOrString | None, INT_OR_STRING, [1, "50%"], [1.5, [], True]),
    Field("Quantity", Quantity | None, QUANTITY, ["1Gi", "500m", 2], [[], {}, "1 Gi"]),
    Field("Int32", Int32 | None, {**INTEGER, "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}, [1, -(2**31), 2**31 - 1], ["1", -(2**31) - 1, 2**31]),
    Field("Int64", Int64 | None, {**INTEGER, "format": "int64"}, [1, -(2**63), 2**63 - 1], ["1"]),
    Field("int32 without bounds", Annotated[int | None, Markers(format="int32")], {**INTEGER, "format": "int32"}, [2**31], ["1"]),
    Field("ge", Annotated[int, Ge(1)] | None, {**INTEGER, "minimum": 1}, [1, 7], [0, -1]),
    Field("Field(ge)", Annotated[int | None, pydantic.Field(ge=1, le=3)], {**INTEGER, "minimum": 1, "maximum": 3}, [1, 3], [0, 4]),
    Field("PositiveInt", PositiveInt | None, {**INTEGER, "minimum": 0, "exclusiveMinimum": True}, [1], [0, -1]),
    Field("lt", Annotated[int | None, pydantic.Field(lt=5)], {**INTEGER, "maximum": 5, "exclusiveMaximum": True}, [4], [5]),
    Field("multiple", Annotated[int, MultipleOf(5)] | None, {**INTEGER, "multipleOf": 5}, [0, 10], [3]),
    Field("float bounds", Annotated[float | None, pydantic.Field(ge=0, le=1)], {"type": "number", "minimum": 0, "maximum": 1}, [0, 0.5], [1.5]),
    Field("CRD bounds", Annotated[int | None, Markers(minimum=1), Ge(1)], {**INTEGER, "minimum": 1}, [1], [0]),
    Field("length", Annotated[str | None, pydantic.Field(min_length=2, max_length=3)], {**STRING, "minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd"]),
    Field("pattern", Annotated[str, StringConstraints(pattern="^[a-z]+$")] | None, {**STRING, "pattern": "^[a-z]+$"}, ["ab"], ["A", ""]),
    Field("BeforeValidator", Annotated[str, BeforeValidator(lambda text: text)] | None, STRING, ["a"], [1]),
    Field("Literal", Literal["s", "ms"] | None, {**STRING, "enum": ["s", "ms"]}, ["s"], ["h", 1]),
    Field("Literal of one", Literal["s"] | None, {**STRING, "enum": ["s"]}, ["s"], ["ms"]),
    Field("Literal of numbers", Literal[1, 2] | None, {**INTEGER, "enum": [1, 2]}, [2], [3, "1"]),
    Field("Enum", Colour | None, {**STRING, "enum": ["red", "blue"]}, ["red"], ["green", 1]),
    Field("StrEnum", Size | None, {**STRING, "enum": ["s", "l"]}, ["s"], ["m"]),
    Field("IntEnum", Level | None, {**INTEGER, "enum": [1, 2]}, [1], [3, "1"]),
    Field("datetime", datetime.datetime | None, _text("date-time"), ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+01:00"], ["x", "2026-01-02T03:04:05", "2026-13-01T00:00:00Z", 1]),
    Field("date", datetime.date | None, _text("date"), ["2026-01-02"], ["2026-13-02", "x"]),
    Field("Decimal", decimal.Decimal | None, {**STRING, "pattern": r"^[+-]?[0-9]+(\.[0-9]+)?$"}, ["1.50", "-3"], ["x", "", "."]),
    Field("UUID", uuid.UUID | None, _text("uuid"), ["705ab4f5-6393-11e8-b7cc-42010a800002"], ["x", "705ab4f5"]),
    Field("IPv4Address", ipaddress.IPv4Address | None, _text("ipv4"), ["10.0.0.1"], ["10.0.0", "x"]),
    Field("NewType of int", Port | None, INTEGER, [80], ["80"]),
    Field("NewType of str", UserName | None, STRING, ["a"], [1]),
    Field("list", list[str] | None, {"type": "array", "items": STRING}, [[], ["a"]], ["a", [1], ["a", 1], {}]),
    Field("list of int", list[int] | None, {"type": "array", "items": INTEGER}, [[1]], [[1, "2"]]),
    Field("list of lists", list[list[int]] | None, {"type": "array", "items": {"type": "array", "items": INTEGER}}, [[[1], []]], [[1], [["a"]]]),
    Field("list of enums", list[Colour] | None, {"type": "array", "items": {**STRING, "enum": ["red", "blue"]}}, [["red"]], [["red", "green"]]),
    Field("list with null", list[str | None] | None, {"type": "array", "items": {**STRING, "nullable": True}}, [["a", None]], [[1], [{}]]),
    Field("list of structs with null", list[Leaf | None] | None, {"type": "array", "items": {**_object(name=STRING, podIP=STRING), "nullable": True}}, [[{}, None]], [[1]]),
    Field("bounded list", Annotated[list[int], Len(1, 2)] | None, {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
    Field("list of bounded", list[Annotated[int, Ge(1)]] | None, {"type": "array", "items": {**INTEGER, "minimum": 1}}, [[1]], [[1, 0]]),
    Field("set", set[str] | None, {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, [["a", "b"]], [[1], "a"]),
    Field("homogeneous tuple", tuple[int, ...] | None, {"type": "array", "items": INTEGER}, [[1, 2]], [["a"]]),
    Field("dict", dict[str, str] | None, {"type": "object", "additionalProperties": STRING}, [{}, {"a": "b"}], [[], {"a": 1}]),
    Field("dict of int", dict[str, int] | None, {"type": "object", "additionalProperties": INTEGER}, [{"a": 1}], [{"a": "1"}]),
    Field("dict with null", dict[str, int | None] | None, {"type": "object", "additionalProperties": {**INTEGER, "nullable": True}}, [{"a": 1, "b": None}], [{"a": "1"}]),
    Field("dict of lists", dict[str, list[int]] | None, {"type": "object", "additionalProperties": {"type": "array", "items": INTEGER}}, [{"a": [1]}], [{"a": [""]}]),
    Field("dict of JSON", dict[str, JSON] | None, {"type": "object", **ANYTHING}, [{"a": [1, {}]}], [[]]),
    Field("TypedDict", Point | None, _object(["x", "y"], x=INTEGER, y=INTEGER), [{"x": 1, "y": 2}], [{"x": 1}, {"x": 1, "y": "2"}]),
    Field("dataclass", Range | None, _object(["begin"], begin=INTEGER, end=INTEGER), [{"begin": 1}, {"begin": 1, "end": 2}], [{}, {"begin": "1"}]),
    Field("TypedDict with other names", Scale | None, _object(["maxSize"], maxSize=INTEGER, byZone={"type": "array", "items": {**STRING, "nullable": True}}), [{"maxSize": 1}, {"maxSize": 1, "byZone": ["a", None]}], [{"max_size": 1}, {"maxSize": ""}]),
    Field("dataclass with other names", Window | None, _object(["firstDay"], firstDay=INTEGER, lastDay=_text("date")), [{"firstDay": 1}, {"firstDay": 1, "lastDay": "2026-01-02"}], [{"first_day": 1}]),
    Field("list of TypedDicts", list[Scale] | None, {"type": "array", "items": _object(["maxSize"], maxSize=INTEGER, byZone={"type": "array", "items": {**STRING, "nullable": True}})}, [[{"maxSize": 1}]], [[{"max_size": 1}]]),
    Field("serializer", Annotated[int, BeforeValidator(_minutes), PlainSerializer(_in_minutes), Markers(pattern=MINUTES)] | None, {**STRING, "pattern": MINUTES}, ["5m"], [5, []]),
    Field("serializer of a list's items", list[Annotated[int, BeforeValidator(_minutes), PlainSerializer(_in_minutes), Markers(pattern=MINUTES)]] | None, {"type": "array", "items": {**STRING, "pattern": MINUTES}}, [["5m"]], [[5]]),
    Field("serializer of a bounded type", Annotated[int | None, Ge(0), BeforeValidator(_minutes), PlainSerializer(_in_minutes), Markers(pattern=MINUTES)], {**STRING, "pattern": MINUTES}, ["5m"], ["-1m", 5]),
    Field("pydantic model", Plain | None, _object(["size"], size=INTEGER), [{"size": 1}], [{}, {"size": []}]),
    Field("struct", Leaf | None, _object(name=STRING, podIP=STRING), [{}, {"name": "a", "podIP": "b"}], [{"name": 1}, [], "a"]),
    Field("list of structs", list[Leaf] | None, {"type": "array", "items": _object(name=STRING, podIP=STRING)}, [[{"name": "a"}, {}]], [[{"name": "a"}, {"name": 1}]]),
    Field("generic struct", Box[int] | None, _object(["content"], content=INTEGER), [{"content": 1}], [{}, {"content": "1"}]),
    Field("Duration", Duration | None, DURATION, ["1h30m0s", "1.5s", "0", "-2m", "100us"], ["", "1", "P1D", "1d", 5, [], "1 h"]),
    Field("union with a discriminator", Annotated[Cash | Card | None, pydantic.Field(discriminator="type")], PAYMENT, [{"type": "cash", "amount": 1}, {"type": "debit", "number": "1", "note": "a"}], [{}, {"amount": 1}, {"type": "cash"}, {"type": "cash", "number": "1"}, {"type": "card", "number": "1"}, {"type": "cash", "amount": "1"}, []]),
    Field("list of unions", list[Annotated[Cash | Card, pydantic.Field(discriminator="type")]] | None, {"type": "array", "items": PAYMENT}, [[], [{"type": "cash", "amount": 1}, {"type": "credit", "number": "1"}]], [[{"type": "cash"}], [{}]]),
    Field("a schema of its own", Annotated[list[int] | None, Markers(schema={"type": "array", "items": INTEGER, "maxItems": 9})], {"type": "array", "items": INTEGER, "maxItems": 9}, [[1, 2]], ["a", {}, ["a"]]),
    Field("a schema with constraints", Annotated[dict[str, JSON] | None, Markers(schema={"type": "object"}, preserve_unknown_fields=True)], {"type": "object", **ANYTHING}, [{"a": [1]}], ["a"]),
    Field("a recursive struct with a schema", Tree | None, _object(name=STRING, branches={"type": "array", "items": TREE}), [{"name": "a", "branches": [{"branches": [{"name": "b"}]}]}], [{"name": 1}, {"branches": [{"name": 1}]}]),
    Field("a struct with a schema", Loop | None, {**TREE, "nullable": False}, [{"name": "a", "next": {"next": {"name": "b"}}}], [{"name": 1}]),
    Field("required", int, INTEGER, [1], ["1"], default=...),
]  # fmt: skip
"""The class and the API server accept every value in ``good``, and neither accepts a value in ``bad``."""

WITHOUT_SCHEMA: Final = [
    Field("a fixed tuple", tuple[int, str] | None),
    Field("bytes", bytes | None),
    Field("timedelta", datetime.timedelta | None),
    Field("time", datetime.time | None),
    Field("a union", int | list[int] | None),
    Field("a union of structs", Leaf | Plain | None),
    Field("a struct that contains itself", Chain | None),
    Field("an enum of several types", Mixed | None),
    Field("a dict with other keys", dict[int, str] | None),
    Field("a set with null", set[int | None] | None),
    Field("a list of enums with null", list[Colour | None] | None),
    Field("a union in which a field has two types", Annotated[Cash | Cheque, pydantic.Field(discriminator="type")] | None),
    Field("a union with a rule for one choice", Annotated[Cash | Ruled, pydantic.Field(discriminator="type")] | None),
    Field("a union of models with a discriminator", Annotated[Cash | Plain, pydantic.Discriminator(lambda value: "cash")] | None),
    Field("a module", types.ModuleType | None),
    Field("a serializer without a return type", Annotated[int, PlainSerializer(lambda value: value)] | None),
]  # fmt: skip


def kind_with(field: Field, number: int = 0) -> type[Object]:
    """Return a kind whose spec has the field."""
    spec = pydantic.create_model(
        "Spec", __base__=Struct, __module__=__name__, value=(field.annotation, field.default)
    )
    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__annotations__": {"spec": spec | None},
        "spec": None,
        "__doc__": "A kind with one field.",
    }
    return types.new_class(
        f"Sample{number}",
        (Object,),
        {"group": "types.example.com", "version": "v1", "plural": f"sample{number}s"},
        lambda body: body.update(namespace),
    )


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_type_has_its_structural_schema(field: Field) -> None:
    version = custom_resource_definition(kind_with(field))["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["value"] == field.schema


@pytest.mark.parametrize("field", WITHOUT_SCHEMA, ids=lambda field: field.name)
def test_a_type_without_one_is_an_error_with_class_and_field(field: Field) -> None:
    with pytest.raises(TypeError, match=r"^(Spec\.value|Chain\.after) has no structural schema: "):
        custom_resource_definition(kind_with(field))


KINDS = {field.name: kind_with(field, number) for number, field in enumerate(FIELDS)}
VALUES = {msgspec.json.encode(each): each for field in FIELDS for each in (*field.good, *field.bad)}


async def admitted(client: LiveClient, kind: type[Object], namespace: str, value: JSON) -> bool:
    """Return True if the API server accepts an object with the value (in a dry run)."""
    made = unstructured(kind.gvk).from_dict(
        {"metadata": {"name": "a", "namespace": namespace}, "spec": {"value": value}}
    )
    try:
        await dry_run(client).create(made)
    except InvalidError:
        return False
    return True


def decoded(kind: type[Object], value: JSON) -> Any:
    """Return the object with the value; None if the class refuses it."""
    try:
        return kind.from_dict({"spec": {"value": value}})
    except pydantic.ValidationError:
        return None


@pytest.mark.integration
async def test_class_and_server_agree(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    for kind in KINDS.values():
        await control_plane.install_crds(custom_resource_definition(kind))
    wrong = []
    rng = random.Random(1)
    for field in FIELDS:
        kind = KINDS[field.name]
        wrong += await _disagreements(live_client, kind, namespace, field, rng.sample([*VALUES.values()], 40))
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
async def test_class_and_server_refuse_what_does_not_fit_into_64_bits(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    kind = KINDS["Int64"]
    await control_plane.install_crds(custom_resource_definition(kind))
    for value in (-(2**63) - 1, 2**63, 10**30):
        assert not await admitted(live_client, kind, namespace, value)
        assert decoded(kind, value) is None


async def _disagreements(
    client: LiveClient, kind: type[Object], namespace: str, field: Field, others: list[JSON]
) -> list[str]:
    """Return a line for each value on which class and server disagree, with each other or with ``good`` and ``bad``.

    Among ``others``, values that only the class accepts are no disagreement if the server accepts their encoding by
    the class.
    """
    found = []
    known = [(each, True) for each in field.good] + [(each, False) for each in field.bad]
    for value, wanted in (*known, *((each, None) for each in others)):
        server = await admitted(client, kind, namespace, value)
        obj = decoded(kind, value)
        # A class may accept more values if the server accepts the form in which the class writes them: a class rounds
        # quantities, and reads more formats of times.
        if (server and obj is None) or (wanted is not None and {wanted} != {server, obj is not None}):
            found.append(f"{field.name} {value!r}: server {server}, class {obj is not None}, wanted {wanted}")
        elif obj is not None and not await admitted(
            client, kind, namespace, obj.to_dict()["spec"].get("value")
        ):
            found.append(f"{field.name} {value!r}: the server refuses what the class writes")
    return found
