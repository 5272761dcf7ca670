# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Models of kubernetes-asyncio as kinds, and a Configuration with our login; what needs a server is tested with one."""

import copy
import gc
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pydantic_core
import pytest
from kubernetes_asyncio.client import ApiClient, Configuration, models

import controller_runtime as ctrl
from controller_runtime import rest
from controller_runtime.apis.meta.v1 import LabelSelector, ObjectMeta
from controller_runtime.envtest import Authority
from controller_runtime.fake import FakeClient
from controller_runtime.interop import kubernetes_asyncio
from controller_runtime.machinery import Struct

pytestmark = pytest.mark.real_time  # aiohttp looks for files with time zones, proxies and certificates
KINDS = sorted(
    name
    for name, model in vars(models).items()
    if {("kind", "str"), ("metadata", "V1ObjectMeta")} <= getattr(model, "openapi_types", {}).items()
    and not name.endswith(
        "APIGroupDiscovery"
    )  # the ApiClient cannot read it: the package lacks a model inside
)
SCALARS = {"str": "YWJj", "int": 3, "float": 0.5, "bool": False, "object": {"a": [1, {"b": "c"}]}}
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")


def filled(text: str, numbers: Iterator[int], above: tuple[str, ...] = ()) -> Any:
    """Return a value of a type as models write it, with all fields. Times differ, some have microseconds."""
    if text.startswith("list["):
        return [filled(text[5:-1], numbers, above) for _ in range(2)]
    if text.startswith("dict("):
        return {key: filled(text.partition(", ")[2][:-1], numbers, above) for key in ("one", "two-2")}
    if text == "datetime":
        number = next(numbers)
        return f"2024-05-06T07:08:{number % 60:02}{'.000120' if number % 2 else ''}Z"
    if text in SCALARS:
        return SCALARS[text]
    model = getattr(models, text)
    return {
        model.attribute_map[attribute]: filled(each, numbers, (*above, text))
        for attribute, each in model.openapi_types.items()
        if text not in above or re.sub(r".*[\[ ]|[\])]", "", each) not in above  # contains itself
    }


def normal(value: Any) -> Any:
    """Return ``value`` with equal texts for equal times."""
    if isinstance(value, dict):
        return {key: normal(each) for key, each in value.items()}
    if isinstance(value, list):
        return [normal(each) for each in value]
    if isinstance(value, str) and TIME.match(value):
        return datetime.fromisoformat(value).isoformat()
    return value


def kind_of(name: str) -> Any:
    return kubernetes_asyncio.kind(getattr(models, name), group="g", version="v1", plural="things")


def test_there_are_many_models_of_kinds() -> None:
    assert len(KINDS) > 70
    assert {"V1Pod", "V1Ingress", "CoreV1Event", "V1CustomResourceDefinition"} <= set(KINDS)


@pytest.mark.parametrize("name", KINDS)
async def test_round_trips_equal_those_of_the_api_client(name: str) -> None:
    data = filled(name, iter(range(100_000)))
    kind = kind_of(name)
    data |= {"apiVersion": "g/v1", "kind": kind.gvk.kind}
    text = json.dumps(data)
    async with ApiClient(Configuration()) as api:
        theirs = api.sanitize_for_serialization(api.deserialize(SimpleNamespace(data=text), name))
    assert normal(theirs) == normal(data)
    for decoded in (kind.from_json(text), kind.from_dict(data)):
        assert normal(decoded.to_dict()) == normal(theirs)
        assert normal(json.loads(decoded.to_json())) == normal(theirs)
        assert unknown(decoded) == {"selfLink"}  # the library's ObjectMeta has no such field


def unknown(value: Any) -> set[str]:
    """Return the names of undeclared fields, at any depth."""
    if isinstance(value, Struct):
        return {*value.unknown_fields}.union(*(unknown(each) for each in vars(value).values()), set())
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*(unknown(each) for each in values))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (models.V1Ingress, "Ingress"),
        (models.CoreV1Event, "Event"),
        (models.EventsV1Event, "Event"),
        (models.V2HorizontalPodAutoscaler, "HorizontalPodAutoscaler"),
        (models.V1beta1DeviceClass, "DeviceClass"),
        (models.V1APIService, "APIService"),
    ],
)
def test_a_kind_has_the_name_of_the_model_without_its_version(model: type[Any], name: str) -> None:
    made = kubernetes_asyncio.kind(model, group="example.com", version="v1", plural="things")
    assert made.gvk == ctrl.GVK("example.com", "v1", name)
    assert made().to_dict() == {"apiVersion": "example.com/v1", "kind": name}


def test_a_model_that_the_package_lacks_is_plain_json() -> None:
    group = kind_of("V2APIGroupDiscovery").from_dict(
        {"versions": [{"resources": [{"responseKind": {"kind": "Pod"}}]}]}
    )
    assert group.versions[0].resources[0].response_kind == {"kind": "Pod"}


def test_equal_calls_return_the_same_kind() -> None:
    names: dict[str, Any] = {"group": "networking.k8s.io", "version": "v1", "plural": "ingresses"}
    made = kubernetes_asyncio.kind(models.V1Ingress, **names)
    assert kubernetes_asyncio.kind(models.V1Ingress, **dict(reversed(names.items()))) is made
    assert made.resource.namespaced
    assert not kubernetes_asyncio.kind(models.V1Ingress, **names, namespaced=False).resource.namespaced


@pytest.mark.parametrize("model", [models.V1IngressList, models.V1PodTemplateSpec, models.V1IngressSpec, str])
def test_only_models_of_kinds_are_kinds(model: type[Any]) -> None:
    with pytest.raises(TypeError, match=f"{model.__name__} is not the model of a kind"):
        kubernetes_asyncio.kind(model, version="v1", plural="things")


def test_unknown_fields_are_kept_when_read_and_refused_when_written() -> None:
    ingress = kind_of("V1Ingress")
    read = {"spec": {"rules": [{"host": "a", "new": 1}], "later": {"x": None}}, "metadata": {"name": "i"}}
    assert ingress.from_dict(read).to_dict()["spec"] == read["spec"]
    with pytest.raises(TypeError, match="no field specs; did you mean spec"):
        ingress(specs={})
    with pytest.raises(AttributeError, match="no field ingress_class"):
        ingress.from_dict(read).spec.ingress_class = "x"
    with pytest.raises(pydantic.ValidationError, match=r"host"):
        ingress.from_dict({"spec": {"rules": [{"host": 3}]}})


def test_names_that_python_or_pydantic_uses_end_with_an_underscore() -> None:
    policy = kind_of("V1NetworkPolicy")(spec={"ingress": [{"from": [{"ipBlock": {"cidr": "::/0"}}]}]})
    assert policy.spec.ingress[0].from_[0].ip_block.cidr == "::/0"
    definition = kind_of("V1CustomResourceDefinition")(spec={"versions": [{"schema_": {}}]})
    assert definition.to_dict()["spec"] == {"versions": [{"schema": {}}]}


def test_structs_that_the_librarys_functions_take_are_the_librarys() -> None:
    deployment = kind_of("V1Deployment").from_dict(
        {
            "metadata": {"name": "d", "creationTimestamp": "2024-05-06T07:08:09Z"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"name": "t"}}},
        }
    )
    assert isinstance(deployment.metadata, ObjectMeta)
    assert deployment.metadata.creation_timestamp == "2024-05-06T07:08:09Z"
    assert isinstance(deployment.spec.template.metadata, ObjectMeta)
    assert isinstance(deployment.spec.selector, LabelSelector)


def test_times_are_datetimes_and_are_written_as_go_reads_micro_times() -> None:
    lease = kind_of("V1Lease").from_json('{"spec": {"renewTime": "2024-05-06T09:08:09.5+02:00"}}')
    assert lease.spec.renew_time == datetime(2024, 5, 6, 7, 8, 9, 500_000, UTC)
    lease.spec.acquire_time = datetime(2024, 5, 6, tzinfo=UTC)
    assert lease.to_dict()["spec"] == {
        "acquireTime": "2024-05-06T00:00:00.000000Z",
        "renewTime": "2024-05-06T07:08:09.500000Z",
    }
    lease.spec.acquire_time = datetime(2024, 5, 6)  # noqa: DTZ001 that is the test
    with pytest.raises(pydantic_core.PydanticSerializationError, match="no time zone"):
        lease.to_dict()


async def test_the_client_in_memory_stores_such_kinds() -> None:
    ingress = kubernetes_asyncio.kind(
        models.V1Ingress, group="networking.k8s.io", version="v1", plural="ingresses"
    )
    client = FakeClient()
    made = await client.create(
        ingress(metadata=ObjectMeta(namespace="team", name="web"), spec={"ingressClassName": "a"})
    )
    changed = made.deep_copy()
    changed.spec.ingress_class_name = "b"
    await client.patch(changed, ctrl.strategic_merge_from(made))
    assert [each.spec.ingress_class_name for each in await client.list(ingress, namespace="team")] == ["b"]


async def header_of(configuration: Configuration) -> str | None:
    settings = await configuration.auth_settings()
    return settings["BearerToken"]["value"] if settings else None


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


async def test_a_configuration_asks_the_credentials_before_each_request(tmp_path: Path) -> None:
    token = written(tmp_path / "token", "one")
    config = rest.Config("https://c.test:6443/k8s/", credentials=rest.TokenFile(token, period=0))
    made = kubernetes_asyncio.configuration(config)
    copied = copy.deepcopy(made)
    assert made.host == "https://c.test:6443/k8s"
    assert await header_of(made) == "Bearer one"
    written(token, "two")
    assert [await header_of(made), await header_of(copied)] == ["Bearer two", "Bearer two"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (rest.Config("https://c.test"), None),
        (rest.Config("https://c.test", credentials=rest.StaticToken("t")), "Bearer t"),
        (rest.Config("https://c.test", credentials=rest.Basic("u", "p")), "Basic dTpw"),
        (rest.Config("https://u:p%40@c.test"), "Basic dTpwQA=="),
    ],
    ids=["anonymous", "a token", "a password", "a password in the address"],
)
async def test_the_header_is_that_of_the_credentials(config: rest.Config, expected: str | None) -> None:
    made = kubernetes_asyncio.configuration(config)
    assert await header_of(made) == expected
    assert made.host == "https://c.test"


class Cookie(rest.Credentials):
    async def headers(self) -> dict[str, str]:
        return {"Authorization": "a", "Cookie": "b"}


async def test_a_login_that_cannot_be_sent_is_an_error() -> None:
    made = kubernetes_asyncio.configuration(rest.Config("https://c.test", credentials=Cookie()))
    with pytest.raises(rest.ConfigError, match="only the header Authorization, not Cookie"):
        await made.auth_settings()
    user = rest.Config("https://c.test", impersonate=rest.Impersonation("somebody"))
    with pytest.raises(rest.ConfigError, match="cannot impersonate"):
        kubernetes_asyncio.configuration(user)


def test_the_settings_of_the_connection_are_those_of_the_config(tmp_path: Path) -> None:
    authority = Authority.create("ca")
    (ca := tmp_path / "ca.crt").write_bytes(authority.certificate)
    tls = rest.TLSConfig(ca=ca, server_name="other.test")
    made = kubernetes_asyncio.configuration(
        rest.Config("https://c.test", tls=tls, proxy="http://proxy.test:1")
    )
    assert [made.ssl_ca_cert, made.tls_server_name, made.proxy] == [
        str(ca),
        "other.test",
        "http://proxy.test:1",
    ]
    assert [made.verify_ssl, made.disable_strict_ssl_verification, made.cert_file] == [True, True, None]
    unverified = kubernetes_asyncio.configuration(
        rest.Config("https://c.test", tls=rest.TLSConfig(verify=False))
    )
    assert [unverified.verify_ssl, unverified.ssl_ca_cert] == [False, None]


def content(path: str | None) -> bytes:
    assert path is not None
    return Path(path).read_bytes()


def is_in_memory(path: str | None) -> bool:
    return path is not None and str(Path(path).readlink()).startswith("/memfd:")


def modes(folder: Path) -> dict[str, str]:
    """Return the permissions of the files in a folder, by path."""
    return {str(each): oct(each.stat().st_mode & 0o777) for each in folder.iterdir()}


async def test_certificates_in_memory_stay_there_and_are_renewed_for_the_next_client() -> None:
    authority = Authority.create("ca")
    first, second = authority.client("one"), authority.client("two")
    issued = rest.IssuedPair(first.certificate, first.key)
    tls = rest.TLSConfig(ca=authority.certificate, issued=issued)
    made = kubernetes_asyncio.configuration(rest.Config("https://c.test", tls=tls))
    copied = copy.deepcopy(made)
    assert made.cert_file == made.key_file
    assert content(made.cert_file) == first.certificate + b"\n" + first.key
    assert is_in_memory(made.cert_file)
    async with ApiClient(made), ApiClient(copied):
        issued.renew(second.certificate, second.key)
    assert content(made.cert_file) == second.certificate + b"\n" + second.key
    path, ca = made.cert_file, copied.ssl_ca_cert
    del made
    gc.collect()
    with pytest.raises(FileNotFoundError):
        content(path)
    assert content(ca) == authority.certificate
    async with ApiClient(copied):
        pass


async def test_without_files_in_memory_certificates_are_files_of_this_user_until_they_are_not_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    authority = Authority.create("ca")
    pair = authority.client("one")
    tls = rest.TLSConfig(ca=authority.certificate, cert=pair.certificate, key=pair.key)
    made = kubernetes_asyncio.configuration(rest.Config("https://c.test", tls=tls))
    async with ApiClient(made):
        assert modes(tmp_path) == {made.ssl_ca_cert: "0o600", made.cert_file: "0o600"}
    del made
    gc.collect()
    assert modes(tmp_path) == {}


def test_a_config_says_where_the_client_certificate_comes_from() -> None:
    made = kubernetes_asyncio.configuration(rest.Config("https://c.test"))
    with pytest.raises(AttributeError, match="comes from the Config"):
        made.cert_file = "/tmp/cert"
    assert made.cert_file is None
