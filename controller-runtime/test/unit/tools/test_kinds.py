# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Typed kinds that are generated from CustomResourceDefinitions and OpenAPI documents."""

import ast
import copy
import json
import types
from pathlib import Path
from typing import Any

import pydantic
import pytest

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, Struct, yaml
from controller_runtime.tools import kinds
from controller_runtime.tools.command import main

FILE = Path(__file__).with_name("kinds") / "certificates.yaml"


def loaded(text: str) -> types.ModuleType:
    module = types.ModuleType("generated")
    exec(compile(text, "generated.py", "exec", dont_inherit=True), module.__dict__)
    for each in list(vars(module).values()):
        if isinstance(each, type) and issubclass(each, Struct) and each.__module__ == "generated":
            each.model_rebuild(_types_namespace=vars(module))
    return module


def definition(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def generated(crd: dict[str, Any], **options: Any) -> str:
    return kinds.modules(kinds.of_crd(crd), **options)["example_com/v1.py"]


@pytest.fixture(scope="module")
def certificates() -> types.ModuleType:
    return loaded(kinds.modules(kinds.read(FILE))["tls_example_com/v1.py"])


VALUES = {
    "issuerRef": {"name": "ca", "kind": "Issuer"},
    "secretName": "tls",
    "dnsNames": ["example.com"],
    "podIPs": ["10.0.0.1"],
    "isCA": True,
    "notAfter": "2026-01-02T03:04:05Z",
    "usages": ["digital signature"],
    "size": 2048,
    "keystores": {"jks": {"create": True, "alias": "a"}},
    "limits": {"cpu": "500m"},
    "port": "https",
    "values": ["a", None],
    "solvers": [
        {
            "name": "a",
            "zone": "b",
            "webhook": {"any": [1]},
            "template": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "c"},
                "data": {"a": "b"},
            },
            "podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
        }
    ],
    "from": "a",
    "class": "b",
    "$ref": "c",
    "x-kubernetes-int-or-string": True,
    "1st": "d",
    "list": ["e"],
    "json": "f",
    "schema": "g",
    "foo-bar": "h",
    "foo_bar": "i",
    "fooBar": "j",
    "ünï": "k",
    "_hidden": "l",
    "future": {"unknown": [1]},
}


def test_an_object_survives_with_all_its_fields(certificates: types.ModuleType) -> None:
    data = {
        "apiVersion": "tls.example.com/v1",
        "kind": "Certificate",
        "metadata": {"name": "c", "namespace": "n"},
        "spec": VALUES,
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": ""}],
            "newer": 1,
        },
    }
    read = certificates.Certificate.from_dict(copy.deepcopy(data))
    assert read.to_dict() == data
    assert certificates.Certificate.from_json(read.to_json()).to_dict() == data
    assert read.spec.issuer_ref.name == "ca"
    assert read.spec.pod_ips == ["10.0.0.1"]
    assert read.spec.solvers[0].template["data"] == {"a": "b"}
    assert (read.spec.from_, read.spec.class_, read.spec.ref, read.spec.list_) == ("a", "b", "c", ["e"])
    assert read.spec.unknown_fields == {"future": {"unknown": [1]}}
    assert read.status.conditions[0].type == "Ready"


def test_a_field_is_required_if_the_schema_requires_it(certificates: types.ModuleType) -> None:
    with pytest.raises(pydantic.ValidationError, match="secretName"):
        certificates.CertificateSpec(issuer_ref={"name": "a"})
    assert certificates.Certificate.model_fields["status"].default_factory is certificates.CertificateStatus


def test_partial_kinds_require_nothing() -> None:
    text = kinds.modules(kinds.read(FILE), partial=True)["tls_example_com/v1.py"]
    module = loaded(text)
    assert module.Certificate().spec.secret_name == ""
    assert module.Certificate().spec.issuer_ref is None


async def test_the_fake_client_knows_which_lists_merge(certificates: types.ModuleType) -> None:
    client = FakeClient()
    for owner, name in (("one", "a"), ("two", "b")):
        await client.apply(
            certificates.Certificate.from_dict(
                {
                    "metadata": {"name": "c", "namespace": "n"},
                    "spec": {
                        "secretName": "s",
                        "issuerRef": {"name": "i"},
                        "names": [{"name": name}],
                    },
                }
            ),
            field_owner=owner,
        )
    found = await client.get(certificates.Certificate, ("n", "c"))
    assert [each.name for each in found.spec.names] == ["a", "b"]


def test_the_same_struct_below_the_same_name_is_shared(certificates: types.ModuleType) -> None:
    fields = certificates.CertificateSpecAdditional.model_fields
    assert certificates.CertificateSpecIssuerRef.__name__ in str(fields["issuer_ref"].annotation)
    assert not hasattr(certificates, "CertificateSpecAdditionalIssuerRef")


def test_versions_that_are_not_served_and_other_objects_are_left_out() -> None:
    files = kinds.modules(kinds.read(FILE))
    assert sorted(files) == [
        "tls_example_com/__init__.py",
        "tls_example_com/v1.py",
        "tls_example_com/v1beta1.py",
    ]
    assert all(text.startswith("# Code generated by") for text in files.values())
    assert kinds.modules(reversed(kinds.read(FILE))) == files, "the order of the files does not matter"


HOSTILE = '"""\n\nimport os\nos.abort()\n"""\\'


def test_no_text_of_a_schema_becomes_code() -> None:
    crd = definition(
        a={"type": "string", "description": HOSTILE, "enum": [HOSTILE, "'"]}, **{HOSTILE: {"type": "string"}}
    )
    crd["spec"]["group"] = "example.com"
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = HOSTILE + "\x00\u202e"
    crd["spec"]["versions"][0]["subresources"] = {"scale": {"specReplicasPath": HOSTILE}}
    module = loaded(generated(crd))
    assert module.Thing.from_dict({"spec": {HOSTILE: "a"}}).to_dict()["spec"] == {HOSTILE: "a"}
    assert not hasattr(module, "os")


@pytest.mark.parametrize(
    "text",
    [
        '"',
        '""',
        '"""',
        '""""',
        'a"',
        'a\\"',
        'a\\\\"',
        'a\\"""',
        '"""a',
        'a""b',
        'a """ b',
        'a"\n\n"""',
        "x " * 80 + '"""',
        "\\",
    ],
)
def test_every_description_is_a_docstring(text: str) -> None:
    tree = ast.parse(generated(definition(a={"type": "string", "description": text})))
    found = [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assert [str(each).split() for each in found[1:]] == [text.split()]


@pytest.mark.parametrize(
    "name", ["../../etc", 'x", y="', "v1\nimport os", "A(object):", "é", "a" * 64 + "." * 200]
)
@pytest.mark.parametrize("what", ["group", "version", "kind", "plural"])
def test_a_name_that_no_server_would_serve_is_refused(what: str, name: str) -> None:
    crd = definition()
    place = {"group": crd["spec"], "version": crd["spec"]["versions"][0]}.get(what, crd["spec"]["names"])
    place["name" if what == "version" else what] = name
    with pytest.raises(kinds.KindsError, match=rf"{what} .* is not a valid name$") as caught:
        kinds.modules(kinds.of_crd(crd))
    assert len(str(caught.value)) < 500


OPENAPI: dict[str, Any] = {
    "openapi": "3.0.0",
    "paths": {
        "/apis/example.com/v1/trees": {"get": {"x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Tree"}}},
        "/apis/example.com/v1/namespaces/{namespace}/trees": {"post": {"x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Tree"}}},
        "/apis/example.com/v1/namespaces/{namespace}/trees/{name}": {},
        "/apis/example.com/v1/namespaces/{namespace}/trees/{name}/status": {},
        "/apis/example.com/v1/watch/trees": {},
    },
    "components": {
        "schemas": {
            "com.example.v1.Tree": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Tree"}],
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
                    "spec": {"allOf": [{"$ref": "#/components/schemas/com.example.v1.Node"}], "default": {}},
                },
            },
            "com.example.v1.Node": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "default": ""},
                    "children": {"type": "array", "items": {"$ref": "#/components/schemas/com.example.v1.Node"}},
                    "byName": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/com.example.v1.Node"}},
                    "env": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.EnvVar"}], "default": {}}},
                    "amount": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"},
                    "when": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"},
                    "either": {"$ref": "#/components/schemas/com.example.v1.Either"},
                    "self": {"$ref": "#/components/schemas/com.example.v1.Empty"},
                },
            },
            "com.example.v1.Either": {"description": "A node or a truth value."},
            "com.example.v1.Empty": {"type": "object"},
        }
    },
}  # fmt: skip


def test_an_openapi_document_may_refer_to_itself_and_to_kubernetes_own_structs(tmp_path: Path) -> None:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(OPENAPI))
    module = loaded(kinds.modules(kinds.read(path))["example_com/v1.py"])
    spec = {
        "name": "root",
        "children": [{"name": "leaf", "children": []}],
        "byName": {"a": {"name": "b"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "amount": "1Gi",
        "either": True,
        "self": {"x": 1},
    }
    tree = module.Tree.from_dict({"metadata": {"name": "t"}, "spec": spec})
    assert tree.to_dict()["spec"] == spec
    assert tree.spec.children[0].name == "leaf"
    assert tree.spec.env[0].value_from.field_ref.field_path == "metadata.name"
    assert module.Tree.resource == ("example.com", "v1", "trees", True)


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("crd", "message"),
    [
        (definition(a=deep(80)), "the schema has more than 64 levels"),
        (definition(a={"type": "text"}), "version v1: spec.a: the type 'text' is not one of string"),
        (definition(a={"type": ["string"]}), r"spec.a: the type \['string'\] is not one of"),
        (definition(a=1), "spec.a: the schema is not a map"),
        (
            definition(a={"type": "array", "items": {"$ref": "#/x/Gone"}}),
            "the definition Gone does not exist",
        ),
        (definition(a={"type": "object", "properties": [1]}), "spec.a: properties is not a map of names"),
        (
            definition(
                a={"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "string"}},
            ),
            "spec.a: x-kubernetes-list-map-keys is not a list of names",
        ),
        ({**definition(), "spec": 1}, "CustomResourceDefinition things.example.com: spec is not a map"),
        ({**definition(), "metadata": 1, "spec": {"names": 1}}, "names is not a map"),
    ],
)
def test_what_cannot_be_generated_is_an_error_with_document_and_field(
    crd: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text("---\n---\n" + yaml.dump(crd))
    with pytest.raises(kinds.KindsError, match=message) as caught:
        kinds.modules(kinds.read(path))
    assert str(caught.value).startswith(f"{path}: document 2: CustomResourceDefinition ")


def test_a_kind_that_is_given_twice_is_refused() -> None:
    twice = kinds.of_crd(definition()) * 2
    with pytest.raises(kinds.KindsError, match="Thing is given twice"):
        kinds.modules(twice)


def test_the_number_of_fields_is_limited() -> None:
    module = kinds.Module("example.com", "v1", partial=False, fields=kinds.MOST_FIELDS)
    with pytest.raises(kinds.KindsError, match="the kinds have more than 200000 fields"):
        module.text(kinds.of_crd(definition(a={"type": "string"})))


def test_the_number_of_fields_of_a_kind_is_limited() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(kinds.MOST_FIELDS_OF_A_KIND)}
    with pytest.raises(kinds.KindsError, match=r"version v1: spec: the kind has more than 50000 fields"):
        kinds.modules(kinds.of_crd(definition(**fields)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 2: did not find"),
        ("kind: ConfigMap", "has neither a CustomResourceDefinition nor an OpenAPI v3 document"),
        ("openapi: '3.0.0'", "document 1: components is not a map"),
    ],
)
def test_a_file_without_kinds_is_refused_by_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(kinds.KindsError, match=f"{path}: .*{message}"):
        kinds.read(path)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(kinds.MOST_BYTES + 1)
    with pytest.raises(kinds.KindsError, match="the file has more than 64 MiB"):
        kinds.read(path)


def test_the_command_writes_a_package_and_checks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kinds", str(FILE), "-o", str(tmp_path)]) == 0
    assert (tmp_path / "tls_example_com/v1.py").is_file()
    assert main(["kinds", str(FILE), "-o", str(tmp_path), "--check"]) == 0
    (tmp_path / "tls_example_com/v1.py").write_text("")
    assert main(["kinds", str(FILE), "-o", str(tmp_path), "--check"]) == 1
    capsys.readouterr()
    assert main(["kinds", str(FILE), "--kind", "Object"]) == 0
    assert "class ObjectKind(\n    Object, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either files or --cluster must be given"),
        ([str(FILE), "--cluster"], "either files or --cluster must be given"),
        (["--cluster"], "--cluster needs --group or --kind"),
        ([str(FILE)], "--output is needed: the kinds have 2 API versions, each with a module"),
        ([str(FILE), "--kind", "Certificat"], "no kind is selected by Certificat"),
        ([str(FILE), "--group", "example.com"], "no kind is selected by example.com"),
        (["gone.yaml"], "gone.yaml: "),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kinds", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_generated_kinds_are_objects(certificates: types.ModuleType) -> None:
    assert issubclass(certificates.ObjectKind, Object)
    assert certificates.ObjectKind.gvk.kind == "Object"
    assert certificates.ObjectKind.resource.namespaced is False


SELECTOR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"type": "string"},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}


async def test_a_label_selector_is_one_that_lists_accept() -> None:
    other = copy.deepcopy(SELECTOR)
    other["properties"]["matchLabels"]["additionalProperties"] = {"type": "integer"}
    module = loaded(generated(definition(selector=SELECTOR, podSelector=SELECTOR, other=other)))
    spec = {
        "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "podSelector": {"matchLabels": {"a": "b"}},
        "other": {"matchLabels": {"a": 1}},
    }
    thing = module.Thing.from_dict({"metadata": {"name": "t", "namespace": "n"}, "spec": spec})
    assert thing.to_dict()["spec"] == spec
    pods = [Pod(metadata=ObjectMeta(name=name, namespace="n", labels={"a": name})) for name in "bc"]
    client = FakeClient(*pods)
    assert [each.name for each in await client.list(Pod, labels=thing.spec.selector)] == ["b"]
    assert [each.name for each in await client.list(Pod, labels=thing.spec.pod_selector)] == ["b"]
    assert type(thing.spec.other).__name__ == "ThingSpecOther"
