# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals of a real API server. ``test_alike.py`` has the calls whose results are the same in memory."""

import anyio
import pytest

from controller_runtime import log, rest
from controller_runtime.apis.core.v1 import ConfigMap, Container, Pod, PodSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.policy.v1 import Eviction
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.machinery import GVK, errors, unstructured

pytestmark = pytest.mark.integration


async def test_a_kind_that_is_not_served_is_no_absent_object(live_client: LiveClient, namespace: str) -> None:
    with pytest.raises(
        rest.NoKindMatchError, match=r'no matches for kind "Nothing" in version "example.org/v1"'
    ):
        await live_client.get(unstructured(GVK("example.org", "v1", "Nothing")), (namespace, "x"))


async def test_a_wrong_token_is_refused_in_one_line(rest_config: rest.Config) -> None:
    rest_config.credentials = rest.StaticToken("wrong")
    assert rest_config.tls is not None
    rest_config.tls = rest.TLSConfig(ca=rest_config.tls.ca)
    async with rest.Transport(rest_config) as transport:
        with pytest.raises(errors.UnauthorizedError, match=r"^Unauthorized$"):
            await LiveClient(transport).list(ConfigMap)


async def test_an_unknown_field_is_refused_where_that_is_asked_for(
    live_client: LiveClient, namespace: str
) -> None:
    strict = LiveClient(live_client.transport, live_client.mapper, field_validation="Strict")
    odd = ConfigMap.from_dict({"metadata": {"name": "odd", "namespace": namespace}, "colour": "red"})
    with pytest.raises(errors.BadRequestError, match='unknown field "colour"'):
        await strict.create(odd)
    await live_client.create(odd)
    with pytest.raises(errors.InvalidError, match='unknown field "colour"'):
        await strict.patch(odd, raw_patch(MERGE, b'{"colour": "red"}'))


async def test_an_eviction_that_a_budget_refuses_is_retried_and_named(
    live_client: LiveClient, namespace: str
) -> None:
    budget = unstructured(GVK("policy", "v1", "PodDisruptionBudget")).from_dict(
        {
            "metadata": {"name": "b", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        }
    )
    metadata = ObjectMeta(name="p", namespace=namespace, labels={"app": "a"})
    pod = await live_client.create(
        Pod(metadata=metadata, spec=PodSpec(containers=[Container(name="c", image="i")]))
    )
    pod.status.phase = "Running"
    pod = await live_client.status.update(pod)
    budget = await live_client.create(budget)
    with (
        log.captured() as lines,
        anyio.move_on_after(3) as waiting,
    ):  # nobody computes the status of the budget
        await live_client.subresource("eviction").create(pod, Eviction())
    assert waiting.cancelled_caught
    (line,) = [each for each in lines if "asks to retry it later" in each["event"]]
    assert line["path"] == f"/api/v1/namespaces/{namespace}/pods/p/eviction"
    assert "The disruption budget b is still being processed by the server." in line["reason"]

    await live_client.delete(budget)
    await live_client.subresource("eviction").create(pod, Eviction())
    with pytest.raises(errors.NotFoundError):
        await live_client.get(Pod, pod.key)
