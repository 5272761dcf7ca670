# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Structs beside pydantic: what they share with its models, and the types and declarations that they leave to it."""

import copy
import datetime
import enum
import pickle
import subprocess
import sys
import types
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Final, Literal, Optional, Union

import pydantic
import pytest
from annotated_types import Ge

from controller_runtime.apis.core.v1 import Container, Pod
from controller_runtime.apis.machinery.base import Converter, Field, Struct
from controller_runtime.apis.machinery.crd import CRD
from controller_runtime.apis.machinery.object import Object, ObjectMeta, metadata_only


class Colour(enum.Enum):
    RED = "red"


class Plain(pydantic.BaseModel):
    size: int


class Leaf(Struct):
    name: str = ""
    pod_ip: str | None = Field(default=None, wire="podIP", description="an address")


class Tree(Struct):
    """Every kind of type: those that are known here, and those that pydantic translates."""

    phase: Literal["Pending", "Running"] | None = None
    count: int | str | None = None
    old: Optional[Union[int, str]] = None  # noqa: UP007, UP045
    text: Annotated[str, Converter(str.strip)] | None = None
    bounded: Annotated[int, CRD(minimum=1), Ge(1)] | None = None
    limited: int | None = pydantic.Field(default=None, le=3)
    at: datetime.datetime | None = None
    colour: Colour | None = None
    plain: Plain | None = None
    pair: tuple[Leaf, "Tree"] | None = None
    leaves: list["Leaf"] | None = None
    by_name: dict[str, dict[str, Leaf]] | None = None
    anything: object = None
    bare: dict | list | None = None  # type: ignore[type-arg]
    KIND: Final = "Tree"
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
        ({"leaves": [{"name": "a", "podIP": "x"}]}, None),
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
        return
    with pytest.raises(pydantic.ValidationError) as raised:
        Tree.from_dict(data)
    assert raised.value.errors()[0]["type"] in error.split("|")


def test_types_that_pydantic_translates_are_decoded_from_json_text() -> None:
    text = '{"at":"2026-01-02T03:04:05Z","colour":"red","pair":[{"name":"a"},{"pair":[{"name":"b"},{}]}]}'
    tree = Tree.from_json(text)
    assert tree.at == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)  # noqa: UP017
    assert tree.colour is Colour.RED
    assert tree.pair is not None
    assert tree.pair[1].pair == (Leaf(name="b"), Tree())
    assert Tree.from_json(tree.to_json()) == tree
    with pytest.raises(pydantic.ValidationError, match=r"pair\.1\.phase"):
        Tree.from_json('{"pair":[{},{"phase":"no"}]}')


def test_a_converter_runs_before_the_type_is_checked() -> None:
    assert Tree.from_dict({"text": " a "}).text == "a"


def test_constants_are_no_fields_and_defaults_are_no_class_attributes() -> None:
    assert "limit" not in Tree.model_fields
    assert "KIND" not in Tree.model_fields
    assert (Tree.limit, Tree.KIND) == (3, "Tree")
    assert not hasattr(Leaf, "name")
    assert Leaf.model_fields["pod_ip"].alias == "podIP"
    assert Leaf.model_fields["pod_ip"].description == "an address"
    assert Leaf.model_fields["name"].default == ""


def test_a_mutable_default_is_not_shared() -> None:
    class Bag(Struct):
        items: list[int] = []  # noqa: RUF012

    first = Bag()
    first.items.append(1)
    assert Bag().items == []
    assert Bag.model_construct().items == []


def test_a_field_without_a_default_is_required() -> None:
    class Named(Struct):
        name: str

    assert Named.model_fields["name"].is_required()
    with pytest.raises(pydantic.ValidationError, match="Field required"):
        Named.from_dict({})
    with pytest.raises(pydantic.ValidationError, match="Field required"):
        Named()  # type: ignore[call-arg]


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


class _Named:
    """A mixin that is not a struct."""

    title: str | None = None

    def shout(self) -> str:
        return (self.title or "").upper()


class _Checked(ABC):
    @abstractmethod
    def check(self) -> bool: ...


def test_mixins_contribute_fields_and_methods_and_abstract_ones_are_to_be_implemented() -> None:
    class Sign(_Named, _Checked, Struct):
        def check(self) -> bool:
            return bool(self.title)

    class Unfinished(_Checked, Struct):
        pass

    sign = Sign.from_dict({"title": "a"})
    assert sign.shout() == "A"
    assert isinstance(sign, _Checked)
    assert sign.check()
    assert sign.to_dict() == {"title": "a"}
    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]


def test_a_forward_reference_in_a_function_is_found_while_the_function_runs() -> None:
    class Outer(Struct):
        inner: "list[Inner] | None" = None

    class Inner(Struct):
        size: int = 0

    assert Outer.from_dict({"inner": [{"size": 1}]}).inner == [Inner(size=1)]


def test_an_unknown_name_in_an_annotation_is_reported_with_its_field() -> None:
    class Broken(Struct):
        part: "Missing | None" = None  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(NameError, match=r"field part of .*Broken: name 'Missing' is not defined"):
        Broken.from_dict({})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"replicas": 1}, "replicas has no annotation"),
        ({"__annotations__": {"_hidden": "int"}, "_hidden": 1}, "_hidden is not a field"),
        ({"model_config": {"validate_assignment": True}}, "do not support the setting validate_assignment"),
    ],
)
def test_a_declaration_without_a_meaning_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        types.new_class("Odd", (Struct,), exec_body=lambda namespace: namespace.update(body))


def test_a_property_of_pydantics_field_that_has_no_meaning_is_refused() -> None:
    class Odd(Struct):
        size: int = pydantic.Field(default=0, validate_default=True)

    with pytest.raises(TypeError, match=r"Field\(validate_default=\.\.\.\) is not supported"):
        Odd()


def test_a_setting_of_a_class_applies_to_it_and_its_subclasses() -> None:
    class Closed(Struct):
        model_config: ClassVar = {"extra": "forbid"}
        size: int | None = None

    class Below(Closed):
        pass

    for kind in (Closed, Below):
        assert kind.from_dict({"size": 1}).to_dict() == {"size": 1}
        with pytest.raises(pydantic.ValidationError, match="extra"):
            kind.from_dict({"other": 1})
        assert kind.model_construct(other=1).model_extra is None
        with pytest.raises(ValueError, match='no field "other"'):
            kind().other = 1  # type: ignore[attr-defined]


def test_an_assignment_is_not_checked_and_counts_as_set() -> None:
    leaf = Leaf()
    leaf.name = 3  # type: ignore[assignment]
    leaf.future = [1]  # type: ignore[attr-defined]
    assert leaf.model_fields_set == {"name", "future"}
    assert leaf.future == [1]  # type: ignore[attr-defined]
    assert leaf.model_extra == {"future": [1]}
    del leaf.future  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Leaf' object has no attribute 'future'"):
        _ = leaf.future  # type: ignore[attr-defined]
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
        shallow.other = 2
        assert shallow.leaves is tree.leaves
        assert tree.to_dict() == {"leaves": [{"name": "a"}], "future": [1]}
    changed = tree.model_copy(update={"count": 3, "unknown": 4})
    assert changed.to_dict() == {**tree.to_dict(), "count": 3, "unknown": 4}
    assert {"count", "unknown"} <= changed.model_fields_set


def test_equal_objects_have_the_same_class_fields_and_unknown_fields() -> None:
    assert Leaf(name="a") == Leaf.from_dict({"name": "a"})
    assert Leaf(name="a") != Leaf(name="b")
    assert Leaf.from_dict({"x": 1}) != Leaf()
    assert Leaf() != Tree()
    assert Leaf() != {"name": ""}
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
    high_mark: int | None = pydantic.Field(default=None, alias="HIGH")
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


def test_decoders_and_serializers_do_not_keep_the_schema_that_they_were_built_from() -> None:
    for built in (Pod.__pydantic_validator__, Pod.__pydantic_serializer__):
        assert built.__reduce__()[1][0] == {}
    assert Pod.from_json('{"spec":{"hostNetwork":true}}').to_dict()["spec"] == {"hostNetwork": True}


def test_an_object_has_its_names_however_it_is_made() -> None:
    class Wheel(Object, group="example.com", version="v1", plural="wheels"):
        metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    for wheel in (Wheel(), Wheel.from_dict({}), Wheel.model_construct(), Wheel.of_metadata(ObjectMeta())):
        assert (wheel.api_version, wheel.kind) == ("example.com/v1", "Wheel")
    assert metadata_only(Wheel).from_json('{"metadata":{"name":"a"}}').kind == "Wheel"


_WITHOUT_PYDANTIC = """
import sys
import controller_runtime as ctrl
from controller_runtime.apis.apps.v1 import Deployment
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.base import Field, Struct
from controller_runtime.apis.machinery.object import Object

class ShipSpec(Struct):
    size: int | None = None
    phase: "dict[str, list[ShipSpec]] | None" = None

class Ship(Object, group="example.com", version="v1", plural="ships"):
    spec: ShipSpec = Field(default_factory=ShipSpec)

assert Pod.from_json('{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":1}}}]}}').to_dict()
assert Deployment(spec={"replicas": 1}).deep_copy().to_json()
assert Ship.from_dict({"spec": {"phase": {"a": [{"size": 1}]}}}).to_json()
try:
    Ship.from_dict({"spec": {"size": "a"}})
except ValueError:
    pass
ctrl.Manager, ctrl.client, ctrl.webhook
print("pydantic" in sys.modules)
"""


@pytest.mark.real_time
def test_kinds_are_declared_decoded_and_written_without_importing_pydantic() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYDANTIC], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "False\n", "")
