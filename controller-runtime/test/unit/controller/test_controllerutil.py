# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import controller_runtime as ctrl
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Node, Pod, PodStatus
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.client import MERGE, interceptor, raw_patch
from controller_runtime.controller import controllerutil as util
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ConflictError, ForbiddenError
from controller_runtime.reconcile import ControllerError


def job(name: str = "owner", *, namespace: str = "ns") -> Job:
    return Job(metadata=ObjectMeta(namespace=namespace, name=name, uid=f"uid-{name}"))


def pod(*owners: OwnerReference, namespace: str = "ns") -> Pod:
    return Pod(metadata=ObjectMeta(namespace=namespace, name="pod", owner_references=list(owners) or None))


def references(obj: Object) -> list[dict[str, object]]:
    return [ref.to_dict() for ref in obj.metadata.owner_references or ()]


def reference(name: str, **more: object) -> dict[str, object]:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", **more}


def test_a_controller_reference_says_that_it_controls_and_blocks_deletion() -> None:
    obj = pod()
    util.set_controller_reference(job(), obj)
    assert references(obj) == [reference("owner", controller=True, blockOwnerDeletion=True)]
    util.set_controller_reference(job(), obj, block_owner_deletion=False)
    assert references(obj) == [reference("owner", controller=True, blockOwnerDeletion=False)]


def test_there_is_one_controller() -> None:
    obj = pod()
    util.set_controller_reference(job("first"), obj)
    with pytest.raises(util.AlreadyOwnedError) as refused:
        util.set_controller_reference(job("second"), obj)
    assert str(refused.value) == "Object ns/pod is already owned by another Job controller first"
    assert (refused.value.owner.name, len(references(obj))) == ("first", 1)


def test_an_owner_becomes_the_controller_and_keeps_its_place() -> None:
    obj = pod()
    util.set_owner_reference(job("a"), obj)
    util.set_owner_reference(job("b"), obj, block_owner_deletion=True)
    util.set_controller_reference(job("a"), obj)
    assert references(obj) == [
        reference("a", controller=True, blockOwnerDeletion=True),
        reference("b", blockOwnerDeletion=True),
    ]


def test_the_same_owner_in_another_version_is_the_same_owner() -> None:
    old = OwnerReference(api_version="batch/v1beta1", kind="Job", name="owner", uid="old", controller=True)
    obj = pod(old)
    util.set_controller_reference(job(), obj)
    assert references(obj) == [reference("owner", controller=True, blockOwnerDeletion=True)]


@pytest.mark.parametrize("set_reference", [util.set_controller_reference, util.set_owner_reference])
def test_an_owner_lives_in_the_same_namespace_or_in_none(
    set_reference: Callable[[Object, Object], None],
) -> None:
    with pytest.raises(util.OwnerReferenceError, match="cross-namespace owner references are disallowed"):
        set_reference(job(namespace="other"), pod())
    with pytest.raises(util.OwnerReferenceError, match="must not have a namespace-scoped owner"):
        set_reference(job(), Node(metadata=ObjectMeta(name="node")))
    obj = pod()
    set_reference(Node(metadata=ObjectMeta(name="node", uid="u")), obj)
    assert references(obj)[0]["apiVersion"] == "v1"


def test_a_reference_is_removed_by_group_kind_and_name() -> None:
    obj = pod()
    util.set_owner_reference(job("a"), obj)
    util.set_controller_reference(job("b"), obj)
    assert util.has_owner_reference(obj.metadata.owner_references, job("a"))
    util.remove_owner_reference(job("a"), obj)
    assert not util.has_owner_reference(obj.metadata.owner_references, job("a"))
    assert [ref["name"] for ref in references(obj)] == ["b"]
    with pytest.raises(util.OwnerReferenceError, match="does not have an owner reference"):
        util.remove_owner_reference(job("a"), obj)


def test_only_the_controller_is_removed_as_one() -> None:
    obj = pod()
    util.set_owner_reference(job("a"), obj)
    with pytest.raises(util.OwnerReferenceError, match="is not controlled by"):
        util.remove_controller_reference(job("a"), obj)
    util.set_controller_reference(job("b"), obj)
    with pytest.raises(util.OwnerReferenceError, match="is not controlled by"):
        util.remove_controller_reference(job("a"), obj)
    assert util.has_controller_reference(obj)
    util.remove_controller_reference(job("b"), obj)
    assert not util.has_controller_reference(obj)
    assert [ref["name"] for ref in references(obj)] == ["a"]


def test_finalizers_are_added_once_and_removed_wholly() -> None:
    obj = pod()
    assert util.add_finalizer(obj, "a/b")
    assert not util.add_finalizer(obj, "a/b")
    assert util.add_finalizer(obj, "c/d")
    assert obj.metadata.finalizers == ["a/b", "c/d"]
    obj.metadata.finalizers.append("a/b")
    assert util.remove_finalizer(obj, "a/b")
    assert not util.remove_finalizer(obj, "a/b")
    assert (obj.metadata.finalizers, util.contains_finalizer(obj, "c/d")) == (["c/d"], True)


def test_lists_that_somebody_else_holds_are_not_changed() -> None:
    obj = pod()
    obj.metadata.finalizers = finalizers = ["a"]
    obj.metadata.owner_references = owners = [OwnerReference(name="x")]
    util.add_finalizer(obj, "b")
    util.set_owner_reference(job(), obj)
    util.remove_finalizer(obj, "a")
    assert (finalizers, len(owners)) == (["a"], 1)


def wanted(value: str) -> Callable[[ConfigMap], None]:
    def mutate(obj: ConfigMap) -> None:
        obj.data = {**(obj.data or {}), "a": value}

    return mutate


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(namespace="ns", name="c"), data=data or None)


Upsert = Callable[..., Awaitable[tuple[ConfigMap, util.OperationResult]]]
BOTH: list[Upsert] = [util.create_or_update, util.create_or_patch]


@pytest.mark.parametrize("upsert", BOTH)
async def test_what_is_missing_is_created_then_left_alone_then_changed(upsert: Upsert) -> None:
    client = FakeClient()
    obj = config_map()
    made, result = await upsert(client, obj, wanted("1"))
    assert (made.data, result, obj.data) == ({"a": "1"}, "created", None)
    writes = len(client.calls)
    same, result = await upsert(client, obj, wanted("1"))
    assert (same.metadata.resource_version, result) == (made.metadata.resource_version, "unchanged")
    assert [call.verb for call in client.calls[writes:]] == ["get"]
    changed, result = await upsert(client, obj, wanted("2"))
    assert (changed.data, result) == ({"a": "2"}, "updated")
    assert (await client.get(ConfigMap, obj.key)).data == {"a": "2"}


@pytest.mark.parametrize("upsert", BOTH)
async def test_an_empty_map_is_no_change_against_none(upsert: Upsert) -> None:
    def empty(obj: ConfigMap) -> None:
        obj.data = {}

    client = FakeClient(config_map())
    assert (await upsert(client, config_map(), empty))[1] == "unchanged"


@pytest.mark.parametrize("upsert", BOTH)
async def test_an_object_cannot_be_renamed_on_the_way(upsert: Upsert) -> None:
    def rename(obj: ConfigMap) -> None:
        obj.metadata.name = "other"

    client = FakeClient()
    with pytest.raises(ControllerError, match="must not change name or namespace, made it ns/other"):
        await upsert(client, config_map(), rename)
    assert [call.verb for call in client.calls] == ["get"]


@pytest.mark.parametrize("upsert", BOTH)
async def test_another_failure_than_absence_is_raised(upsert: Upsert) -> None:
    async def refuse(*_: Any) -> Any:
        raise ForbiddenError("no", code=403, reason="Forbidden")

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(get=refuse))
    with pytest.raises(ForbiddenError):
        await upsert(client, config_map(), wanted("1"))


async def test_an_update_conflicts_with_a_change_in_between_and_a_patch_does_not() -> None:
    class Meddled(FakeClient):
        """Another writer changes the object after each read."""

        async def get(self, kind: Any, key: Any) -> Any:
            read = await super().get(kind, key)
            await self.patch(read, raw_patch(MERGE, b'{"data": {"theirs": "yes"}}'))
            return read

    client = Meddled(config_map(ours="no"))
    with pytest.raises(ConflictError):
        await util.create_or_update(client, config_map(), wanted("1"))
    client = Meddled(config_map(ours="no"))
    stored, result = await util.create_or_patch(client, config_map(), wanted("1"))
    assert (stored.data, result) == ({"ours": "no", "theirs": "yes", "a": "1"}, "updated")


@pytest.mark.parametrize(
    ("labels", "phase", "result", "subresources"),
    [
        ({"l": "1"}, "Running", "updatedStatus", ["", "status"]),
        (None, "Running", "updatedStatusOnly", ["status"]),
        ({"l": "1"}, None, "updated", [""]),
    ],
)
async def test_a_patch_writes_the_status_apart(
    labels: dict[str, str] | None, phase: str | None, result: str, subresources: list[str]
) -> None:
    def mutate(obj: Pod) -> None:
        obj.metadata.labels = labels
        if phase is not None:
            obj.status = PodStatus(phase=phase)

    client = FakeClient(pod())
    stored, got = await util.create_or_patch(client, pod(), mutate)
    assert got == result
    assert [call.subresource for call in client.calls if call.verb == "patch"] == subresources
    assert (stored.labels, stored.status.phase if stored.status else None) == (labels or {}, phase)


def test_a_reference_to_an_object_without_type_meta_has_the_kind_of_its_class() -> None:
    bare = Pod(metadata=ObjectMeta(namespace="n", name="p", uid="u", resource_version="7"))
    bare.api_version = bare.kind = None
    assert ctrl.reference(bare).to_dict() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "n",
        "name": "p",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert ctrl.owner_reference(bare).to_dict() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": "u",
    }


MAP: Any = {"metadata": {"name": "c"}}
CLASS: Any = ConfigMap


@pytest.mark.parametrize(
    "call",
    [
        lambda: util.set_controller_reference(
            CLASS, ConfigMap(metadata=ObjectMeta(namespace="ns", name="c"))
        ),
        lambda: util.set_controller_reference(ConfigMap(metadata=ObjectMeta(namespace="ns", name="c")), MAP),
        lambda: util.set_owner_reference(MAP, ConfigMap(metadata=ObjectMeta(namespace="ns", name="c"))),
        lambda: util.owner_reference(CLASS),
        lambda: util.add_finalizer(CLASS, "example.com/x"),
        lambda: util.remove_finalizer(MAP, "example.com/x"),
        lambda: util.controller_of(MAP),
        lambda: ctrl.reference(CLASS),
    ],
)
def test_what_is_no_object_is_named_as_an_argument(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"^(owner|obj) must be an object of a kind, such as"):
        call()


async def test_a_mutate_without_an_effect_is_refused() -> None:
    async def later(obj: ConfigMap) -> None:
        obj.data = {"a": "b"}

    def other(obj: ConfigMap) -> ConfigMap:
        return obj.model_copy(update={"data": {"a": "b"}})

    def same(obj: ConfigMap) -> ConfigMap:
        obj.data = {"a": "b"}
        return obj

    client: Any = FakeClient()
    writes: list[Any] = [ctrl.create_or_update, ctrl.create_or_patch]
    for write in writes:
        with pytest.raises(TypeError, match=r"later must not be async"):
            await write(client, ConfigMap(metadata=ObjectMeta(namespace="ns", name="c")), later)
        with pytest.raises(TypeError, match=r"mutate must change its argument"):
            await write(client, ConfigMap(metadata=ObjectMeta(namespace="ns", name="c")), other)
        with pytest.raises(TypeError, match=r"^obj must be an object of a kind"):
            await write(client, MAP, same)
    assert client.writes == []
    stored, _ = await writes[0](client, ConfigMap(metadata=ObjectMeta(namespace="ns", name="c")), same)
    assert stored.data == {"a": "b"}


async def test_what_is_retried_is_a_function() -> None:
    with pytest.raises(TypeError, match=r"^change must be an async function, not 5"):
        await ctrl.retry_on_conflict(5)  # type: ignore[arg-type]
