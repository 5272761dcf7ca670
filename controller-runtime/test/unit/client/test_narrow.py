# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that allow only some of the calls."""

import asyncio
from typing import Any

import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Namespace
from controller_runtime.client import ignore_not_found, namespaced, read_only
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import errors


def config_map(namespace: str | None, name: str = "c") -> ConfigMap:
    return ConfigMap.from_dict(
        {"metadata": {"name": name, "namespace": namespace} if namespace else {"name": name}}
    )


def gone(namespace: str) -> errors.NotFoundError:
    error = errors.NotFoundError("gone", code=404, details={"name": "c", "kind": "configmaps"})
    error.namespace = namespace
    return error


async def test_a_reader_can_only_read() -> None:
    reader = read_only(FakeClient(config_map("n")))
    assert [each.name for each in await reader.list(ConfigMap)] == ["c"]
    assert (await reader.get(ConfigMap, ("n", "c"))).name == "c"
    for name in ("create", "update", "patch", "apply", "delete", "delete_all_of", "status", "subresource"):
        assert not hasattr(reader, name)


async def test_what_names_no_namespace_is_put_into_ours() -> None:
    fake = FakeClient()
    client = namespaced(fake, "ours")
    obj = config_map(None)
    assert (await client.create(obj)).namespace == "ours"
    assert obj.namespace == ""
    assert (await client.get(ConfigMap, ("", "c"))).namespace == "ours"
    await fake.create(config_map("theirs"))
    assert len(await client.list(ConfigMap)) == 1
    anywhere: Any = {"namespace": None}  # None means the default, as for every option
    assert len(await client.list(ConfigMap, **anywhere)) == 1
    await client.delete_all_of(ConfigMap, **anywhere)
    assert [each.namespace for each in await fake.list(ConfigMap, **anywhere)] == ["theirs"]
    assert [call.key.namespace for call in fake.calls[-3:]] == ["ours", "ours", ""]


async def test_what_names_another_namespace_is_refused() -> None:
    client = namespaced(FakeClient(config_map("theirs")), "ours")
    for call in (
        client.create(config_map("theirs")),
        client.get(ConfigMap, ("theirs", "c")),
        client.list(ConfigMap, namespace="theirs"),
        client.status.update(config_map("theirs")),
        client.status.get(config_map("theirs"), ConfigMap),
        client.subresource("token").create(config_map("theirs"), config_map("theirs")),
        client.delete_all_of(ConfigMap, namespace="theirs"),
    ):
        with pytest.raises(ValueError, match="outside the namespace ours"):
            await call


async def test_cluster_scoped_kinds_are_left_as_they_are() -> None:
    client = namespaced(FakeClient(), "ours")
    assert (await client.create(Namespace.from_dict({"metadata": {"name": "x"}}))).namespace == ""


async def test_absence_can_be_ignored_and_nothing_else() -> None:
    client = FakeClient()
    with ignore_not_found(ConfigMap, ("n", "c")):
        await client.get(ConfigMap, ("n", "c"))
    await client.create(config_map("n"))
    with pytest.raises(errors.BadRequestError), ignore_not_found(ConfigMap, ("n", "c")):
        await client.list(ConfigMap, fields={"data": "x"})


@pytest.mark.parametrize(
    "details",
    [
        pytest.param({}, id="the kind is not served"),
        pytest.param({"name": "c", "kind": "secrets"}, id="another kind of the same name"),
        pytest.param({"name": "c", "kind": "configmaps", "group": "example.com"}, id="another group"),
        pytest.param({"name": "other", "kind": "configmaps"}, id="another object of the kind"),
        pytest.param({"name": "n", "kind": "namespaces"}, id="the namespace"),
    ],
)
@pytest.mark.parametrize("of", [(ConfigMap, ("n", "c")), (config_map("n"),)], ids=["key", "object"])
def test_the_absence_of_something_else_is_never_ignored(details: dict[str, str], of: tuple[Any, ...]) -> None:
    with pytest.raises(errors.NotFoundError), ignore_not_found(*of):
        raise errors.NotFoundError("gone", code=404, details=details)


@pytest.mark.parametrize("of", [(ConfigMap, ("n", "c")), (config_map("n"),)], ids=["key", "object"])
async def test_the_absence_of_an_object_of_the_same_name_elsewhere_is_never_ignored(
    of: tuple[Any, ...],
) -> None:
    client = FakeClient()
    with pytest.raises(errors.NotFoundError), ignore_not_found(*of):
        await client.get(ConfigMap, ("central", "c"))
    with pytest.raises(errors.NotFoundError), ignore_not_found(*of):
        await client.delete(config_map("central"))
    with ignore_not_found(*of):
        await client.delete(config_map("n"))


async def test_the_absence_can_be_ignored_among_the_errors_of_a_task_group() -> None:
    client = FakeClient()

    with ignore_not_found(ConfigMap, ("n", "c")):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.get(ConfigMap, ("n", "c")))
    with pytest.raises(ExceptionGroup) as caught, ignore_not_found(ConfigMap, ("n", "c")):
        raise ExceptionGroup("both", [gone("n"), ValueError("no")])
    assert [type(each) for each in caught.value.exceptions] == [ValueError]
    with pytest.raises(ExceptionGroup, match="other") as caught, ignore_not_found(ConfigMap, ("n", "c")):
        raise ExceptionGroup("other", [gone("m")])
    assert [type(each) for each in caught.value.exceptions] == [errors.NotFoundError]


def test_a_kind_alone_is_not_enough_to_ignore_its_absence() -> None:
    with pytest.raises(TypeError, match="the key is missing"):
        ignore_not_found(ConfigMap)
