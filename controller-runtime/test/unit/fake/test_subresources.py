# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Subresources in memory; the cases of ``alike.subresources`` compare them with a real API server."""

from typing import Any, ClassVar

import pytest

from controller_runtime.apis.certificates.v1 import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
)
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import MERGE, merge_from, raw_patch
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Object, Struct, errors, unstructured
from controller_runtime.machinery.crd import KindMarkers, Scale

BUDGET = unstructured(GVK("policy", "v1", "PodDisruptionBudget"))


def pod(*containers: str, **status: Any) -> Pod:
    spec = {"containers": [{"name": each} for each in containers]}
    metadata = {"name": "p", "namespace": "n", "labels": {"app": "a"}}
    return Pod.from_dict({"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("containers", "asked", "text"),
    [
        (["a", "b"], {}, r"a container name must be specified for pod p, choose one of: \[a b\]"),
        (["a"], {"container": "x"}, "container x is not valid for pod p"),
    ],
)
async def test_a_log_of_no_container_is_refused(containers: list[str], asked: Any, text: str) -> None:
    with pytest.raises(errors.BadRequestError, match=text):
        await FakeClient(pod(*containers)).subresource("log").get(pod(), **asked)


async def test_a_pod_without_output_has_an_empty_log_and_no_pod_has_none() -> None:
    assert await FakeClient(pod("a", "b")).subresource("log").get(pod(), container="b") == ""
    with pytest.raises(errors.NotFoundError):
        await FakeClient().subresource("log").get(pod())


class TankSpec(Struct):
    replicas: int | None = None


class TankStatus(Struct):
    ready: int | None = None
    selector: str | None = None


class Tank(Object, group="example.com", version="v1", plural="tanks"):
    crd_kind: ClassVar = KindMarkers(
        status_subresource=True,
        scale=Scale(status_replicas=".status.ready", label_selector=".status.selector"),
    )

    spec: TankSpec
    status: TankStatus | None = None


class Jar(Object, group="example.com", version="v1", plural="jars"):
    spec: TankSpec


async def test_a_kind_has_the_scale_that_its_class_declares() -> None:
    tank = Tank(metadata=ObjectMeta(namespace="n", name="t"), spec=TankSpec(replicas=2))
    tank.status = TankStatus(ready=1, selector="app=t")
    jar = Jar(metadata=ObjectMeta(namespace="n", name="j"), spec=TankSpec(replicas=2))
    client = FakeClient(tank, jar)
    scale = await client.subresource("scale").get(tank)
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (2, 1, "app=t")
    scale.spec.replicas = 5
    await client.subresource("scale").update(tank, scale)
    assert (await client.get(Tank, ("n", "t"))).spec.replicas == 5
    with pytest.raises(errors.NotFoundError):
        await client.subresource("scale").get(jar)


def container(name: str, cpu: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}}


def running(spec: dict[str, Any]) -> Pod:
    return Pod.from_dict({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})


async def test_only_pods_have_these_subresources() -> None:
    owned = ConfigMap(metadata=ObjectMeta(namespace="n", name="c"))
    for name in ("resize", "ephemeralcontainers"):
        with pytest.raises(errors.NotFoundError):
            await FakeClient(owned).subresource(name).update(owned)
        with pytest.raises(errors.NotFoundError, match="p"):
            await FakeClient().subresource(name).get(running({}), Pod)


@pytest.mark.parametrize("subresource", ["approval", "binding"])
async def test_only_some_kinds_have_a_subresource(subresource: str) -> None:
    client = FakeClient(ConfigMap(metadata=ObjectMeta(name="a", namespace="n")))
    with pytest.raises(errors.NotFoundError, match="could not find the requested resource"):
        await client.subresource(subresource).patch(
            ConfigMap(metadata=ObjectMeta(name="a", namespace="n")), raw_patch(MERGE, b"{}")
        )


async def test_a_signer_finds_the_approval_and_stores_the_certificate_in_the_status() -> None:
    made = CertificateSigningRequest(
        metadata=ObjectMeta(name="a"),
        spec=CertificateSigningRequestSpec(request="Y3Ny", signer_name="example.com/s"),
    )
    client = FakeClient(made)
    approved = made.deep_copy()
    approved.status.conditions = [
        CertificateSigningRequestCondition(type="Approved", status="True", reason="Checked")
    ]
    stored = await client.subresource("approval").update(approved)
    (condition,) = stored.status.conditions or []
    assert condition.last_update_time is not None
    signed = stored.deep_copy()
    signed.status.certificate = "Y2VydA=="
    await client.status.patch(signed, merge_from(stored))
    found = await client.get(CertificateSigningRequest, ("", "a"))
    assert (found.status.certificate, [each.type for each in found.status.conditions or []]) == (
        "Y2VydA==",
        ["Approved"],
    )


async def test_a_pod_that_is_being_deleted_is_not_bound() -> None:
    gone = pod("c")
    gone.metadata.finalizers = ["a.b/c"]
    client = FakeClient(gone)
    await client.delete(gone)
    binding = unstructured(GVK("", "v1", "Binding"))
    with pytest.raises(errors.ConflictError, match="pod p is being deleted"):
        await client.subresource("binding").create(gone, binding.from_dict({"target": {"name": "n"}}))
    with pytest.raises(errors.InvalidError, match=r"target\.name: Required value"):
        await client.subresource("binding").create(gone, binding.from_dict({"target": {}}))


async def test_a_field_that_the_model_makes_selectable_selects_objects() -> None:
    class Lamp(Object, group="example.com", version="v1", plural="lamps"):
        crd_kind: ClassVar = KindMarkers(selectable_fields=(".spec.color",))
        spec: dict[str, Any] | None = None

    client = FakeClient()
    for name, color in (("a", "red"), ("b", "blue")):
        await client.create(Lamp(metadata=ObjectMeta(name=name, namespace="n"), spec={"color": color}))
    assert [each.name for each in await client.list(Lamp, fields={"spec.color": "red"})] == ["a"]
    with pytest.raises(errors.BadRequestError, match=r"field label not supported: spec\.size"):
        await client.list(Lamp, fields={"spec.size": "1"})
