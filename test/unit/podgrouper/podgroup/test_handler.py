# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import weakref
from typing import Any

import anyio
import pytest
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import AlreadyExistsError, ConflictError, NotFoundError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper.podgroup import Handler, Metadata, Rules, SubGroupMetadata, TopologyConstraintMetadata

KEY = ("team-a", "g")


def wanted(**fields: Any) -> Metadata:
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="db", uid="u")
    return Metadata(
        **{"name": "g", "namespace": "team-a", "owner": owner, "min_available": 1, "queue": "q", **fields}
    )


def handler(client: Any, live: Any = None) -> Handler:
    return Handler(
        client, live or client, node_pool_key="kai.scheduler/node-pool", queue_key="kai.scheduler/queue"
    )


async def test_many_at_once_create_a_group_once() -> None:
    client = FakeClient()
    groups = handler(client)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(groups.apply_to_cluster, wanted())

    assert [call.verb for call in client.writes] == ["create"]


@pytest.mark.parametrize("exists", [False, True])
async def test_while_the_cache_lags_the_other_pods_of_a_group_write_nothing(exists: bool) -> None:
    cache, server = FakeClient(), FakeClient()
    if exists:
        await handler(server).apply_to_cluster(wanted())
        cache.add(await server.get(PodGroup, KEY))
        server.calls.clear()

    async def get(_within: FakeClient, kind: Any, key: Any) -> Any:
        return await cache.get(kind, key)

    groups = handler(interceptor.wrap(server, interceptor.Funcs(get=get)), server)

    for minimum in (2, 2, 2, 3, 3, 3, 1, 1):
        await groups.apply_to_cluster(wanted(min_available=minimum))

    first = "update" if exists else "create"
    assert [call.verb for call in server.writes] == [first, "update", "update"]
    assert (await server.get(PodGroup, KEY)).spec.min_member == 1


async def test_a_group_that_was_deleted_is_created_again_without_a_read() -> None:
    client = FakeClient()
    groups = handler(client)
    await groups.apply_to_cluster(wanted())
    stored = await client.get(PodGroup, KEY)
    await client.delete(stored)
    groups.forget(stored.key)
    client.calls.clear()

    assert await groups.apply_to_cluster(wanted())

    assert [call.verb for call in client.calls if call.is_write] == ["create"]
    assert len(client.calls) == 2  # the cache is asked first


async def test_a_group_that_another_writer_has_changed_is_corrected() -> None:
    client = FakeClient()
    groups = handler(client)
    await groups.apply_to_cluster(wanted())
    stored = await client.get(PodGroup, KEY)
    stored.spec.min_member = 9
    await client.update(stored)

    await groups.apply_to_cluster(wanted())

    assert (await client.get(PodGroup, KEY)).spec.min_member == 1


LARGE = "ä" * (100 << 10)
"""200 KiB, of which an object has room for one."""


async def test_a_group_that_is_too_large_lacks_the_largest_annotations_and_is_written_once() -> None:
    client = FakeClient()
    groups = handler(client)

    for _ in range(2):
        await groups.apply_to_cluster(wanted(annotations={"b": LARGE, "a": LARGE, "small": "x"}))

    assert (await client.get(PodGroup, KEY)).annotations == {"b": LARGE, "small": "x"}
    assert len(client.writes) == 1


async def test_a_former_annotation_makes_room_for_one_of_the_owner() -> None:
    client = FakeClient()
    groups = handler(client)
    await groups.apply_to_cluster(wanted(annotations={"former": LARGE, "other": "x"}))

    for _ in range(2):
        await groups.apply_to_cluster(wanted(annotations={"new": LARGE}))

    assert (await client.get(PodGroup, KEY)).annotations == {"new": LARGE, "other": "x"}
    assert len(client.writes) == 2


async def test_unknown_fields_stay() -> None:
    stored = {"metadata": {"name": "g", "namespace": "team-a"}, "spec": {"queue": "q", "newer": {"a": 1}}}
    client = FakeClient(PodGroup.from_dict(stored))

    await handler(client).apply_to_cluster(wanted())

    spec = (await client.get(PodGroup, KEY)).to_dict()["spec"]
    assert spec == {"minMember": 1, "queue": "q", "topologyConstraint": {}, "newer": {"a": 1}}


@pytest.mark.parametrize(
    ("rules", "given", "written"),
    [
        (Rules.V0_13, {"min_available": 0}, (1, None)),
        (Rules.V0_15, {"min_available": -3}, (1, None)),
        (Rules.V0_17, {"min_available": 0}, (1, None)),
        (Rules.V0_17, {"min_available": 0, "min_sub_group": 0}, (1, None)),
        (Rules.V0_17, {"min_available": 0, "min_sub_group": 2}, (None, 2)),
        (Rules.V0_18, {"min_available": 0}, (0, None)),
        (Rules.V0_18, {"min_available": -3}, (0, None)),
        (Rules.V0_18, {"min_available": 0, "min_sub_group": 0}, (None, 0)),
        (Rules.V0_18, {"min_available": 0, "min_sub_group": -1}, (0, None)),
    ],
)
async def test_a_group_requires_a_number_that_its_release_accepts(
    rules: Rules, given: dict[str, int], written: tuple[int | None, ...]
) -> None:
    client = FakeClient()

    await handler(client).apply_to_cluster(wanted(**given), rules)

    spec = (await client.get(PodGroup, KEY)).spec
    assert (spec.min_member, spec.min_sub_group) == written


@pytest.mark.parametrize("stored", [{}, {"minMember": 1}])
async def test_a_group_without_a_minimum_requires_one_pod_and_is_not_written_again(
    stored: dict[str, int],
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u"}
    metadata = {"name": "g", "namespace": "team-a", "ownerReferences": [owner]}
    client = FakeClient(PodGroup.from_dict({"metadata": metadata, "spec": {**stored, "queue": "q"}}))

    await handler(client).apply_to_cluster(wanted(min_available=0), Rules.V0_17)
    assert client.writes == []

    await handler(client).apply_to_cluster(wanted(min_available=0), Rules.V0_18)
    assert (await client.get(PodGroup, KEY)).spec.min_member == 0


@pytest.mark.parametrize(("rules", "number"), [(Rules.V0_13, None), (Rules.V0_17, 0)])
@pytest.mark.parametrize("given", [0, -5])
async def test_a_subgroup_never_requires_a_negative_number(
    given: int, rules: Rules, number: int | None
) -> None:
    client = FakeClient()

    await handler(client).apply_to_cluster(
        wanted(sub_groups=[SubGroupMetadata(name="a", min_available=given)]), rules
    )

    group = await client.get(PodGroup, KEY)
    assert [each.min_member for each in group.spec.sub_groups or ()] == [number]


@pytest.mark.parametrize(("rules", "number"), [(Rules.V0_13, None), (Rules.V0_17, 0)])
async def test_a_subgroup_of_a_former_release_gets_its_zero(rules: Rules, number: int | None) -> None:
    parts = [SubGroupMetadata(name="master", min_available=1), SubGroupMetadata(name="worker")]
    client = FakeClient()
    await handler(client).apply_to_cluster(wanted(sub_groups=parts), Rules.V0_13)

    await handler(client).apply_to_cluster(wanted(sub_groups=parts), rules)

    group = await client.get(PodGroup, KEY)
    assert [each.min_member for each in group.spec.sub_groups or ()] == [1, number]


@pytest.mark.parametrize(
    ("rules", "delay"), [(Rules.V0_13, None), (Rules.V0_15, None), (Rules.V0_17, "5m0s")]
)
async def test_a_group_has_no_durations_where_the_server_would_prune_them(
    rules: Rules, delay: str | None
) -> None:
    client = FakeClient()
    for number in range(3):
        await handler(client).apply_to_cluster(wanted(preemption_delay="5m0s"), rules)
        assert (await client.get(PodGroup, KEY)).spec.preemption_delay == delay
        assert len(client.writes) == 1, number


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {"a": "b"}},
        {"labels": {"a": "b"}},
        {"priority_class_name": "high"},
        {"preemptibility": "preemptible"},
        {"preemption_delay": "5m0s"},
        {"staleness_grace_period": "5m0s"},
        {"min_available": 3},
        {"min_sub_group": 2},
        {"topology": "t", "required_topology_level": "rack"},
        {"topology": "t", "preferred_topology_level": "rack"},
        {"owner": OwnerReference(api_version="apps/v1", kind="StatefulSet", name="db", uid="v")},
        {"sub_groups": [SubGroupMetadata(name="a", min_available=1)]},
        {"sub_groups": [SubGroupMetadata(name="a", min_sub_group=1)]},
    ],
    ids="/".join,
)
async def test_each_field_of_a_group_that_changes_is_written(change: dict[str, Any]) -> None:
    assert await writes_of({}, change) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"min_available": 2},
        {"min_sub_group": 1},
        {"parent": "top"},
        {"topology_constraints": TopologyConstraintMetadata(topology="t", required_topology_level="rack")},
        {"topology_constraints": TopologyConstraintMetadata(topology="t", preferred_topology_level="rack")},
    ],
    ids="/".join,
)
async def test_each_field_of_a_subgroup_that_changes_is_written(change: dict[str, Any]) -> None:
    before, after = ({"name": "a", "min_available": 1, **each} for each in ({}, change))
    given = (
        {"sub_groups": [SubGroupMetadata(**each), SubGroupMetadata(name="top")]} for each in (before, after)
    )
    assert await writes_of(*given) == 2


async def writes_of(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Return the number of writes of a group that changes from ``before`` to ``after``, and then no more."""
    client = FakeClient()
    for given in (before, after, after):
        remembers_nothing = handler(client)
        await remembers_nothing.apply_to_cluster(wanted(**given), Rules.V0_17)
    return len(client.writes)


async def test_a_group_that_the_cache_has_not_seen_is_read_and_left_as_it_is() -> None:
    server = FakeClient()
    await handler(server).apply_to_cluster(wanted())

    async def nothing_yet(_client: Any, kind: Any, key: Any) -> Any:
        raise NotFoundError("not found", code=404, reason="NotFound")

    behind = interceptor.wrap(server, interceptor.Funcs(get=nothing_yet))
    await handler(behind, server).apply_to_cluster(wanted())

    assert [call.verb for call in server.writes] == ["create", "create"]


async def test_a_creation_refused_though_there_is_no_group_is_told() -> None:
    async def refuse(_client: Any, _obj: Any, **_options: Any) -> Any:
        raise AlreadyExistsError("exists", code=409, reason="AlreadyExists")

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(create=refuse))

    with pytest.raises(AlreadyExistsError):
        await handler(client).apply_to_cluster(wanted())


async def test_a_group_written_by_somebody_else_meanwhile_is_read_and_written_again() -> None:
    server = FakeClient()
    await handler(server).apply_to_cluster(wanted())
    stale = await server.get(PodGroup, KEY)
    theirs = stale.deep_copy()
    theirs.metadata.labels = {"theirs": "1"}
    await server.update(theirs)

    async def old(_client: Any, _kind: Any, _key: Any) -> PodGroup:
        return stale.deep_copy()

    behind = interceptor.wrap(server, interceptor.Funcs(get=old))
    await handler(behind, server).apply_to_cluster(wanted(min_available=3))

    group = await server.get(PodGroup, KEY)
    assert (group.spec.min_member, group.labels) == (3, {"theirs": "1"})


async def test_a_conflict_with_nobody_is_told_at_once() -> None:
    server = FakeClient()
    await handler(server).apply_to_cluster(wanted())
    tries = 0

    async def refuse(_client: Any, _obj: Any, **_options: Any) -> Any:
        nonlocal tries
        tries += 1
        raise ConflictError("no", code=409, reason="Conflict")

    client = interceptor.wrap(server, interceptor.Funcs(update=refuse))

    with pytest.raises(ConflictError):
        await handler(client).apply_to_cluster(wanted(min_available=3))
    assert tries == 1


async def test_a_group_that_we_have_not_written_is_decoded_once_a_version() -> None:
    cluster = FakeClient()
    decoded = 0

    async def get(inner: Any, kind: Any, key: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return await inner.get(kind, key)

    class Cached:
        """A client that returns objects undecoded, as the cache does."""

        def __getattr__(self, name: str) -> Any:
            return getattr(interceptor.wrap(cluster, interceptor.Funcs(get=get)), name)

        async def peek(self, kind: Any, key: Any) -> Any:
            return (await cluster.get(kind, key)).metadata

    groups = handler(Cached())
    parts = [SubGroupMetadata(name="a", min_available=1)]
    for number in range(5):
        parts[0].pods_references = [f"p-{number}"]
        await groups.apply_to_cluster(wanted(sub_groups=parts))
    assert decoded == 0

    stored = await cluster.get(PodGroup, KEY)
    stored.metadata.labels = {"theirs": "1"}
    await cluster.update(stored)
    await groups.apply_to_cluster(wanted(sub_groups=parts))
    await groups.apply_to_cluster(wanted(sub_groups=parts, queue="q", min_available=2))
    assert decoded == 2
    assert (await cluster.get(PodGroup, KEY)).spec.min_member == 2
    for _ in range(2):
        await groups.apply_to_cluster(wanted(sub_groups=parts, queue="q", min_available=2), Rules.V0_17)
    assert decoded == 3


async def test_a_group_that_is_not_stored_as_it_was_sent_is_written_again() -> None:
    server = FakeClient()

    async def lower(_client: Any, obj: PodGroup, **options: Any) -> Any:
        changed = obj.deep_copy()
        changed.spec.min_member = 1
        return await server.create(changed, **options)

    groups = handler(interceptor.wrap(server, interceptor.Funcs(create=lower)))
    for _ in range(3):
        await groups.apply_to_cluster(wanted(min_available=3))

    assert [call.verb for call in server.writes] == ["create", "update"]
    assert (await server.get(PodGroup, KEY)).spec.min_member == 3


async def test_of_a_group_that_is_up_to_date_no_annotations_are_kept() -> None:
    class Annotations(dict[str, str]):
        pass

    groups = handler(FakeClient())
    annotations = Annotations(large="z" * 4096)
    for _ in range(3):
        await groups.apply_to_cluster(wanted(annotations=annotations))
    kept = weakref.ref(annotations)
    del annotations
    gc.collect()

    assert kept() is None


async def test_a_group_that_was_deleted_is_created_again() -> None:
    client = FakeClient()
    groups = handler(client)
    for _ in range(3):
        await groups.apply_to_cluster(wanted())
    await client.delete(await client.get(PodGroup, KEY))

    await groups.apply_to_cluster(wanted())

    assert (await client.get(PodGroup, KEY)).spec.min_member == 1
