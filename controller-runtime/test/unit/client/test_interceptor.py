# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One call of a working client can be made to fail."""

from collections.abc import Awaitable, Callable
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


CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "get": lambda client: client.get(ConfigMap, ("n", "c")),
    "list": lambda client: client.list(ConfigMap),
    "create": lambda client: client.create(
        ConfigMap.from_dict({"metadata": {"name": "d", "namespace": "n"}})
    ),
    "update": lambda client: client.update(OBJ),
    "patch": lambda client: client.patch(OBJ, merge_from(OBJ)),
    "apply": lambda client: client.apply(OBJ, field_owner="me"),
    "delete": lambda client: client.delete(OBJ),
    "delete_all_of": lambda client: client.delete_all_of(ConfigMap, namespace="n"),
    "subresource_get": lambda client: client.status.get(POD, Pod),
    "subresource_create": lambda client: client.subresource("eviction").create(POD, EVICTION),
    "subresource_update": lambda client: client.status.update(POD),
    "subresource_patch": lambda client: client.status.patch(POD, merge_from(POD)),
    "subresource_apply": lambda client: client.status.apply(POD, field_owner="me"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_answered_by_its_function_alone(name: str) -> None:
    async def refuse(*args: Any, **options: Any) -> None:
        raise errors.ForbiddenError("no", code=403)

    fake = FakeClient(OBJ, POD)
    refusing = interceptor.wrap(fake, interceptor.Funcs(**{name: refuse}))
    plain = interceptor.wrap(fake, interceptor.Funcs())
    with pytest.raises(errors.ForbiddenError):
        await CALLS[name](refusing)
    assert fake.calls == []
    await CALLS[name](plain)
    assert [each.verb for each in fake.calls] == [name.removeprefix("subresource_")]


async def test_a_function_may_pass_the_call_on() -> None:
    seen: list[Object] = []

    async def watch(client: Client, obj: ConfigMap, **options: Any) -> ConfigMap:
        seen.append(obj)
        return await client.create(obj, **options)

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(create=watch))
    assert (await client.create(OBJ, field_owner="me")).metadata.uid
    assert seen == [OBJ]
