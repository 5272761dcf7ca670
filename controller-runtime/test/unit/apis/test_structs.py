# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The structs of all API groups."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from controller_runtime import apis
from controller_runtime.apis.apps.v1 import StatefulSet, StatefulSetSpec
from controller_runtime.apis.core.v1 import (
    Node,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    Volume,
)
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.scheme import default_scheme
from controller_runtime.machinery import Object, Struct, openapi
from controller_runtime.machinery.crd import custom_resource_definition


def structs() -> Iterator[type[Struct]]:
    for module in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        if ".machinery" not in module.name:
            found = importlib.import_module(module.name)
            for _, each in inspect.getmembers(found, inspect.isclass):
                if issubclass(each, Struct) and each.__module__ == module.name:
                    yield each


@pytest.mark.parametrize("kind", list(structs()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_new_object_has_the_zero_values_of_go(kind: type[Struct]) -> None:
    given = {name: info.default for name, info in kind.model_fields.items() if info.default_factory is None}
    # Each object knows its kind.
    given = {name: value for name, value in given.items() if name not in ("api_version", "kind")}
    assert {name: value for name, value in given.items() if value not in (None, "", 0, False)} == {}
    assert (kind.go_always | kind.go_pointers) <= kind.model_fields.keys()


@pytest.mark.parametrize("kind", list(structs()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_acronyms_are_one_word_and_metadata_spec_and_status_are_never_none(kind: type[Struct]) -> None:
    """``host_ips``, not ``host_i_ps``; ``service.status.load_balancer`` needs no check."""
    assert [name for name in kind.model_fields if re.search(r"(^|_)[a-z](_|$)", name)] == []
    if issubclass(kind, Object):
        empty = kind()
        assert [name for name in ("metadata", "spec", "status") if getattr(empty, name, "") is None] == []


def test_core_v1_loads_the_kinds_of_other_modules_when_they_are_used() -> None:
    code = (
        "import sys\n"
        "from controller_runtime.apis.core import v1\n"
        "others = 'claims', 'generated', 'namespaces', 'nodes', 'pods', 'services'\n"
        "assert not {f'controller_runtime.apis.core.{name}' for name in others} & set(sys.modules)\n"
        "assert 'PersistentVolumeClaim' in dir(v1)\n"
        "from controller_runtime.apis.core.v1 import PersistentVolumeClaim, PersistentVolumeClaimSpec\n"
        "assert PersistentVolumeClaim().spec == PersistentVolumeClaimSpec()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_scheme_has_every_kind_of_the_package() -> None:
    found = {each for each in structs() if issubclass(each, Object) and each.resource is not None}
    assert found <= set(default_scheme()), "add them to apis/scheme.py"


def test_the_claims_of_a_stateful_set_are_typed() -> None:
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="data"), spec=PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"])
    )
    made = StatefulSet(spec=StatefulSetSpec(service_name="db", volume_claim_templates=[claim]))
    sent = made.to_dict()["spec"]["volumeClaimTemplates"]
    assert sent[0]["spec"] == {"accessModes": ["ReadWriteOnce"]}
    read = StatefulSet.from_dict({"spec": {"volumeClaimTemplates": sent}}).spec.volume_claim_templates
    assert read == [claim]
    assert openapi.name_of(PersistentVolumeClaim) == "core.v1.PersistentVolumeClaim"


class Template(Struct):
    claim: PersistentVolumeClaimSpec


class OfTemplate(Object, group="example.com", version="v1", plural="oftemplates"):
    spec: Template


def test_a_generated_struct_has_its_recorded_schema_in_a_definition() -> None:
    version = custom_resource_definition(OfTemplate)["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["claim"] == openapi.definition("core.v1.PersistentVolumeClaimSpec")


UNTYPED = frozenset({"selfLink", "nodeAllocatableResourceClaimStatuses"})
"""Fields without a use: no server has set the first one for years, and the second one is alpha."""


@pytest.mark.parametrize(
    "struct",
    [each for each in structs() if openapi.has_definition(openapi.name_of(each))],
    ids=lambda struct: f"{struct.__module__}.{struct.__name__}",
)
def test_a_struct_has_every_field_that_the_api_server_publishes(struct: type[Struct]) -> None:
    schema = struct.model_json_schema()
    fields = schema.get("$defs", {}).get(struct.__name__, schema)["properties"].keys()
    published = openapi.published(openapi.name_of(struct)).get("properties", {})
    assert published.keys() - fields - UNTYPED == set()


def test_parts_that_operators_read_are_typed() -> None:
    address = {"hostIPs": [{"ip": "10.0.0.1"}], "resources": {"limits": {"cpu": "1"}}}
    status = Pod.from_dict({"status": address}).status
    assert [each.ip for each in status.host_ips or ()] == ["10.0.0.1"]
    assert status.resources is not None
    node = Node.from_dict({"status": {"nodeInfo": {"kubeletVersion": "v1.36.0", "machineID": "m"}}}).status
    assert node.node_info is not None
    assert (node.node_info.kubelet_version, node.node_info.machine_id) == ("v1.36.0", "m")
    claim = {"metadata": {"labels": {"a": "b"}}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    volume = Volume.from_dict({"name": "v", "ephemeral": {"volumeClaimTemplate": claim}})
    assert volume.ephemeral is not None
    assert volume.ephemeral.volume_claim_template is not None
    resources = volume.ephemeral.volume_claim_template.spec.resources
    assert resources is not None
    assert str((resources.requests or {})["storage"]) == "1Gi"
    assert volume.to_dict() == {"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}
