# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Structs are pydantic models: what the library adds to them, on all types of fields."""

import copy
import dataclasses
import datetime
import enum
import json
import math
import pickle
from typing import Annotated, Any, ClassVar, Literal, Optional, Union

import pydantic
import pytest
from annotated_types import Ge
from pydantic import AliasChoices, Field
from pydantic_core import PydanticSerializationError, core_schema
from typing_extensions import TypedDict

from controller_runtime.apis.core.v1 import Container, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import Object, Struct, metadata_only
from controller_runtime.machinery.crd import Markers


class Colour(enum.Enum):
    RED = "red"


class Plain(pydantic.BaseModel):
    size: int


class Leaf(Struct):
    name: str = ""
    pod_ip: Annotated[str | None, Field(alias="podIP", description="an address")] = None


class Tree(Struct):
    """Every kind of type."""

    phase: Literal["Pending", "Running"] | None = None
    count: int | str | None = None
    old: Optional[Union[int, str]] = None  # noqa: UP007, UP045
    bounded: Annotated[int, Markers(minimum=1), Ge(1)] | None = None
    limited: int | None = Field(default=None, le=3)
    at: datetime.datetime | None = None
    colour: Colour | None = None
    plain: Plain | None = None
    pair: tuple[Leaf, "Tree"] | None = None
    leaves: list["Leaf"] | None = None
    by_name: dict[str, dict[str, Leaf]] | None = None
    anything: object = None
    bare: dict | list | None = None  # type: ignore[type-arg]
    limit: ClassVar[int] = 3


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"phase": "Running"}, None),
        ({"phase": "Done"}, "literal_error"),
        ({"count": "1"}, None),
        ({"count": 1.5}, "int_type|int_from_float"),
        ({"old": 1}, None),
        ({"old": []}, "int_type"),
        ({"bounded": 1}, None),
        ({"bounded": 0}, "greater_than_equal"),
        ({"limited": 4}, "less_than_equal"),
        ({"limited": 3}, None),
        ({"limited": "3"}, "int_type"),
        ({"leaves": [{"name": "a", "podIP": "x"}]}, None),
        ({"leaves": [{"name": "a", "future": {"deep": [1]}}]}, None),
        ({"leaves": [{"name": 1}]}, "string_type"),
        ({"byName": {"a": {"b": {"name": "c"}}}}, None),
        ({"byName": {"a": {"b": 1}}}, "model_type"),
        ({"plain": {"size": 1}}, None),
        ({"plain": {"size": "x"}}, "int_type|int_parsing"),
        ({"anything": {"a": [1]}}, None),
        ({"bare": [1]}, None),
        ({"bare": "x"}, "dict_type"),
        ({"new": {"a": 1}}, None),
    ],
)
def test_types_are_decoded_strictly_and_written_back(data: dict[str, Any], error: str | None) -> None:
    if error is None:
        assert Tree.from_dict(data).to_dict() == data
        assert Tree.from_json(json.dumps(data)) == Tree.from_dict(data)
        return
    with pytest.raises(pydantic.ValidationError) as raised:
        Tree.from_dict(data)
    assert raised.value.errors()[0]["type"] in error.split("|")


def test_times_and_enums_are_texts_in_json() -> None:
    text = '{"at":"2026-01-02T03:04:05Z","colour":"red","pair":[{"name":"a"},{"pair":[{"name":"b"},{}]}]}'
    tree = Tree.from_json(text)
    assert tree.at == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)  # noqa: UP017
    assert tree.colour is Colour.RED
    assert tree.pair is not None
    assert tree.pair[1].pair == (Leaf(name="b"), Tree())
    assert Tree.from_json(tree.to_json()) == tree
    assert Tree.from_dict(tree.to_dict()) == tree
    assert tree.to_dict() == json.loads(text)
    with pytest.raises(pydantic.ValidationError, match=r"pair\.1\.phase"):
        Tree.from_json('{"pair":[{},{"phase":"no"}]}')


def test_a_subclass_redeclares_a_field_in_its_place_and_has_a_decoder_of_its_own() -> None:
    class Base(Struct):
        first: int | None = None
        second: str | None = None

    assert Base.from_dict({"first": 1}).first == 1

    class Derived(Base):
        first: str | None = None  # type: ignore[assignment]
        third: bool | None = None

    assert list(Derived.model_fields) == ["first", "second", "third"]
    assert Derived.from_dict({"first": "a", "third": True}).to_dict() == {"first": "a", "third": True}
    with pytest.raises(pydantic.ValidationError):
        Base.from_dict({"first": "a"})


def test_an_assignment_is_not_checked_and_counts_as_set() -> None:
    leaf = Leaf()
    leaf.name = 3  # type: ignore[assignment]
    assert leaf.model_fields_set == {"name"}
    with pytest.raises(AttributeError, match=r"Leaf has no field nmae; did you mean name\?"):
        leaf.nmae = "a"  # type: ignore[attr-defined]
    leaf = Leaf.from_dict({"name": "a", "former": 1})
    leaf.set_unknown_fields({"future": [1]})
    assert leaf.to_dict() == {"name": "a", "future": [1]}
    with pytest.raises(AttributeError, match="limit"):
        Tree().limit = 1  # type: ignore[misc]


def test_a_property_is_set_by_its_setter() -> None:
    class Celsius(Struct):
        degrees: float = 0.0

        @property
        def kelvin(self) -> float:
            return self.degrees + 273.15

        @kelvin.setter
        def kelvin(self, value: float) -> None:
            self.degrees = value - 273.15

    warm = Celsius()
    warm.kelvin = 273.15
    assert warm.to_dict() == {"degrees": 0.0}


def test_copies_are_equal_and_independent_as_their_method_says() -> None:
    tree: Any = Tree.from_dict({"leaves": [{"name": "a"}], "future": [1]})
    for copied in (
        copy.deepcopy(tree),
        tree.deep_copy(),
        tree.model_copy(deep=True),
        pickle.loads(pickle.dumps(tree)),
    ):
        assert copied == tree
        assert copied.model_fields_set == tree.model_fields_set
        copied.leaves[0].name = "b"
        copied.model_extra["future"].append(2)
        assert tree.to_dict() == {"leaves": [{"name": "a"}], "future": [1]}
    for shallow in (copy.copy(tree), tree.shallow_copy(), tree.model_copy()):
        assert shallow == tree
        shallow.count = 1
        assert shallow.leaves is tree.leaves
        assert tree.to_dict() == {"leaves": [{"name": "a"}], "future": [1]}
    changed = tree.model_copy(update={"count": 3, "unknown": 4})
    assert changed.to_dict() == {**tree.to_dict(), "count": 3, "unknown": 4}
    assert {"count", "unknown"} <= changed.model_fields_set


def test_equal_objects_have_the_same_class_fields_and_unknown_fields() -> None:
    assert Leaf(name="a") == Leaf.from_dict({"name": "a"})
    assert Leaf(name="a") != Leaf(name="b")
    assert Leaf.from_dict({"x": 1}) != Leaf()
    other: list[object] = [Tree(), {"name": ""}]
    assert Leaf() not in other
    with pytest.raises(TypeError, match="unhashable"):
        hash(Leaf())


def test_texts_have_the_fields_in_order() -> None:
    leaf = Leaf.from_dict({"name": "a", "x": 1})
    assert repr(leaf) == "Leaf(name='a', pod_ip=None, x=1)"
    assert str(leaf) == "name='a' pod_ip=None x=1"
    assert dict(leaf) == {"name": "a", "pod_ip": None, "x": 1}


def test_a_constructed_object_is_not_checked() -> None:
    made: Any = Leaf.model_construct(name=3, podIP="x", future=1)
    assert (made.name, made.pod_ip, made.model_extra) == (3, "x", {"future": 1})
    assert made.model_fields_set == {"name", "pod_ip"}
    assert Pod.model_construct().api_version == "v1"


def test_fields_are_dumped_by_name_or_wire_name() -> None:
    leaf = Leaf(name="a", pod_ip="x")
    assert leaf.model_dump(by_alias=False) == {"name": "a", "pod_ip": "x"}
    assert leaf.model_dump(include={"name"}) == {"name": "a"}
    assert leaf.model_dump_json() == '{"name":"a","podIP":"x"}'
    assert Leaf.model_validate_json('{"name":"a","podIP":"x"}') == leaf
    assert Leaf.model_validate(leaf) is leaf


def test_a_struct_is_a_field_of_a_pydantic_model() -> None:
    class Wrapper(pydantic.BaseModel):
        container: Container
        tree: Tree | None = None

    wrapper = Wrapper.model_validate(
        {"container": {"name": "a", "workingDir": "/"}, "tree": {"pair": ({}, {})}}
    )
    assert wrapper.container.working_dir == "/"
    assert wrapper.model_dump(exclude_none=True)["container"] == {"name": "a", "workingDir": "/"}
    with pytest.raises(pydantic.ValidationError, match=r"container\.name"):
        Wrapper.model_validate({"container": {"name": 1}})
    assert pydantic.TypeAdapter(list[Leaf]).validate_python([{"name": "a"}]) == [Leaf(name="a")]


def test_a_json_schema_has_wire_names_and_nested_structs() -> None:
    schema = Leaf.model_json_schema()
    assert schema["properties"]["podIP"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert "Probe" in str(Container.model_json_schema())


class Checked(Struct):
    """A struct with decorators of pydantic models."""

    low: int = 0
    high_mark: int | None = Field(default=None, alias="HIGH")
    below: "list[Checked] | None" = None

    @pydantic.field_validator("low")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value

    @pydantic.model_validator(mode="after")
    def _ordered(self) -> "Checked":
        if self.high_mark is not None and self.low > self.high_mark:
            raise ValueError("low is above high")
        return self

    @pydantic.field_serializer("low")
    def _written(self, value: int) -> int:
        return value + 1000


def test_decorators_of_pydantic_models_apply() -> None:
    class Holder(Struct):
        checked: Checked | None = None

    class Narrower(Checked):
        extra_field: int = 1

    checked = Checked.from_dict({"low": 1, "HIGH": 2, "new": [1]})
    assert type(checked) is Checked
    assert checked.to_dict() == {"low": 1001, "HIGH": 2, "new": [1]}
    assert Holder.from_dict({"checked": {"below": [{"low": 4}]}}).to_json() == (
        b'{"checked":{"low":1000,"below":[{"low":1004}]}}'
    )
    for kind, data in (
        (Checked, {"low": -1}),
        (Checked, {"low": 3, "HIGH": 2}),
        (Checked, {"below": [{"low": -1}]}),
        (Holder, {"checked": {"low": -1}}),
        (Narrower, {"low": -1}),
    ):
        with pytest.raises(pydantic.ValidationError, match=r"negative|above"):
            kind.from_dict(data)
    with pytest.raises(pydantic.ValidationError, match="negative"):
        Checked(low=-1)
    assert Narrower().to_dict() == {"low": 1000, "extraField": 1}


def test_an_object_has_its_names_however_it_is_made() -> None:
    class Wheel(Object, group="example.com", version="v1", plural="wheels"):
        metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    metadata = ObjectMeta()
    assert Wheel.of_metadata(metadata).metadata is metadata
    for wheel in (Wheel(), Wheel.from_dict({}), Wheel.model_construct(), Wheel.of_metadata(metadata)):
        assert (wheel.api_version, wheel.kind) == ("example.com/v1", "Wheel")
    assert metadata_only(Wheel).from_json('{"metadata":{"name":"a"}}').kind == "Wheel"


class Shares(TypedDict):
    """A typed dict with values that JSON cannot express, or whose order in JSON is not fixed."""

    by_ratio: float
    zones: set[str]


@dataclasses.dataclass
class Term:
    """A dataclass with a time."""

    begins_at: datetime.datetime


class Measured(Struct):
    """A struct with values that JSON cannot express, or whose order in JSON is not fixed."""

    ratio: float | None = None
    at: datetime.datetime | None = None
    zones: set[str] | None = None
    ports: dict[str, frozenset[int]] | None = None
    mixed: set[int | str] | None = None
    shares: list[Shares] | None = None
    term: Term | None = None
    type: str | None = None
    below: "Measured | None" = None


NAIVE = datetime.datetime(2026, 1, 2)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"ratio": math.nan}, "finite_number"),
        ({"ratio": -math.inf}, "finite_number"),
        ({"shares": [{"by_ratio": math.inf, "zones": set()}]}, "finite_number"),
        ({"at": NAIVE}, "timezone_aware"),
        ({"term": Term(NAIVE)}, None),
    ],
)
def test_a_value_that_the_wire_cannot_hold_is_refused(fields: dict[str, Any], error: str | None) -> None:
    if error is not None:
        with pytest.raises(pydantic.ValidationError) as raised:
            Measured(**fields)
        assert [each["type"] for each in raised.value.errors()] == [error]
    unchecked = Measured()
    for name, value in fields.items():
        setattr(unchecked, name, value)
    for write in (unchecked.to_json, unchecked.to_dict, Measured(below=unchecked).to_json):
        with pytest.raises(PydanticSerializationError, match=r"JSON has no number|has no time zone"):
            write()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"ratio":NaN}', "finite_number"),
        ('{"below":{"ratio":-Infinity}}', "finite_number"),
        ('{"at":"2026-01-02T03:04:05"}', "timezone_aware"),
        ('{"term":{"beginsAt":"2026-01-02T03:04:05"}}', "timezone_aware"),
    ],
)
def test_a_text_with_such_a_value_is_refused(text: str, error: str) -> None:
    with pytest.raises(pydantic.ValidationError) as raised:
        Measured.from_json(text)
    assert [each["type"] for each in raised.value.errors()] == [error]


class Typed(Struct):
    """A struct whose tag and fields have names that also occur as keys in pydantic's schemas."""

    type: Literal["type"] = "type"
    default: set[int] | None = None


class Other(Struct):
    type: Literal["default"] = "default"
    metadata: float | None = None


class Tagged(Struct):
    """A union that is told apart by a tag."""

    fields: Annotated[Typed | Other, Field(discriminator="type")]


def test_names_of_fields_and_tags_may_be_those_of_pydantic_s_schemas() -> None:
    assert Tagged.from_dict({"fields": {"type": "type", "default": [2, 1]}}).to_dict() == {
        "fields": {"type": "type", "default": [1, 2]}
    }
    with pytest.raises(pydantic.ValidationError, match="finite"):
        Tagged(fields=Other(metadata=math.nan))


def test_sets_are_written_in_order() -> None:
    letters = [*"hgfedcba"]
    measured = Measured(
        zones=set(letters),
        ports={"web": frozenset({80, 9, 443})},
        mixed={"b", 1, "a"},
        shares=[{"by_ratio": 0.5, "zones": set(letters)}],
    )
    data = measured.to_dict()
    assert data == {
        "zones": letters[::-1],
        "ports": {"web": [9, 80, 443]},
        "mixed": ["a", "b", 1],
        "shares": [{"byRatio": 0.5, "zones": letters[::-1]}],
    }
    assert json.loads(measured.to_json()) == data
    assert Measured.from_dict(data) == measured
    assert measured.model_dump()["zones"] == set(letters)


class Rated(Struct):
    """A struct with fields that the class computes."""

    ready: int = 0
    parts: list["Rated"] | None = None

    @pydantic.computed_field
    def is_ready(self) -> bool:
        """Whether anything is ready."""
        return self.ready > 0

    @pydantic.computed_field(alias="sum")  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return self.ready + sum(each.total for each in self.parts or ())


def test_computed_fields_are_written_and_not_read() -> None:
    class Narrower(Rated):
        name: str = ""

    text = b'{"ready":1,"parts":[{"ready":2,"isReady":true,"sum":2}],"isReady":true,"sum":3}'
    rated = Rated(ready=1, parts=[Rated(ready=2)])
    assert rated.to_json() == text
    stored = Rated.from_json(text.replace(b'"sum":3', b'"sum":9,"other":1'))
    assert stored.unknown_fields == {"other": 1}
    assert stored.to_dict() == {**json.loads(text), "other": 1}
    assert Rated.from_dict(rated.to_dict()) == rated
    assert Narrower.from_dict({"sum": 1, "name": "a"}).to_dict() == {
        **Rated().to_dict(),
        "name": "a",
    }
    Rated.model_rebuild(force=True)
    assert Rated.from_json(text) == rated
    with pytest.raises(TypeError, match="Rated has no field total"):
        Rated(total=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("field", "names"),
    [
        (Field(default=None, serialization_alias="size"), "size and read as maxSize"),
        (Field(default=None, validation_alias="size"), "maxSize and read as size"),
        (Field(default=None, validation_alias=AliasChoices("a", "b")), "maxSize and read as a or b"),
    ],
)
def test_a_field_is_read_by_the_name_under_which_it_is_written(field: Any, names: str) -> None:
    with pytest.raises(TypeError, match=f"Sized.max_size is written as {names}; give it one alias"):
        pydantic.create_model("Sized", __base__=Struct, max_size=(int | None, field))


def test_a_field_may_be_read_by_a_former_name() -> None:
    class Renamed(Struct):
        max_size: int = Field(
            default=0, validation_alias=AliasChoices("size", "limit"), serialization_alias="size"
        )

    for former in ("size", "limit"):
        assert Renamed.from_dict({former: 3}).to_dict() == {"size": 3}


class Counted(int):
    """A number that counts how often a schema is made of it."""

    times: ClassVar[int] = 0

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: pydantic.GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        cls.times += 1
        return core_schema.int_schema()


class Shared(Struct):
    number: Counted | None = None
    at: datetime.datetime | None = None
    next: "Circle | None" = None

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * (self.number or 0)


class Circle(Struct):
    back: Shared | None = None


class First(Struct):
    shared: Shared | None = None


class Second(Struct):
    shared: list[Shared] | None = None
    circles: dict[str, Circle] | None = None


def test_a_struct_is_built_once_for_all_that_contain_it() -> None:
    shared = {
        "number": 3,
        "at": "2026-01-01T00:00:00Z",
        "next": {"back": {"number": 4, "twice": 8}},
        "twice": 6,
    }
    first = First.from_dict({"shared": shared})
    built = Counted.times
    second = Second.from_dict({"shared": [shared], "circles": {"a": {"back": shared}}})
    assert Shared.from_dict(shared) == first.shared == second.shared[0] == second.circles["a"].back  # type: ignore[index]
    assert second.to_dict() == {"shared": [shared], "circles": {"a": {"back": shared}}}
    assert first.shared.unknown_fields == {}
    assert Counted.times == built
    assert Shared.__pydantic_complete__
