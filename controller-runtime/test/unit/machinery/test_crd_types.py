# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The schemas of types that a field may have, and the one line that names a field whose type has none."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Union

import pydantic
import pytest
from pydantic import Field, PlainSerializer
from typing_extensions import TypedDict

from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.crd import KindMarkers, Markers, custom_resource_definition

ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    a: int


class Own(Struct):
    a: int


@dataclasses.dataclass
class Data:
    own: Own
    free: Open
    share: int | float


class Typed(TypedDict, total=False):
    own: Own
    names: list[str]


class Empty(Struct):
    pass


class Cat(Struct):
    kind: Literal["cat"]
    lives: int


class Dog(Struct):
    kind: Literal["dog"]
    lives: str


class Free(Struct):
    crd: ClassVar = Markers(preserve_unknown_fields=True)

    kind: Literal["free"]


class PlainCat(pydantic.BaseModel):
    kind: Literal["plain"]


@dataclasses.dataclass
class Chain:
    link: "Chain | None"


@dataclasses.dataclass
class Counts:
    counts: dict[str, int]


@dataclasses.dataclass
class Choice:
    one: int | list[str]


def one_of(first: type, second: type) -> Any:
    return Annotated[Union[first, second], Field(discriminator="kind")]  # noqa: UP007 - of variables


def schema_of(annotation: Any, engine: Literal["rust-regex", "python-re"] = "rust-regex") -> Any:
    """Return the schema of a field with this type."""
    made = pydantic.create_model("Spec", __base__=Struct, f=(annotation, ...))
    made.model_config["regex_engine"] = engine

    class Thing(Object, group="example.com", version="v1", plural="things"):
        spec: made  # type: ignore[valid-type]  # made above

    versions = custom_resource_definition(Thing)["spec"]["versions"]
    return versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["f"]


A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        pytest.param(Open, A | ANYTHING, id="the class keeps unknown fields by choice"),
        pytest.param(list[Open], {"type": "array", "items": A | ANYTHING}, id="a list of such objects"),
        pytest.param(
            Data,
            {
                "type": "object",
                "properties": {"own": A, "free": A | ANYTHING, "share": {"type": "number"}},
                "required": ["free", "own", "share"],
            },
            id="a dataclass",
        ),
        pytest.param(
            Typed,
            {
                "type": "object",
                "properties": {"own": A, "names": {"type": "array", "items": {"type": "string"}}},
            },
            id="a typed dict",
        ),
        pytest.param(int | float, {"type": "number"}, id="a number"),
        pytest.param(
            Annotated[int | float, Field(ge=1)], {"type": "number", "minimum": 1}, id="a bounded number"
        ),
        pytest.param(
            Annotated[int, Field(gt=1, lt=9)],
            {
                "type": "integer",
                "minimum": 1,
                "exclusiveMinimum": True,
                "maximum": 9,
                "exclusiveMaximum": True,
            },
            id="exclusive bounds",
        ),
        pytest.param(Literal["a"], {"type": "string", "enum": ["a"]}, id="one value"),
        pytest.param(Annotated[int, PlainSerializer(str)], {"type": "string"}, id="written as text"),
        pytest.param(
            set[str],
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            id="a set",
        ),
        pytest.param(Empty, {"type": "object"}, id="a struct without fields"),
        pytest.param(
            Counts,
            {
                "type": "object",
                "properties": {"counts": {"type": "object", "additionalProperties": {"type": "integer"}}},
                "required": ["counts"],
            },
            id="a map in a dataclass",
        ),
    ],
)
def test_a_type_has_this_schema(annotation: Any, schema: Any) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (None, "it can only be None, which is not written"),
        (int | list[str], r"int \| list\[str\] is a choice of several types; declare an optional field"),
        (Choice, "it is a choice of several types"),
        (Chain, "Chain contains itself; give"),
        (dict[int, str], "the keys of a map must be strings without constraints"),
        (one_of(Cat, Dog), "lives has another schema in Dog than in another choice"),
        (
            one_of(Cat, Free),
            "Free has x-kubernetes-preserve-unknown-fields, which cannot apply to one choice",
        ),
        (one_of(Cat, PlainCat), ".*PlainCat'> is not a struct, as each choice of a union"),
        (
            Annotated[int, PlainSerializer(lambda value: value)],
            "the function that writes it has no return type",
        ),
        (tuple[int, str], "each item of a tuple has its own schema"),
        (set[int | None], "the API server does not accept null in a set"),
        (Literal["a", 1], r"the values \['a', 1\] have several types"),
        (list[Literal["a"] | None], "the API server does not accept null as one of the values of an enum"),
        (timedelta, "the API server does not check the format duration as Python does; use machinery.Dur"),
        (
            Annotated[str, Field(pattern="^(?!a)")],
            "pydantic cannot check it: look-around, .* is not supported",
        ),
        (
            Annotated[str, Markers(pattern=r"(a)\1")],
            "pydantic cannot check it: backreferences are not supported",
        ),
        (list[Annotated[str, Field(pattern="(")]], "pydantic cannot check it: unclosed group"),
        (Callable[[int], int], "Cannot generate a JsonSchema for core_schema.CallableSchema"),
        (dict[str, type], "Cannot generate a JsonSchema for core_schema.IsInstanceSchema"),
    ],
)
def test_a_type_without_a_schema_is_one_line_with_class_and_field(annotation: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=rf"^Spec\.f has no structural schema: {reason}[^\n]*$"):
        schema_of(annotation)


def test_a_pattern_of_another_engine_that_the_server_cannot_match_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Spec\.f has no structural schema: pydantic cannot check it"):
        schema_of(Annotated[str, Field(pattern="^(?!a)")], engine="python-re")


class Entry(Struct):
    id: str
    zone: str | None = None
    port: Annotated[int | None, Markers(default=80)] = None


REFUSED_BY_SERVERS: dict[str, tuple[Any, str]] = {
    "default of another type": (
        Annotated[int, Markers(default="x")],
        "default in body must be of type integer",
    ),
    "default of None": (Annotated[int, Markers(default=None)], "default in body must be of type integer"),
    "default out of bounds": (
        Annotated[int, Markers(minimum=2, default=1)],
        "default in body should be greater than or equal to 2",
    ),
    "key that is not a field": (
        Annotated[list[Entry], Markers(list_type="map", list_map_keys=("name",))],
        "list_map_keys: the items have no field name",
    ),
    "optional key": (
        Annotated[list[Entry], Markers(list_type="map", list_map_keys=("zone",))],
        "list_map_keys: zone must be required, or have a default in its markers",
    ),
    "set of objects": (Annotated[list[Entry], Markers(list_type="set")], "cannot be a set"),
    "map of texts": (
        Annotated[list[str], Markers(list_type="map", list_map_keys=("id",))],
        "list_type map is for lists of objects",
    ),
    "list type of a text": (Annotated[str, Markers(list_type="atomic")], "list_type is for lists"),
    "type of a schema": (Annotated[Any, Markers(schema={"type": "objekt"})], "'objekt' is not a type"),
    "reference": (Annotated[Any, Markers(schema={"$ref": "#/a"})], r"a schema has no \$ref"),
    "schema without a type": (Annotated[Any, Markers(schema={"properties": {}})], "a schema needs a type"),
}


@pytest.mark.parametrize("case", REFUSED_BY_SERVERS)
def test_markers_that_every_server_refuses_are_one_error_with_class_and_field(case: str) -> None:
    annotation, problem = REFUSED_BY_SERVERS[case]
    with pytest.raises(TypeError, match=rf"^Spec\.f has no structural schema: .*{problem}"):
        schema_of(annotation)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[list[Entry], Markers(list_type="map", list_map_keys=("id",))],
        Annotated[list[Entry], Markers(list_type="map", list_map_keys=("id", "port"))],
        Annotated[list[str] | None, Markers(default=["a"], list_type="set")],
        Annotated[int | None, Markers(nullable=True, default=None)],
        Annotated[int | str, Markers(default="80%")],
    ],
)
def test_markers_that_servers_accept_pass(annotation: Any) -> None:
    assert schema_of(annotation)


def test_a_type_that_is_only_imported_for_type_checkers_is_named() -> None:
    with pytest.raises(TypeError, match=r"Spec: the type Missing of a field is not defined; import it"):
        schema_of("Missing")


def _fails() -> Own:
    return Own.from_dict({})


@pytest.mark.parametrize(
    "default", [..., Field(default_factory=_fails)], ids=["no default", "a default that cannot be made"]
)
def test_a_status_that_no_new_object_can_have_is_refused(default: Any) -> None:
    class Thing(Object, group="example.com", version="v1", plural="things"):
        crd_kind: ClassVar = KindMarkers(status_subresource=True)

    made: Any = pydantic.create_model("Made", __base__=Thing, status=(Own, default))
    with pytest.raises(TypeError, match=r"^Made\.status needs a default that can be made, or None"):
        custom_resource_definition(made)
    optional: Any = pydantic.create_model("Made", __base__=Thing, status=(Own | None, None))
    assert custom_resource_definition(optional)
