# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Subresources in memory; the cases of ``alike.subresources`` compare them with a real API server."""

from typing import Any, ClassVar

import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.policy.v1 import Eviction
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, KindMarkers, Object, Struct, errors, markers, unstructured

BUDGET = unstructured(GVK("policy", "v1", "PodDisruptionBudget"))


def pod(*containers: str, **status: Any) -> Pod:
    spec = {"containers": [{"name": each} for each in containers]}
    metadata = {"name": "p", "namespace": "n", "labels": {"app": "a"}}
    return Pod.from_dict({"metadata": metadata, "spec": spec, "status": status})


def budget(name: str = "b", **status: Any) -> Any:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    return BUDGET.from_dict({"metadata": {"name": name, "namespace": "n"}, "spec": spec, "status": status})


async def evict(*objects: Any) -> bool:
    """Evict the pod, and return True if it is deleted."""
    client = FakeClient(*objects)
    await client.subresource("eviction").create(pod(), Eviction())
    return not await client.list(Pod)


async def test_a_budget_refuses_an_eviction_with_its_reason() -> None:
    with pytest.raises(errors.TooManyRequestsError, match="would violate the pod's disruption budget") as e:
        await evict(pod("c"), budget(disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1))
    assert e.value.has_cause("DisruptionBudget")
    assert e.value.causes[0]["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([pod("c")], id="without a budget"),
        pytest.param([pod("c"), budget(disruptionsAllowed=1)], id="with a budget that allows it"),
        pytest.param([pod("c", phase="Pending"), budget()], id="a pending pod needs no budget"),
        pytest.param([pod("c", phase="Succeeded"), budget()], id="nor does one that has ended"),
    ],
)
async def test_an_eviction_deletes_the_pod(objects: list[Any]) -> None:
    assert await evict(*objects)


async def test_only_one_budget_may_select_a_pod() -> None:
    with pytest.raises(errors.ServerError, match="more than one PodDisruptionBudget"):
        await evict(pod("c"), budget("b"), budget("c"))


async def test_only_pods_are_evicted() -> None:
    config_map = ConfigMap(metadata=ObjectMeta(name="c", namespace="n"))
    with pytest.raises(errors.NotFoundError):
        await FakeClient(config_map).subresource("eviction").create(config_map, Eviction())


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
        scale=markers.Scale(status_replicas=".status.ready", label_selector=".status.selector"),
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
