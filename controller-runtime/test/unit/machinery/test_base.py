# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Structs: unset fields are omitted, unknown fields are kept."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import Field
from pydantic.fields import FieldInfo

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Container, ContainerPort, Pod, PodTemplateSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import Struct, is_unset, wire_name
from ctrl_testkit.kinds import Crew, Fleet


@pytest.mark.parametrize(
    ("name", "wire"),
    [("name", "name"), ("restart_policy", "restartPolicy"), ("from_", "from"), ("a_b_c", "aBC")],
)
def test_wire_names(name: str, wire: str) -> None:
    assert wire_name(name, FieldInfo()) == wire


def test_what_a_newer_server_sends_is_kept() -> None:
    data = {"name": "a", "future": {"deep": [1]}, "env": [{"name": "A", "valueFrom": {"newRef": {"x": 1}}}]}
    container = Container.from_dict(data)
    assert container.to_dict() == data
    assert Container.from_json(container.to_json()).to_dict() == data


def test_unset_is_off_the_wire_and_empty_is_on_it() -> None:
    assert Container(name="a", args=[], resources=None).to_json() == b'{"name":"a","args":[]}'


def test_json_types_are_not_converted() -> None:
    with pytest.raises(pydantic.ValidationError, match="containerPort"):
        ContainerPort.from_dict({"containerPort": "80"})


def test_python_names_do_not_decode_and_wire_names_do_not_construct_silently() -> None:
    assert ContainerPort.from_dict({"container_port": 1}).container_port is None


def test_python_names_do_not_decode_beside_a_null() -> None:
    pod = Pod.from_json(b'{"spec": {"node_name": "a", "containers": [{"name": null}]}}')
    assert pod.spec.node_name is None


def test_acronyms_keep_their_wire_names() -> None:
    port = ContainerPort.from_dict({"hostIP": "1.2.3.4", "containerPort": 1})
    assert port.host_ip == "1.2.3.4"
    assert port.to_dict() == {"hostIP": "1.2.3.4", "containerPort": 1}


def test_embedded_structs_are_there_to_be_filled_and_off_the_wire_until_then() -> None:
    job = Crew(name="node")
    assert job.to_dict() == {"name": "node"}
    job.template.spec.template.spec.containers = [Container(name="a")]
    assert job.to_dict() == {
        "name": "node",
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}},
    }
    assert job.to_dict() == Crew.from_dict(job.to_dict()).to_dict()


def test_an_empty_metadata_that_was_given_is_sent() -> None:
    assert PodTemplateSpec.from_dict({"metadata": {}}).to_dict() == {"metadata": {}}


def test_unset_looks_below() -> None:
    template = PodTemplateSpec()
    assert is_unset(template)
    template.spec.host_network = False
    assert not is_unset(template)
    assert not is_unset(PodTemplateSpec.from_dict({"future": None}))


def test_a_copy_shares_nothing() -> None:
    fleet = Fleet.from_dict({"spec": {"crews": [{"name": "a"}], "future": {"x": []}}})
    copied = fleet.deep_copy()
    assert copied == fleet
    assert copied.model_fields_set == fleet.model_fields_set
    assert copied.spec.crews is not None
    copied.spec.crews[0].name = "b"
    assert copied.spec.model_extra is not None
    copied.spec.model_extra["future"]["x"].append(1)
    assert fleet.to_dict()["spec"] == {"crews": [{"name": "a"}], "future": {"x": []}}


def test_a_job_keeps_its_fields_in_the_structs_order_whatever_the_input_s() -> None:
    job = Job.from_json(b'{"spec":{"suspend":true,"parallelism":1},"metadata":{"name":"a"}}')
    assert list(job.to_dict()["spec"]) == ["parallelism", "suspend"]


@pytest.mark.parametrize("null", [{"name": None}, {"template": None}, {"template": {"spec": None}}])
def test_null_counts_as_unset(null: dict[str, object]) -> None:
    data = {"replicas": 1, **null}
    assert Crew.from_dict(data).replicas == 1
    assert Crew.from_json(json.dumps(data)).to_dict() == Crew.from_dict(data).to_dict()


@pytest.mark.parametrize("bad", ['{"replicas":"1","name":null}', '{"replicas":"1"}', "{", "[]", "null"])
def test_what_cannot_be_decoded_is_refused(bad: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        Crew.from_json(bad)


@pytest.mark.parametrize("decode", [Pod.from_json, lambda data: Pod.from_dict(json.loads(data))])
def test_many_values_of_a_wrong_type_are_one_error(decode: Callable[[bytes], Pod]) -> None:
    def refused(count: int) -> list[Any]:
        env = [{"name": 1}] * count
        with pytest.raises(pydantic.ValidationError) as raised:
            decode(json.dumps({"spec": {"containers": [{"name": "a", "env": env}]}}).encode())
        return raised.value.errors()

    assert len(refused(1000)) == 1000
    (error,) = refused(1001)
    assert error["msg"] == "1001 values have another type than their fields"


def test_a_value_is_put_without_counting_as_set() -> None:
    fleet = Fleet.from_dict({"metadata": {"name": "f"}})
    spec = fleet.spec.deep_copy()
    fleet.set_unchecked("spec", spec)
    assert fleet.spec is spec
    assert "spec" not in fleet.model_fields_set


def test_unknown_fields_are_read_and_replaced() -> None:
    fleet = Fleet.from_dict({"metadata": {"name": "f"}, "future": {"x": [1]}})
    assert fleet.unknown_fields == {"future": {"x": [1]}}
    fleet.set_unknown_fields({"other": True})
    assert fleet.to_dict()["other"] is True
    assert "future" not in fleet.to_dict()


def test_an_object_of_metadata_has_its_kinds_names_and_shares_the_metadata() -> None:
    metadata = ObjectMeta(name="f")
    made = Fleet.of_metadata(metadata)
    assert (made.api_version, made.kind) == (Fleet.gvk.api_version, Fleet.gvk.kind)
    assert made.metadata is metadata


class Room(Struct):
    floor_number: int | None = None
    pod_ip: Annotated[str | None, Field(alias="podIP")] = None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flor_number", "Room has no field flor_number; did you mean floor_number?"),
        ("podIp", "Room has no field podIp; did you mean pod_ip?"),
        ("windows", "Room has no field windows"),
    ],
)
def test_a_constructor_refuses_a_field_that_the_model_does_not_name(name: str, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Room(**{name: None})
    assert str(caught.value) == message


def test_a_constructor_takes_names_here_and_on_the_wire() -> None:
    assert Room(floorNumber=1, podIP="x") == Room(floor_number=1, pod_ip="x")  # type: ignore[call-arg]


def test_decoding_keeps_unknown_fields_and_calls_no_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **data: object) -> None:
        raise AssertionError("decoding called the constructor")

    Room.model_rebuild()  # pydantic looks at the constructor only when it builds the decoder
    monkeypatch.setattr(Struct, "__init__", refuse)
    assert Room.from_json('{"floorNumber":1,"windows":2}').to_dict() == {"floorNumber": 1, "windows": 2}
    assert Room.from_dict({"windows": 2}).to_dict() == {"windows": 2}


class Shelf(Struct):
    """A struct that two others contain, and itself."""

    label: str = ""
    above: "Shelf | None" = None


class Cabinet(Struct):
    """A struct with several of another."""

    shelves: dict[str, list[Shelf]] | None = None


class Wall(Struct):
    """A struct with one of another."""

    shelf: Shelf | None = None


def test_a_struct_of_a_function_decodes_structs_of_the_same_function() -> None:
    class Inner(Struct):
        size: int | None = None

    class Outer(Struct):
        inner: "Inner | None" = None

    assert Outer.model_validate({"inner": {"size": 2}}).inner == Inner(size=2)
    assert Outer.model_rebuild(force=True) is True
    assert Outer.from_json('{"inner": {"size": 2}}').inner == Inner(size=2)


def test_a_class_variable_is_set_by_a_class_with_or_without_annotation_and_never_by_an_object() -> None:
    class Named(Struct):
        go_always = frozenset({"name"})
        name: str = ""

    assert {*Named.go_always} == {"name"}
    assert not Struct.go_always
    assert list(Named.model_fields) == ["name"]
    named = Named(name="a")
    for name in ("go_always", "keeps_size"):
        with pytest.raises(AttributeError, match="is a ClassVar"):
            setattr(named, name, None)
    assert named.to_dict() == {"name": "a"}
