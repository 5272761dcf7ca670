# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that give each write a field owner, a field validation or a dry run."""

import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import (
    Client,
    LiveClient,
    dry_run,
    merge_from,
    with_field_owner,
    with_field_validation,
)
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Object, unstructured

OBJECT = Pod(metadata=ObjectMeta(name="p", namespace="n", resource_version="1"))
EVICTION = unstructured(GVK("policy", "v1", "Eviction")).from_dict({"metadata": {"name": "p"}})


def live() -> tuple[LiveClient, rest.FakeTransport]:
    answer = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}

    def respond(request: rest.Request) -> rest.Response:
        success = {"kind": "Status", "status": "Success"}
        return rest.FakeResponse(200, success if request.method in ("DELETE", "POST") else answer)

    transport = rest.FakeTransport(respond)
    return LiveClient(transport), transport


async def write_everything(client: Client) -> None:
    await client.update(OBJECT)
    await client.patch(OBJECT, merge_from(OBJECT))
    await client.apply(OBJECT, field_owner="own")
    await client.status.update(OBJECT)
    await client.status.patch(OBJECT, merge_from(OBJECT))
    await client.status.apply(OBJECT, field_owner="own")
    await client.subresource("eviction").create(OBJECT, EVICTION)


async def test_every_write_names_the_field_owner_unless_its_caller_does() -> None:
    client, transport = live()
    await write_everything(with_field_owner(client, "me"))
    owners = [dict(request.query)["fieldManager"] for request in transport.requests]
    assert owners == ["me", "me", "own", "me", "me", "own", "me"]


async def test_an_apply_needs_no_owner_of_its_own() -> None:
    client, transport = live()
    owned = with_field_owner(client, "me")
    await owned.apply(OBJECT, force=True)
    await owned.status.apply(OBJECT)
    assert [dict(request.query)["fieldManager"] for request in transport.requests] == ["me", "me"]
    with pytest.raises(TypeError, match="field_owner is required"):
        await dry_run(client).apply(OBJECT)


async def test_every_write_names_the_field_validation_unless_its_caller_does() -> None:
    client, transport = live()
    strict = with_field_validation(client, "Strict")
    await write_everything(strict)
    assert {dict(request.query)["fieldValidation"] for request in transport.requests} == {"Strict"}
    await strict.update(OBJECT, field_validation="Ignore")
    assert dict(transport.requests[-1].query)["fieldValidation"] == "Ignore"


async def test_no_write_of_a_dry_run_is_stored() -> None:
    client, transport = live()
    dry = dry_run(client)
    await write_everything(dry)
    await dry.update(OBJECT, dry_run=False)
    assert {dict(request.query)["dryRun"] for request in transport.requests} == {"All"}
    await dry.delete(OBJECT)
    await dry.delete_all_of(ConfigMap, namespace="n")
    assert [request.body for request in transport.requests[-2:]] == [
        b'{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}'
    ] * 2


async def test_settings_add_up_and_reads_pass() -> None:
    fake = FakeClient(ConfigMap(metadata=ObjectMeta(name="c", namespace="n")))
    client = dry_run(with_field_owner(with_field_validation(fake, "Strict"), "me"))
    await client.create(ConfigMap(metadata=ObjectMeta(name="d", namespace="n")))
    assert fake.writes[-1].options == {"field_owner": "me", "field_validation": "Strict", "dry_run": True}
    await client.delete_all_of(ConfigMap, namespace="n")
    names: list[Object] = [*await client.list(ConfigMap)]
    assert [each.name for each in names] == ["c"]
    assert (await client.get(ConfigMap, ("n", "c"))).name == "c"
