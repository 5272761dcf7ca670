# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One call of a working client can be made to fail."""

from typing import Any

import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import Client, interceptor, merge_from
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Object, errors, unstructured

EVICTION = unstructured(GVK("policy", "v1", "Eviction")).from_dict(
    {"metadata": {"name": "p", "namespace": "n"}}
)
POD = Pod.from_dict({"metadata": {"name": "p", "namespace": "n"}})
OBJ = ConfigMap.from_dict({"metadata": {"name": "c", "namespace": "n"}})


@pytest.mark.parametrize(
    "name",
    [
        "get",
        "list",
        "create",
        "update",
        "patch",
        "apply",
        "delete",
        "delete_all_of",
        "subresource_get",
        "subresource_create",
        "subresource_update",
        "subresource_patch",
        "subresource_apply",
    ],
)
async def test_a_call_is_answered_by_its_function_alone(name: str) -> None:
    async def refuse(*args: Any, **options: Any) -> None:
        raise errors.ForbiddenError("no", code=403)

    fake = FakeClient(OBJ, POD)
    refusing = interceptor.wrap(fake, interceptor.Funcs(**{name: refuse}))
    plain = interceptor.wrap(fake, interceptor.Funcs())
    with pytest.raises(errors.ForbiddenError):
        await call(refusing, name)
    assert fake.calls == []
    await call(plain, name)
    assert [each.verb for each in fake.calls] == [name.removeprefix("subresource_")]


async def test_a_function_may_pass_the_call_on() -> None:
    seen: list[Object] = []

    async def watch(client: Client, obj: ConfigMap, **options: Any) -> ConfigMap:
        seen.append(obj)
        return await client.create(obj, **options)

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(create=watch))
    assert (await client.create(OBJ, field_owner="me")).metadata.uid
    assert seen == [OBJ]


async def call(client: Client, name: str) -> None:
    match name:
        case "get":
            await client.get(ConfigMap, ("n", "c"))
        case "list":
            await client.list(ConfigMap)
        case "create":
            await client.create(ConfigMap.from_dict({"metadata": {"name": "d", "namespace": "n"}}))
        case "update":
            await client.update(OBJ)
        case "patch":
            await client.patch(OBJ, merge_from(OBJ))
        case "apply":
            await client.apply(OBJ, field_owner="me")
        case "delete":
            await client.delete(OBJ)
        case "delete_all_of":
            await client.delete_all_of(ConfigMap, namespace="n")
        case "subresource_get":
            await client.status.get(POD, Pod)
        case "subresource_create":
            await client.subresource("eviction").create(POD, EVICTION)
        case "subresource_update":
            await client.status.update(POD)
        case "subresource_patch":
            await client.status.patch(POD, merge_from(POD))
        case "subresource_apply":
            await client.status.apply(POD, field_owner="me")
