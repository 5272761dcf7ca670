# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A child is created, not taken over: another writer may create an object of its name before the apply arrives."""

from base64 import b64encode
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Client, LiveClient, interceptor
from controller_runtime.envtest import Environment
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ConflictError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.controller.applier import Applier, Memories, Outcome

pytestmark = pytest.mark.integration


def children(namespace: str, value: str) -> list[Object]:
    """Return an object of each kind with a content that ``value`` determines."""
    metadata = {"metadata": {"namespace": namespace, "name": "job"}}
    template = {"spec": {"containers": [{"name": "c", "image": value}]}}
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    return [
        ConfigMap.from_dict({**metadata, "data": {"key": value}}),
        Secret.from_dict(
            {**metadata, "immutable": True, "data": {"key": b64encode(value.encode()).decode()}}
        ),
        JobSet.from_dict({**metadata, "spec": {"suspend": True, "replicatedJobs": jobs}}),
    ]


@pytest.mark.parametrize("number", [0, 1, 2], ids=["ConfigMap", "Secret", "JobSet"])
async def test_an_object_that_another_writer_creates_meanwhile_stays_as_it_is(
    number: int, trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    stranger, desired = children(namespace, "theirs")[number], children(namespace, "ours")[number]

    async def apply_late(client: Client, obj: Any, **options: Any) -> Any:
        await client.create(stranger, field_owner="stranger")
        return await client.apply(obj, **options)

    late = interceptor.wrap(live_client, interceptor.Funcs(apply=apply_late))
    with pytest.raises(ConflictError):
        await Applier(late, Memories()).apply(desired.key, desired)
    stored = await live_client.get(type(stranger), stranger.key)
    assert {each.manager for each in stored.metadata.managed_fields or ()} == {"stranger"}
    await live_client.delete(stored)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["ConfigMap", "Secret", "JobSet"])
async def test_an_absent_object_is_created_with_the_field_owner_of_an_apply(
    number: int, trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    desired = children(namespace, "ours")[number]
    assert await Applier(live_client, Memories()).apply(desired.key, desired) is Outcome.CREATED
    stored = await live_client.get(type(desired), desired.key)
    writers = {(each.manager, each.operation) for each in stored.metadata.managed_fields or ()}
    assert writers == {("trainer", "Apply")}
    assert await Applier(live_client, Memories()).apply(desired.key, desired) is Outcome.UNCHANGED
    await live_client.delete(stored)
