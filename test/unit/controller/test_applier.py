# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Client, LiveClient, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import LazyObject, NamespacedName, metadata_only
from controller_runtime.machinery.errors import ConflictError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.controller.applier import Applier, Memories, Outcome, _digests
from pkg.util.trainjob import ChildConflictError

OWNER = NamespacedName("ns", "job")


def config_map(**data: str) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": "hosts", "namespace": "ns"}, "data": data})


def pod_group(**spec: Any) -> PodGroup:
    return PodGroup.from_dict({"metadata": {"name": "job", "namespace": "ns"}, "spec": spec})


class Undecoded(FakeClient):
    """A client whose answers are not decoded, and contain the body of the request, as those of a real client."""

    apply_lazily = LiveClient.apply_lazily


async def test_a_new_object_is_encoded_once_and_recognized_afterwards() -> None:
    encoded: list[PodGroup] = []

    class Counted(PodGroup):
        def to_json(self) -> bytes:
            encoded.append(self)
            return super().to_json()

    found = []
    for client in (Undecoded(), FakeClient()):
        memories, encoded[:] = Memories(), []
        applier = Applier(client, memories)
        desired = Counted.from_dict(pod_group(minMember=3).to_dict())
        assert await applier.apply(OWNER, desired) is Outcome.CREATED
        (digests,) = memories[OWNER].matched.values()
        found.append((len(encoded), digests[0]))
        assert await applier.apply(OWNER, desired) is Outcome.UNCHANGED
        assert len(client.writes) == 1
    assert found == [(1, found[1][1]), (2, found[0][1])]


async def test_content_that_is_not_cached_is_never_read() -> None:
    client = FakeClient()
    applier = Applier(client, Memories())
    assert await applier.apply(OWNER, config_map(hostfile="a")) is Outcome.CREATED
    assert await applier.apply(OWNER, config_map(hostfile="a")) is Outcome.UNCHANGED
    reads = {call.kind for call in client.calls if not call.is_write}
    assert reads == {metadata_only(ConfigMap).gvk}


@pytest.mark.parametrize("kind", [ConfigMap, Secret])
async def test_of_such_a_kind_another_version_is_reason_enough_to_apply_again(kind: type[Any]) -> None:
    client = FakeClient()
    applier = Applier(client, Memories())
    desired = kind.from_dict({"metadata": {"name": "x", "namespace": "ns"}, "data": {"k": "dg=="}})
    await applier.apply(OWNER, desired)
    changed = await client.get(kind, desired.key)
    changed.data = {"k": "eA=="}
    await client.update(changed, field_owner="somebody")
    assert await applier.apply(OWNER, desired) is Outcome.HEALED
    assert (await client.get(kind, desired.key)).data == {"k": "dg=="}
    assert await applier.apply(OWNER, desired) is Outcome.UNCHANGED


async def test_a_field_that_is_no_longer_wanted_is_taken_back_and_others_stay() -> None:
    client = FakeClient()
    applier = Applier(client, Memories())
    await applier.apply(OWNER, pod_group(minMember=3, scheduleTimeoutSeconds=60))
    live = await client.get(PodGroup, OWNER)
    live.metadata.labels = {"theirs": "1"}
    await client.update(live, field_owner="somebody")
    assert await applier.apply(OWNER, pod_group(minMember=3, scheduleTimeoutSeconds=60)) is Outcome.UNCHANGED
    assert await applier.apply(OWNER, pod_group(minMember=3)) is Outcome.CHANGED
    now = await client.get(PodGroup, OWNER)
    assert now.to_dict()["spec"] == {"minMember": 3}
    assert now.metadata.labels == {"theirs": "1"}
    assert await applier.apply(OWNER, pod_group(minMember=3)) is Outcome.UNCHANGED


def pruning_client() -> FakeClient:
    """Return the client of a server that drops the field ``spec.unknown``."""
    client = FakeClient()
    stored = client.apply

    async def pruning(obj: Any, **options: Any) -> Any:
        kept = obj.to_dict()
        kept["spec"].pop("unknown", None)
        return await stored(PodGroup.from_dict(kept), **options)

    client.apply = pruning  # type: ignore[method-assign] # the server prunes
    return client


async def test_what_the_server_dropped_is_sent_once_more_and_then_left() -> None:
    client = pruning_client()
    applier = Applier(client, Memories())
    assert await applier.apply(OWNER, pod_group(minMember=3, unknown=1)) is Outcome.CREATED
    assert await applier.apply(OWNER, pod_group(minMember=3, unknown=1)) is Outcome.UNCHANGED
    assert [call.verb for call in client.writes] == ["apply", "apply"]


async def test_what_is_forgotten_is_looked_at_again() -> None:
    client, memories = FakeClient(), Memories()
    applier = Applier(client, memories)
    await applier.apply(OWNER, config_map(hostfile="a"))
    del memories[OWNER]
    assert await applier.apply(OWNER, config_map(hostfile="a")) is Outcome.UNCHANGED
    del memories[OWNER]
    assert await applier.apply(OWNER, config_map(hostfile="b")) is Outcome.CHANGED


async def test_the_content_that_is_not_cached_is_read_once_and_not_from_the_cache() -> None:
    client, reader = FakeClient(), FakeClient(config_map(hostfile="a"))
    await client.create(config_map())  # a cache of metadata has the object without its content
    applier = Applier(client, Memories(), reader)
    for _ in range(2):
        assert await applier.apply(OWNER, config_map(hostfile="a")) is Outcome.UNCHANGED
    assert [(call.verb, call.kind) for call in reader.calls] == [("get", ConfigMap.gvk)]


async def test_an_object_whose_content_the_server_does_not_have_is_applied() -> None:
    client = FakeClient(config_map(hostfile="a"))
    applier = Applier(client, Memories(), FakeClient())
    assert await applier.apply(OWNER, config_map(hostfile="a")) is Outcome.CHANGED


async def test_an_object_that_went_in_between_is_not_made_of_its_remains() -> None:
    client = FakeClient()
    applier = Applier(client, Memories())
    await applier.apply(OWNER, pod_group(minMember=3))
    stored = client.apply
    sent: list[dict[str, Any]] = []

    async def late(obj: Any, **options: Any) -> Any:
        sent.append(obj.to_dict())
        return await stored(obj, **options)

    client.apply = late  # type: ignore[method-assign] # records the sent objects
    uid = (await client.get(PodGroup, OWNER)).metadata.uid
    await applier.apply(OWNER, pod_group(minMember=4))
    assert sent[0]["metadata"]["uid"] == uid


async def test_without_memory_the_same_comes_about() -> None:
    outcomes = []
    for forgetful in (False, True):
        client = FakeClient()
        applier = Applier(client, Memories())
        states = []
        for desired in (3, 3, 4, 4):
            await applier.apply(OWNER, pod_group(minMember=desired))
            live = await client.get(PodGroup, OWNER)
            live.metadata.labels = {"theirs": str(desired)}
            live.spec.min_member = 9
            await client.update(live, field_owner="somebody")
            if forgetful:
                applier = Applier(client, Memories())
            await applier.apply(OWNER, pod_group(minMember=desired))
            states.append((await client.get(PodGroup, OWNER)).to_dict()["spec"])
        outcomes.append(states)
    assert (
        outcomes[0] == outcomes[1] == [{"minMember": 3}, {"minMember": 3}, {"minMember": 4}, {"minMember": 4}]
    )


@pytest.mark.parametrize(
    "stranger", [config_map(theirs="1"), pod_group(minMember=7)], ids=lambda each: each.gvk.kind
)
async def test_an_object_that_another_writer_creates_meanwhile_is_not_taken_over(stranger: Any) -> None:
    client = FakeClient()

    async def apply_late(late: Client, obj: Any, **options: Any) -> Any:
        await late.create(stranger.deep_copy(), field_owner="stranger")
        return await late.apply(obj, **options)

    applier = Applier(interceptor.wrap(client, interceptor.Funcs(apply=apply_late)), Memories())
    desired = config_map(ours="1") if isinstance(stranger, ConfigMap) else pod_group(minMember=3)
    with pytest.raises(ConflictError):
        await applier.apply(OWNER, desired)
    stored = (await client.get(type(stranger), stranger.key)).to_dict()
    assert {**stored, "metadata": None} == {**stranger.to_dict(), "metadata": None}


async def test_an_object_is_created_by_one_apply_at_no_version() -> None:
    client = FakeClient()
    desired = config_map(ours="1")
    assert await Applier(client, Memories()).apply(OWNER, desired) is Outcome.CREATED
    assert [call.verb for call in client.calls if call.is_write] == ["apply"]
    assert desired.metadata.resource_version is None
    assert (await client.get(ConfigMap, desired.key)).metadata.resource_version != "1"


async def test_nothing_is_sent_to_an_object_of_another_controller() -> None:
    owners = [{"apiVersion": "v1", "kind": "Boss", "name": "b", "uid": "u", "controller": True}]
    foreign = PodGroup.from_dict({"metadata": {"name": "job", "namespace": "ns", "ownerReferences": owners}})
    client = FakeClient(foreign)
    with pytest.raises(ChildConflictError, match="podgroup ns/job: controlled by Boss b"):
        await Applier(client, Memories()).apply(OWNER, pod_group(minMember=3))
    assert client.writes == []


@pytest.mark.parametrize("generation", [None, 3])
@pytest.mark.parametrize("empty", [False, True])
def test_a_digest_is_the_same_whether_the_live_object_is_decoded_or_not(
    generation: int | None, *, empty: bool
) -> None:
    owner = {
        "apiVersion": "a/v1",
        "kind": "K",
        "name": "n",
        "uid": "u",
        "controller": True,
        "later": {"b": 1},
    }
    metadata: dict[str, Any] = {"name": "job", "namespace": "ns", "uid": "1", "resourceVersion": "2"}
    if generation is not None:
        metadata["generation"] = generation
    if not empty:
        metadata |= {"labels": {"b": "2", "a": "1"}, "annotations": {"c": ""}, "ownerReferences": [owner]}
    live = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": {}}
    desired = JobSet.from_dict({"metadata": {"name": "job", "namespace": "ns"}})
    text = msgspec.json.encode(live)
    decoded = _digests(desired, JobSet.from_json(text))
    assert _digests(desired, LazyObject(JobSet, text)) == decoded
    for name in ("labels", "annotations", "ownerReferences", "generation", "uid") if generation else ():
        changed = {**live, "metadata": {**metadata, name: None}}
        seen = _digests(desired, LazyObject(JobSet, msgspec.json.encode(changed)))
        assert (seen == decoded) == (metadata.get(name) is None)
