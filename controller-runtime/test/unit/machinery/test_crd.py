# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""From a model and its markers to a CustomResourceDefinition."""

import json
from typing import Annotated, Any, ClassVar

import pydantic
import pytest
from pydantic import Field, ValidationError

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import ConfigMap, LocalObjectReference
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import JSON, Int32, Int64, Object, Struct, errors, openapi, unstructured
from controller_runtime.machinery.crd import (
    ATOMIC,
    KindMarkers,
    Markers,
    PrinterColumn,
    Rule,
    custom_resource_definition,
    unreadable_in_go,
)
from controller_runtime.machinery.quantity import IntOrString, Quantity


class WidgetSpec(Struct):
    """The desired state of a widget."""

    crd: ClassVar[Markers] = Markers(min_properties=1, rules=(Rule("true", "never"),))

    name: Annotated[
        str, Markers(min_length=1, max_length=9, pattern="^a", format="hostname", required=True)
    ] = ""
    """Its ``name``,
    on two lines.

    And a paragraph.
    """
    size: Annotated[Int32 | None, Markers(minimum=0, maximum=9, default=0, required=True)] = None
    mode: Annotated[str | None, Markers(enum=("a", ""), default="a")] = None
    port: IntOrString | None = None
    memory: Quantity | None = None
    tags: Annotated[list[str] | None, Markers(list_type="set", min_items=1, max_items=2)] = None
    parts: Annotated[list[dict[str, JSON]] | None, Markers(list_type="atomic", schema="core.v1.EnvVar")] = (
        None
    )
    refs: Annotated[list[LocalObjectReference] | None, ATOMIC] = None
    ratio: float | None = None
    anything: JSON | None = None
    on: Annotated[bool | None, Markers(default=False)] = None
    volumes: Annotated[list[dict[str, JSON]] | None, Markers(list_type="atomic", schema="core.v1.Volume")] = (
        None
    )
    when: Annotated[str | None, Markers(format="date-time")] = None


class Parcel(Object, group="example.com", version="v1", kind="Parcel", plural="parcels"):
    """A parcel has a receiver."""

    receiver: str


class Widget(Object, group="example.com", version="v1", kind="Widget", plural="widgets", namespaced=False):
    """A widget."""

    crd_kind: ClassVar[KindMarkers] = KindMarkers(
        printer_columns=(PrinterColumn("Size", "integer", ".spec.size", "how big", 1),),
        status_subresource=True,
        rules=(Rule("self.metadata.name != 'x'", "not x"),),
    )

    spec: WidgetSpec = Field(default_factory=WidgetSpec)


def schema_of(kind: type[Object]) -> dict[str, Any]:
    """Return the schema of a kind with one version."""
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def schema_of_spec(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of the spec of a kind whose spec is a ``struct``."""

    class Thing(Object, group="example.com", version="v1", plural="things"):
        spec: struct | None = None  # type: ignore[valid-type]  # a parameter

    schema: dict[str, Any] = schema_of(Thing)["properties"]["spec"]
    return schema


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    return schema_of_spec(WidgetSpec)


def test_names_scope_columns_and_subresources() -> None:
    crd = custom_resource_definition(Widget)
    assert crd["metadata"] == {"name": "widgets.example.com"}
    assert crd["spec"]["scope"] == "Cluster"
    assert crd["spec"]["names"] == {
        "kind": "Widget",
        "listKind": "WidgetList",
        "plural": "widgets",
        "singular": "widget",
    }
    version = crd["spec"]["versions"][0]
    assert version["additionalPrinterColumns"] == [
        {"description": "how big", "jsonPath": ".spec.size", "name": "Size", "priority": 1, "type": "integer"}
    ]
    assert version["subresources"] == {"status": {}}
    root = version["schema"]["openAPIV3Schema"]
    assert root["x-kubernetes-validations"] == [{"message": "not x", "rule": "self.metadata.name != 'x'"}]
    assert root["properties"]["metadata"] == {"type": "object"}


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (
            "name",
            {
                "description": "Its name, on two lines.\n\nAnd a paragraph.",
                "format": "hostname",
                "maxLength": 9,
                "minLength": 1,
                "pattern": "^a",
                "type": "string",
            },
        ),
        ("size", {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9, "default": 0}),
        ("mode", {"type": "string", "enum": ["a", ""], "default": "a"}),
        (
            "tags",
            {
                "items": {"type": "string"},
                "type": "array",
                "minItems": 1,
                "maxItems": 2,
                "x-kubernetes-list-type": "set",
            },
        ),
        ("on", {"type": "boolean", "default": False}),
    ],
)
def test_fields(spec: dict[str, Any], field: str, schema: dict[str, Any]) -> None:
    assert spec["properties"][field] == schema


def test_kubernetes_own_structs_come_from_the_record(spec: dict[str, Any]) -> None:
    assert spec["properties"]["parts"]["items"] == openapi.definition("core.v1.EnvVar")
    assert spec["properties"]["refs"] == {
        "items": {
            "properties": {"name": {"default": "", "type": "string"}},
            "type": "object",
            "x-kubernetes-map-type": "atomic",
        },
        "type": "array",
        "x-kubernetes-list-type": "atomic",
    }


def test_a_struct_s_own_constraints(spec: dict[str, Any]) -> None:
    assert spec["required"] == ["name", "size"]
    assert spec["minProperties"] == 1
    assert spec["x-kubernetes-validations"] == [{"message": "never", "rule": "true"}]
    assert spec["description"] == "The desired state of a widget."


def test_a_field_without_a_default_is_required() -> None:
    assert schema_of(Parcel)["required"] == ["receiver"]


def test_a_kind_without_a_plural_has_no_definition() -> None:
    with pytest.raises(ValueError, match="has no plural name"):
        custom_resource_definition(unstructured(Widget.gvk))


def test_a_definition_is_the_caller_s_own() -> None:
    openapi.definition("core.v1.EnvVar")["properties"].clear()
    assert openapi.definition("core.v1.EnvVar")["properties"]
    assert openapi.version().startswith("1.")


class Described(Struct):
    days: Annotated[int | None, Field(description="how long")] = None


class Twice(Struct):
    a_b: int | None = None
    aB: str | None = None  # noqa: N815


def test_a_description_of_pydantic_s_field_is_that_of_the_property() -> None:
    assert schema_of_spec(Described)["properties"]["days"] == {"type": "integer", "description": "how long"}


def test_two_fields_of_one_name_in_json_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Twice\.aB has the name aB in JSON, like another field"):
        schema_of_spec(Twice)


class Rated(Struct):
    limit: Annotated[int | None, Markers(max_length=4)] = Field(default=None, alias="cap")
    ready: int | None = Field(default=None, validation_alias="up", serialization_alias="up")
    other: int | None = None
    inner: int = Field(exclude=True)

    @pydantic.field_serializer("limit")
    def _written(self, value: int | None) -> str | None:
        return None if value is None else f"{value}m"

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def is_ready(self) -> list[bool | None]:
        """Whether anything is ready."""
        return [bool(self.ready)]


class Shown(Struct):
    number: int = Field(default=1, ge=1, le=9)
    names: Annotated[list[str], Field(min_length=1), pydantic.PlainSerializer(",".join, return_type=str)]
    parts: list[Annotated[int, Field(ge=1), pydantic.PlainSerializer(str, return_type=str)]] | None = None

    @pydantic.field_serializer("number")
    def _written(self, value: int) -> str:
        return "n" * value


def test_bounds_of_a_value_are_not_those_of_the_text_that_a_serializer_writes() -> None:
    text = {"type": "string"}
    assert schema_of_spec(Shown)["properties"] == {
        "number": text,
        "names": text,
        "parts": {"type": "array", "items": text},
    }


def test_a_definition_has_the_names_and_types_that_the_class_writes() -> None:
    assert schema_of_spec(Rated) == {
        "type": "object",
        "properties": {
            "cap": {"type": "string", "maxLength": 4},
            "up": {"type": "integer"},
            "other": {"type": "integer"},
            "isReady": {
                "type": "array",
                "items": {"type": "boolean", "nullable": True},
                "description": "Whether anything is ready.",
            },
        },
    }


@pytest.mark.parametrize("kind", [Described, Parcel(receiver="a")])
def test_what_is_no_kind_has_no_definition(kind: Any) -> None:
    with pytest.raises(TypeError, match="is not a kind: a subclass of Object with group, version and plural"):
        custom_resource_definition(kind)


def test_a_base_class_of_kinds_has_no_definition() -> None:
    with pytest.raises(TypeError, match=r"^Object has no group, version and kind; declare them"):
        custom_resource_definition(Object)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ({"list_type": "mapp"}, "list_type must be atomic, map or set, not mapp"),
        ({"list_type": "map"}, "list_map_keys must be a tuple of names"),
        ({"list_map_keys": ("name",)}, "list_map_keys must be a tuple of names"),
        ({"list_type": "map", "list_map_keys": "name"}, "list_map_keys must be a tuple of names"),
        ({"rules": Rule("a", "b")}, "rules must be a tuple of Rule"),
        ({"rules": ("self == oldSelf",)}, "rules must be a tuple of Rule"),
    ],
)
def test_a_marker_that_no_server_takes_is_refused(marker: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Markers(**marker)


def test_a_kind_of_a_module_without_source_has_a_definition_without_the_texts_of_fields() -> None:
    names: dict[str, Any] = {"__name__": "notebook", "Struct": Struct}
    exec('class Spec(Struct):\n    days: int = 1\n    """How long."""\n', names)
    assert schema_of_spec(names["Spec"])["properties"] == {"days": {"type": "integer"}}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"size": 2**31 - 1, "port": -(2**31), "memory": 2**70, "ratio": 2.0**70, "anything": 2**70}, None),
        ({"size": 2**31}, "spec.size: Invalid value: 2147483648: must fit into 32 bits"),
        ({"port": 2**31}, "spec.port: Invalid value: 2147483648: must fit into 32 bits"),
        ({"port": "2147483648"}, None),
        ({"volumes": [{"iscsi": {"lun": 1}}, {"iscsi": {"lun": -(2**31) - 1}}]}, "spec.volumes[1].iscsi.lun"),
        ({"volumes": [[[{"iscsi": {"lun": 2**31}}]]]}, None),
        (
            {"when": "2031-05-06t07:08:09z"},
            'spec.when: Invalid value: "2031-05-06t07:08:09z": must be a time',
        ),
        ({"when": "2031-05-06T07:08:09Z"}, None),
    ],
)
def test_numbers_and_times_that_go_cannot_read_are_found(spec: dict[str, Any], error: str | None) -> None:
    widget = {"metadata": {"generation": 2**70}, "spec": spec}
    for data in (widget, json.dumps(widget).encode()):
        found = unreadable_in_go(Widget, data)
        assert found is None if error is None else str(found).startswith(error)


@pytest.mark.parametrize("spec", ["text", None, [{"size": 2**31}], {"volumes": {"a": 1}}, {"volumes": None}])
def test_a_text_whose_fields_have_other_types_has_no_unreadable_number(spec: Any) -> None:
    data = {"metadata": 1, "spec": spec, "status": None}
    assert unreadable_in_go(Widget, json.dumps(data).encode()) is None


def test_of_a_text_only_the_fields_that_may_have_such_numbers_are_decoded() -> None:
    text = b'{"metadata":{"name":"\xff"},"spec":{"size":1}}'
    with pytest.raises(UnicodeDecodeError):
        json.loads(text)
    assert unreadable_in_go(Widget, text) is None


def test_kubernetes_own_kinds_are_left_to_the_api_server() -> None:
    assert unreadable_in_go(ConfigMap, {"data": 2**70}) is None


class Sizes(Struct):
    small: Int32 = 0
    maybe: Annotated[Int32 | None, Markers(minimum=1)] = None
    large: Int64 | None = None
    items: list[Int32] | None = None
    by_name: dict[str, Int64] | None = None


class Sized(Object, group="example.com", version="v1", plural="sized"):
    spec: Sizes = Field(default_factory=Sizes)


def test_numbers_of_a_size_have_bounds_in_the_definition_that_the_server_does_not_have_itself() -> None:
    small = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}
    large = {"type": "integer", "format": "int64"}
    assert schema_of_spec(Sizes)["properties"] == {
        "small": small,
        "maybe": {**small, "minimum": 1},
        "large": large,
        "items": {"type": "array", "items": small},
        "byName": {"type": "object", "additionalProperties": large},
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"small": 2**31}, "spec.small"),
        ({"maybe": -(2**31) - 1}, "spec.maybe"),
        ({"large": 2**63}, "spec.large"),
        ({"large": -(2**63) - 1}, "spec.large"),
        ({"items": [1, 2**40]}, "spec.items.1"),
        ({"byName": {"a": 10**30}}, "spec.byName.a"),
    ],
)
def test_numbers_of_a_size_are_refused_beyond_it(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as from_dict:
        Sized.from_dict({"spec": spec})
    with pytest.raises(ValidationError) as from_json:
        Sized.from_json(json.dumps({"spec": spec}))
    for raised in (from_dict, from_json):
        path, problem = errors.first_problem(raised.value)
        assert path == field
        assert problem.startswith("Input should be ")
    largest = {"small": 2**31 - 1, "maybe": -(2**31), "large": 2**63 - 1, "byName": {"a": -(2**63)}}
    assert Sized.from_dict({"spec": largest}).to_dict()["spec"] == largest


class Boxes(Struct):
    listed: list[Annotated[Sizes, Markers(min_properties=1)]] | None = None
    named: dict[str, Annotated[Sizes, Markers(min_properties=1)]] | None = None


class Boxed(Object, group="example.com", version="v1", plural="boxed"):
    spec: Boxes = Field(default_factory=Boxes)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"listed": [{"small": 2**31}]}, "spec.listed[0].small"),
        ({"named": {"a": {"large": 2**63}}}, "spec.named.a.large"),
    ],
)
def test_numbers_that_go_cannot_read_are_found_in_items_with_markers_of_their_own(
    spec: dict[str, Any], field: str
) -> None:
    assert str(unreadable_in_go(Boxed, {"spec": spec})).startswith(f"{field}: Invalid value")


class Templated(Struct):
    whole: ctrl.Unstructured | None = None
    many: list[ctrl.Unstructured] | None = None
    values: dict[str, Any] | None = None
    groups: dict[str, dict[str, Any]] | None = None
    base: ctrl.Object | None = None
    struct: ctrl.Struct | None = None
    plain: dict | None = None  # type: ignore[type-arg]  # as written by beginners


class Holder(Object, group="example.com", version="v1", plural="holders"):
    spec: Templated


def test_content_that_has_no_schema_is_kept() -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    embedded = {**anything, "x-kubernetes-embedded-resource": True}
    assert schema_of_spec(Templated)["properties"] == {
        "whole": embedded,
        "many": {"type": "array", "items": embedded},
        "values": anything,
        "groups": {"type": "object", "additionalProperties": anything},
        "base": embedded,
        "struct": anything,
        "plain": anything,
    }


async def test_the_server_in_memory_keeps_what_has_no_schema_and_prunes_the_rest() -> None:
    client = FakeClient(crds=[custom_resource_definition(Holder)])
    template = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": "x"}}
    spec = {"whole": template, "values": {"a": {"b": [1]}}, "unknown": 1}
    made = await client.create(Holder.from_dict({"metadata": {"namespace": "n", "name": "h"}, "spec": spec}))
    assert made.to_dict()["spec"] == {"whole": template, "values": {"a": {"b": [1]}}}


class Inner(Struct):
    image: str
    tag: str = ""
    count: int = 1


class Optionals(Struct):
    inner: Inner = Field(default_factory=Inner)  # type: ignore[arg-type]  # it needs an image


class Parents(Struct):
    needed: Inner = Field(default_factory=Inner)  # type: ignore[arg-type]  # it needs an image
    deep: Optionals = Field(default_factory=Optionals)
    optional: Inner | None = None


def test_a_field_is_required_exactly_if_the_class_needs_it_also_through_its_parents() -> None:
    class Required(Object, group="example.com", version="v1", plural="requireds"):
        spec: Parents = Field(default_factory=Parents)

    root = schema_of(Required)
    assert root["required"] == ["spec"]
    spec = root["properties"]["spec"]
    assert spec["required"] == ["deep", "needed"]
    assert spec["properties"]["needed"]["required"] == ["image"]
    assert spec["properties"]["deep"]["required"] == ["inner"]
    assert spec["properties"]["optional"]["required"] == ["image"]
    with pytest.raises(pydantic.ValidationError, match="image"):
        Required.from_dict({"metadata": {"name": "r"}})


class Derived(Struct):
    low: int = 1
    high: int = Field(default_factory=lambda data: data["low"] + 1)


def test_a_field_whose_default_comes_from_other_fields_is_optional() -> None:
    assert "required" not in schema_of_spec(Derived)
    assert Derived.from_dict({"low": 4}).high == 5


def test_a_default_that_raises_is_one_error_with_class_and_field() -> None:
    def absent() -> str:
        return dict[str, str]()["HOME"]  # as a variable of the environment may be

    class Broken(Struct):
        path: str = Field(default_factory=absent)

    with pytest.raises(TypeError, match=r"Broken\.path has .* its default factory raises KeyError: 'HOME'$"):
        schema_of_spec(Broken)
