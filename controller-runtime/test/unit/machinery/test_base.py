# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Structs: unset fields are omitted, unknown fields are kept, and semantic equality."""

import functools
import json
from collections.abc import Callable
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import Field

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import (
    Container,
    EmptyDirVolumeSource,
    Pod,
    PodTemplateSpec,
    ResourceRequirements,
)
from controller_runtime.machinery import Struct, is_unset
from controller_runtime.machinery.equality import deep_equal
from ctrl_testkit.kinds import Crew, Fleet


def test_unset_is_off_the_wire_and_empty_is_on_it() -> None:
    assert Container(name="a", args=[], resources=None).to_json() == b'{"name":"a","args":[]}'


@pytest.mark.parametrize("containers", ["[]", '[{"name": null}]'], ids=["plain", "beside a null"])
def test_python_names_do_not_decode(containers: str) -> None:
    pod = Pod.from_json(f'{{"spec": {{"node_name": "a", "containers": {containers}}}}}')
    assert pod.spec.node_name is None


def test_embedded_structs_are_there_to_be_filled_and_off_the_wire_until_then() -> None:
    job = Crew(name="node")
    assert job.to_dict() == {"name": "node"}
    job.template.spec.template.spec.containers = [Container(name="a")]
    assert job.to_dict() == {
        "name": "node",
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}},
    }
    assert job.to_dict() == Crew.from_dict(job.to_dict()).to_dict()


def test_unset_looks_below() -> None:
    template = PodTemplateSpec()
    assert is_unset(template)
    template.spec.host_network = False
    assert not is_unset(template)
    assert not is_unset(PodTemplateSpec.from_dict({"future": None}))


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
def test_a_constructor_takes_the_names_of_the_model_and_of_the_wire_alone(name: str, message: str) -> None:
    assert Room(floorNumber=1, podIP="x") == Room(floor_number=1, pod_ip="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError) as caught:
        Room(**{name: None})
    assert str(caught.value) == message


def test_decoding_keeps_unknown_fields_and_calls_no_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **data: object) -> None:
        raise AssertionError("decoding called the constructor")

    Room.model_rebuild()  # pydantic looks at the constructor only when it builds the decoder
    monkeypatch.setattr(Struct, "__init__", refuse)
    assert Room.from_json('{"floorNumber":1,"windows":2}').to_dict() == {"floorNumber": 1, "windows": 2}
    assert Room.from_dict({"windows": 2}).to_dict() == {"windows": 2}


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


@pytest.mark.parametrize(
    ("kind", "a", "b", "equal"),
    [
        (Container, {"name": "a", "args": []}, {"name": "a"}, True),
        (Container, {"name": "a", "args": ["x"]}, {"name": "a"}, False),
        (Container, {"name": "a", "stdin": False}, {"name": "a"}, False),
        (Container, {"name": "a", "future": {"x": []}}, {"name": "a", "future": {"x": None}}, True),
        (Container, {"name": "a", "future": 1}, {"name": "a"}, False),
        (ResourceRequirements, {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1073741824"}}, True),
        (ResourceRequirements, {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1G"}}, False),
        (ResourceRequirements, {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1", "memory": "1"}}, False),
        (ResourceRequirements, {"limits": {}}, {}, True),
        (EmptyDirVolumeSource, {"sizeLimit": "1Ki"}, {"sizeLimit": "1024"}, True),
    ],
)
def test_structs(kind: type[Struct], a: dict[str, Any], b: dict[str, Any], equal: bool) -> None:
    assert deep_equal(kind.from_dict(a), kind.from_dict(b)) is equal
    assert deep_equal(kind.from_dict(b), kind.from_dict(a)) is equal


def test_kinds_differ_and_json_is_strict_about_truth() -> None:
    assert not deep_equal(EmptyDirVolumeSource(), ResourceRequirements())
    assert not deep_equal({"a": 1}, {"a": True})
    assert deep_equal({"a": [None]}, {"a": [{}]})


class Cached(Struct):
    size: int = 0

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.size


def test_a_cached_property_does_not_count() -> None:
    read, unread = Cached(size=1), Cached(size=1)
    assert read.twice == 2
    assert deep_equal(read, unread)
    assert deep_equal(unread, read)
    assert not deep_equal(read, Cached(size=2))
