# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The properties of kinds and of rules in a CustomResourceDefinition, and kinds with several versions."""

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field

import controller_runtime as ctrl
from controller_runtime.machinery.crd import custom_resource_definition
from ctrl_testkit.workers import WorkerV1, WorkerV1Beta1


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    found: dict[str, Any] = custom_resource_definition(WorkerV1Beta1, WorkerV1)["spec"]
    return found


def test_the_versions_of_a_kind_share_a_definition(spec: dict[str, Any]) -> None:
    assert [(each["name"], each["served"], each["storage"]) for each in spec["versions"]] == [
        ("v1beta1", True, False),
        ("v1", True, True),
    ]
    assert spec["names"] == {
        "kind": "Worker",
        "listKind": "Workers",
        "plural": "workers",
        "singular": "wrk",
        "shortNames": ["wk"],
        "categories": ["all", "workers"],
    }
    assert spec["conversion"] == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "service": {"namespace": "system", "name": "hooks", "path": "/convert", "port": 8443}
            },
            "conversionReviewVersions": ["v1"],
        },
    }


def test_a_version_has_its_own_properties(spec: dict[str, Any]) -> None:
    beta, stable = spec["versions"]
    assert beta["deprecated"] is True
    assert beta["deprecationWarning"] == "use v1"
    assert stable["selectableFields"] == [{"jsonPath": ".spec.zone"}]
    assert stable["subresources"] == {
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
        "status": {},
    }
    assert stable["additionalPrinterColumns"] == [
        {"name": "Age", "type": "string", "format": "date", "jsonPath": ".metadata.creationTimestamp"}
    ]
    assert "subresources" not in beta
    assert "deprecated" not in stable


def test_a_rule_has_all_that_the_api_server_knows(spec: dict[str, Any]) -> None:
    schema = spec["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "self.replicas <= self.limit",
            "messageExpression": "self.limit < 5 ? 'few' : 'many'",
            "reason": "FieldValueForbidden",
            "fieldPath": ".replicas",
        },
        {
            "rule": "!oldSelf.hasValue() || self.zone == oldSelf.value().zone",
            "message": "zone is immutable",
            "optionalOldSelf": True,
        },
    ]


class Other(ctrl.Object, group="example.com", version="v1", plural="others"):
    pass


def version(
    name: str, *, plural: str = "workers", namespaced: bool = True, **markers: Any
) -> type[ctrl.Object]:
    class Made(
        ctrl.Object, group="example.com", version=name, kind="Worker", plural=plural, namespaced=namespaced
    ):
        crd_kind: ClassVar = ctrl.crd.KindMarkers(**markers)

    return Made


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((WorkerV1, Other), "Other is not a version of Worker.example.com"),
        ((WorkerV1, version("v2", plural="wrks")), "Made has another plural name or scope than WorkerV1"),
        ((WorkerV1, version("v2", namespaced=False)), "Made has another plural name or scope than WorkerV1"),
        ((WorkerV1, version("v1")), "Worker.example.com has two classes for one version"),
        ((WorkerV1, version("v2", short_names=("w",))), "Made has other short_names than another version"),
        ((WorkerV1, version("v2", storage=True)), "is stored in 2 of its versions v1, v2: exactly one needs"),
        ((version("v1"), version("v2")), r"in 0 of its versions v1, v2: .* KindMarkers\(storage=True\)"),
        ((version("v1", storage=False),), "is stored in 0 of its versions v1"),
    ],
)
def test_versions_that_contradict_each_other_are_refused(kinds: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        custom_resource_definition(*kinds)


class Forgetful(ctrl.Object, group="example.com", version="v1", plural="forgetfuls"):
    crd_kind: ClassVar = ctrl.crd.Markers(min_properties=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: custom_resource_definition(Forgetful), "Forgetful.crd_kind must be KindMarkers"),
        (
            lambda: ctrl.crd.Rule("true", reason="Invalid"),  # type: ignore[arg-type]
            "reason must be one of FieldValueInvalid, .* not Invalid",
        ),
        (lambda: ctrl.crd.KindMarkers(short_names="wk"), "short_names must be a tuple"),  # type: ignore[arg-type]
        (
            lambda: ctrl.crd.Markers(schema=1),  # type: ignore[arg-type]
            "schema must be an OpenAPI schema, or the name of a recorded definition",
        ),
    ],
)
def test_a_marker_that_cannot_be_meant_is_refused(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_a_field_that_contains_its_own_struct_is_refused_with_what_helps() -> None:
    class Spec(ctrl.Struct):
        child: "Node | None" = None

    class Node(ctrl.Struct):
        spec: Spec | None = None

    Spec.model_rebuild(_types_namespace={"Node": Node})

    class Nodes(ctrl.Object, group="example.com", version="v1", plural="nodes"):
        spec: Spec | None = None

    with pytest.raises(
        TypeError, match=r"Node\.spec has no structural schema: Spec contains itself; give .*Markers"
    ):
        custom_resource_definition(Nodes)


def test_a_marker_with_a_list_or_a_map_may_be_part_of_an_optional_type() -> None:
    class Spec(ctrl.Struct):
        tags: Annotated[list[str], ctrl.crd.Markers(default=["a"])] | None = None
        any: (
            Annotated[
                dict[str, ctrl.machinery.JSON], ctrl.crd.Markers(schema={"type": "object", "nullable": True})
            ]
            | None
        ) = None

    class Tagged(ctrl.Object, group="example.com", version="v1", plural="taggeds"):
        spec: Spec = Field(default_factory=Spec)

    (made,) = custom_resource_definition(Tagged)["spec"]["versions"]
    assert made["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] == {
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
        "any": {"type": "object", "nullable": True},
    }
