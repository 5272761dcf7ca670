# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""From the types of fields, as pydantic documents them, to a CustomResourceDefinition."""

import pydantic
import pytest

from controller_runtime.apis.machinery.base import Struct
from controller_runtime.apis.machinery.crd_schema import custom_resource_definition
from controller_runtime.apis.machinery.object import Object
from ctrl_testkit.crdtypes import FIELDS, WITHOUT_SCHEMA, Field, kind_with


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_type_has_its_structural_schema(field: Field) -> None:
    version = custom_resource_definition(kind_with(field))["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["value"] == field.schema


@pytest.mark.parametrize("field", WITHOUT_SCHEMA, ids=lambda field: field.name)
def test_a_type_without_one_is_an_error_with_class_and_field(field: Field) -> None:
    with pytest.raises(TypeError, match=r"^(Spec\.value|Chain\.after) has no structural schema: "):
        custom_resource_definition(kind_with(field))


def test_a_field_without_a_default_is_required() -> None:
    class BoxSpec(Struct):
        depth: int
        height: int = 3
        label: str | None = None

    class Box(Object, group="example.com", version="v1", plural="boxes"):
        spec: BoxSpec = pydantic.Field(default_factory=lambda: BoxSpec(depth=1))

    version = custom_resource_definition(Box)["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["depth"]
    assert not any("default" in each for each in spec["properties"].values())
