# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of the simulated server: at exactly one version, by owner and by uid."""

from typing import Any

import msgspec

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.rest import Request
from controller_runtime.simtest import Simulation
from ctrl_testkit.lives import failure_of

PATH = "/api/v1/namespaces/default/configmaps"


def named(name: str) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"namespace": "default", "name": name}})


async def exactly(sim: Simulation, version: str) -> tuple[int, Any]:
    query = (("resourceVersion", version), ("resourceVersionMatch", "Exact"))
    answer = await sim.server.handle(Request("GET", PATH, query=query), "user", sim.server.replicas[0])
    return answer.status, msgspec.json.decode(await answer.read())


async def story(sim: Simulation) -> None:
    client = sim.client()
    await client.create(named("a"))
    version = (await client.create(named("b"))).metadata.resource_version or ""
    await client.delete(named("a"))
    await client.create(named("c"))
    status, body = await exactly(sim, version)
    assert status == 200
    assert [each["metadata"]["name"] for each in body["items"]] == ["a", "b"]
    assert body["metadata"]["resourceVersion"] == version
    assert (await exactly(sim, "9999"))[0] == 504
    assert (await exactly(sim, "0"))[0] == 400
    sim.server.history.compact()
    assert (await exactly(sim, version))[0] == 410


def test_a_list_at_exactly_a_version_shows_the_objects_of_that_time() -> None:
    assert failure_of(story, minutes=0.1) is None


async def change_owners(sim: Simulation) -> None:
    client, server = sim.client(), sim.server
    owner = await client.create(named("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    owned = named("owned").to_dict()
    owned["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    created = await client.create(ConfigMap.from_dict(owned))
    shared = named("shared").to_dict()
    shared["metadata"]["ownerReferences"] = [reference]
    await client.create(ConfigMap.from_dict(shared))
    uid = owner.metadata.uid or ""
    assert [each["metadata"]["name"] for each in server.controlled(ConfigMap, uid)] == ["owned"]
    assert server.with_uid(ConfigMap, created.metadata.uid or "") == server.objects(ConfigMap)[0]
    created.metadata.owner_references = []
    await client.update(created)
    assert server.controlled(ConfigMap, uid) == []
    await client.delete(created)
    assert server.with_uid(ConfigMap, created.metadata.uid or "") is None


def test_objects_are_found_by_their_owner_and_their_uid_until_they_change() -> None:
    assert failure_of(change_owners, minutes=0.1) is None
