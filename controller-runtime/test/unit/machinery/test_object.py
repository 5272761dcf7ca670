# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects: typed, unstructured, metadata only; and the scheme that selects their class."""

import copy
import json
import re
from typing import Any

import pydantic
import pytest
from pydantic import Field

from controller_runtime.apis import default_scheme
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import (
    GVK,
    Object,
    Scheme,
    Struct,
    Unstructured,
    metadata_only,
    unstructured,
)

WIDGET = GVK("example.com", "v1", "Widget")


def test_a_kind_is_named_after_its_class_unless_it_says_otherwise() -> None:
    class Harbour(Object, group="fleets.example.org", version="v2", plural="harbours"):
        pass

    class HarbourV1(Object, group="fleets.example.org", version="v1", kind="Harbour", plural="harbours"):
        pass

    class NearTheSea(Object):
        """A base class."""

    assert str(Harbour.gvk) == "fleets.example.org/v2, Kind=Harbour"
    assert Harbour().kind == "Harbour"
    assert HarbourV1.gvk.group_kind == Harbour.gvk.group_kind
    assert not hasattr(NearTheSea, "gvk")
    with pytest.raises(TypeError, match=r"^NearTheSea has no group, version and kind; declare them"):
        _ = NearTheSea.gvk


@pytest.mark.parametrize("kind", [Pod, unstructured(Pod.gvk)])
def test_data_of_another_kind_is_refused(kind: type[Object]) -> None:
    for decode in (kind.from_dict, lambda data: kind.from_json(json.dumps(data))):
        with pytest.raises(pydantic.ValidationError, match="kind is Secret, not Pod"):
            decode({"kind": "Secret", "metadata": {"name": "a"}})
    named = metadata_only(Pod).from_dict({"kind": "PartialObjectMetadata", "metadata": {"name": "a"}})
    assert named.name == "a"


def test_an_unstructured_object_is_read_by_path() -> None:
    widget = Unstructured.wrap({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": {"b": 1}}})
    assert type(widget) is unstructured(WIDGET)
    assert widget.nested("spec", "a", "b") == 1
    assert widget.nested("spec", "x", "b") is None
    widget["spec"] = 2
    assert widget["spec"] == 2


def test_metadata_only_keeps_the_kinds_own_names() -> None:
    kind = metadata_only(Pod)
    assert kind is metadata_only(Pod)
    assert (kind.gvk, kind.resource) == (Pod.gvk, Pod.resource)


def test_a_scheme_decodes_by_what_the_object_says() -> None:
    scheme = default_scheme()
    assert isinstance(scheme.decode({"apiVersion": "v1", "kind": "Pod"}), Pod)
    assert isinstance(scheme.decode({"apiVersion": "example.com/v1", "kind": "Widget"}), Unstructured)
    assert Node.gvk in scheme
    assert WIDGET not in scheme


def test_two_classes_for_one_kind_are_refused() -> None:
    scheme = Scheme(Pod, Pod)
    with pytest.raises(ValueError, match="Pod is registered as Pod already"):
        scheme.register(unstructured(Pod.gvk))


def test_an_unknown_keyword_of_a_kind_is_named() -> None:
    with pytest.raises(TypeError, match="Odd has the unknown keyword plurals; a kind has group, version"):

        class Odd(Object, group="example.com", version="v1", plurals="odds"):
            pass


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_the_first_label_is_set_in_the_metadata_and_never_lost_in_silence(field: str) -> None:
    found = Pod.from_dict({"metadata": {"name": "c"}})
    held: dict[str, str] = getattr(found, field)
    writes = (
        lambda: held.__setitem__("a", "b"),
        lambda: held.update({"a": "b"}),
        lambda: held.setdefault("a", "b"),
        lambda: held.__ior__({"a": "b"}),
    )
    for write in writes:
        with pytest.raises(TypeError, match=f"the object has no {field}: set metadata.{field} to a map"):
            write()
    assert ({**held, "a": "b"}, held == {}, copy.deepcopy(held)) == ({"a": "b"}, True, {})
    setattr(found.metadata, field, {"a": "b"})
    getattr(found, field)["c"] = "d"
    assert getattr(found.metadata, field) == {"a": "b", "c": "d"}


@pytest.mark.parametrize("field", ["name", "namespace", "labels", "annotations"])
def test_a_field_of_the_metadata_that_is_set_on_the_object_itself_is_named(field: str) -> None:
    for obj in (Pod(), unstructured(GVK("example.com", "v1", "Room"))()):
        with pytest.raises(
            AttributeError, match=rf"\.{field} can only be read; did you mean metadata\.{field}\?"
        ):
            setattr(obj, field, {})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("finalizers", "metadata.finalizers"),
        ("ownerReferences", "metadata.owner_references"),
        ("node_name", "spec.node_name"),
        ("hostNetwork", "spec.host_network"),
        ("phase", "status.phase"),
        ("apiVersion", "api_version"),
    ],
)
def test_a_field_in_the_wrong_place_is_named_when_it_is_read_set_or_passed(name: str, meant: str) -> None:
    kind: Any = Pod
    pod = kind()
    text = re.escape(f"Pod has no field {name}; did you mean {meant}?")
    with pytest.raises(AttributeError, match=text):
        getattr(pod, name)
    with pytest.raises(AttributeError, match=text):
        setattr(pod, name, "")
    if "." in meant:
        with pytest.raises(TypeError, match=text):
            kind(**{name: ""})
    assert not hasattr(pod, name)
    assert getattr(pod, name, None) is None


def test_a_field_of_a_struct_that_is_read_under_its_name_in_json_is_named() -> None:
    with pytest.raises(AttributeError, match=r"PodSpec has no field nodeName; did you mean node_name\?"):
        _ = Pod().spec.nodeName  # type: ignore[attr-defined]  # the mistake


class Deck(Object, group="fleets.example.org", version="v1", plural="decks"):
    planks: list[str] = Field(default_factory=list)
    spec: dict[str, Any] | None = None


class YardSpec(Struct):
    pod: Pod | None = None
    many: list[Pod] = Field(default_factory=list)
    named: dict[str, Pod] = Field(default_factory=dict)
    either: Deck | Pod | None = None
    widget: Unstructured | None = None
    own: Pod = Field(default_factory=Pod)


class Yard(Object, group="fleets.example.org", version="v1", plural="yards"):
    spec: YardSpec = Field(default_factory=YardSpec)
    pod: Pod | None = None


POD = {"apiVersion": "v1", "kind": "Pod"}


@pytest.mark.parametrize(
    ("field", "value", "written"),
    [
        pytest.param("pod", Pod(), POD, id="a field"),
        pytest.param("many", [Pod(), Pod()], [POD, POD], id="a list"),
        pytest.param("named", {"a": Pod()}, {"a": POD}, id="a map"),
        pytest.param("either", Pod(), POD, id="a union"),
        pytest.param("own", Pod(), POD, id="a default"),
        pytest.param(
            "widget", unstructured(WIDGET)(), {"apiVersion": "example.com/v1", "kind": "Widget"}, id="any"
        ),
        pytest.param("pod", Pod(metadata=ObjectMeta()), POD | {"metadata": {}}, id="metadata that was set"),
        pytest.param("pod", Pod.from_dict({"spec": {}}), POD | {"spec": {}}, id="a part that was read"),
        pytest.param(
            "pod", Pod(metadata=ObjectMeta(name="a")), POD | {"metadata": {"name": "a"}}, id="a name"
        ),
    ],
)
def test_an_object_in_a_field_is_written_as_it_is_by_itself(field: str, value: Any, written: Any) -> None:
    spec = YardSpec(**{field: value})
    assert spec.to_dict()[field] == written
    yard = Yard(spec=spec)
    assert json.loads(yard.to_json())["spec"] == spec.to_dict() == yard.to_dict()["spec"]


def test_an_object_whose_template_was_filled_after_it_was_made_is_written_whole() -> None:
    yard = Yard(pod=Pod())
    assert yard.pod is not None
    yard.pod.metadata.labels = {"a": "b"}
    yard.spec.own.spec.node_name = "n"
    assert yard.to_dict() == {
        "apiVersion": "fleets.example.org/v1",
        "kind": "Yard",
        "pod": POD | {"metadata": {"labels": {"a": "b"}}},
        "spec": {"many": [], "named": {}, "own": POD | {"spec": {"nodeName": "n"}}},
    }
    assert Yard.from_json(yard.to_json()) == yard.deep_copy()
