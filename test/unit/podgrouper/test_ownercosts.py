# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections
import contextlib
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import GVK, Unstructured, metadata_only
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.rest import NoKindMatchError, TransportError

from pkg.podgrouper.budget import LARGE_TEXT, OverBudgetError
from pkg.podgrouper.ownercache import CAPACITY, READ_TIMEOUT, READ_TTL, OwnerCache
from pkg.podgrouper.plugins import Reads
from testkit.grouping import DirectClient, OwnerServer, make_object, reference

JOB = GVK("batch", "v1", "Job")


# Kinds without a grouper.


@pytest.mark.parametrize(("api_version", "kind"), [("v1", "Secret"), ("example.com/v1", "Widget")])
async def test_an_owner_of_a_kind_without_a_grouper_is_read_for_a_while_and_never_watched(
    cluster: OwnerServer, owners: OwnerCache, api_version: str, kind: str
) -> None:
    await cluster.put(owner := make_object(api_version, kind, "o"))

    for _ in range(10):
        await owners.metadata(reference(owner), "team-a")
    assert cluster.reads == [kind]
    cluster.now += READ_TTL
    await owners.metadata(reference(owner), "team-a")
    assert cluster.reads == [kind, kind]
    assert cluster.informers == {}


async def test_nothing_is_made_or_read_of_a_kind_that_is_not_served(cluster: OwnerServer) -> None:
    async def served(kind: GVK) -> None:
        raise NoKindMatchError(kind)

    owners = OwnerCache(
        DirectClient(cluster), cluster.watched, cluster, served=served, clock=lambda: cluster.now
    )
    before = metadata_only.cache_info().misses
    for number in range(20):
        owner = OwnerReference(api_version=f"made-up-{number}.com/v1", kind="Kind", name="x", uid="u")
        with pytest.raises(NoKindMatchError):
            await owners.metadata(owner, "team-a")

    assert (cluster.reads, metadata_only.cache_info().misses) == ([], before)


async def test_owners_of_a_kind_without_a_grouper_are_read_one_by_one_in_a_namespace(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    widgets = [make_object("example.com/v1", "Widget", str(number)) for number in range(10)]
    for widget in widgets:
        await cluster.put(widget)
    await cluster.put(other := make_object("example.com/v1", "Widget", "0", namespace="team-b"))
    cluster.answer_delay = 1
    put_off: list[float] = []

    async def look(widget: Unstructured) -> None:
        try:
            await owners.metadata(reference(widget), widget.namespace)
        except OverBudgetError as error:
            put_off.append(error.delay)

    async with anyio.create_task_group() as tasks:
        for widget in (*widgets, other):
            tasks.start_soon(look, widget)

    assert len(put_off) == 9
    assert put_off == sorted(set(put_off))  # all delays are different
    assert cluster.reads == ["Widget", "Widget"]


# The budget.


async def test_owners_that_are_missing_use_up_the_budget_of_their_namespace_alone(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j", namespace="team-b"))
    outcomes = collections.Counter[str]()
    for number in range(1000):
        missing = make_object("batch/v1", "Job", f"missing-{number}")
        try:
            await owners.metadata(reference(missing), "team-a")
        except (NotFoundError, OverBudgetError) as error:
            outcomes[type(error).__name__] += 1

    assert outcomes["NotFoundError"] <= 101
    assert outcomes["OverBudgetError"] >= 899
    assert (await owners.metadata(reference(job), "team-b")).name == "j"


async def test_what_is_known_costs_no_budget(cluster: OwnerServer, owners: OwnerCache) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    await owners.metadata(reference(job), "team-a")
    owners.budget.spend("team-a", 1000)

    assert (await owners.metadata(reference(job), "team-a")).name == "j"


async def test_a_burst_of_owners_that_exist_is_read_without_a_limit(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    jobs = [make_object("batch/v1", "Job", f"j-{number}", generation=1) for number in range(500)]
    for job in jobs:
        await cluster.put(job)
        await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)

    assert len(owners.budget) == 0


async def test_a_server_that_does_not_answer_holds_a_worker_for_a_bounded_time_and_is_charged_for_it(
    cluster: OwnerServer,
) -> None:
    owners = OwnerCache(DirectClient(cluster), cluster.watched, cluster)
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    cluster.answer_delay = 3600
    began = anyio.current_time()

    with pytest.raises(TransportError, match="no answer within 5 s"):
        await owners.metadata(reference(job), "team-a")
    assert anyio.current_time() - began == pytest.approx(READ_TIMEOUT, abs=0.01)
    with pytest.raises(OverBudgetError) as caught:
        await owners.metadata(reference(job), "team-a")
    assert caught.value.delay > READ_TIMEOUT


async def test_a_wrong_uid_takes_nothing_from_memory_and_is_charged(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    await owners.metadata(reference(job), "team-a")
    wrong = make_object("batch/v1", "Job", "j", uid="made-up")
    for _ in range(1000):
        with contextlib.suppress(OverBudgetError):
            await owners.metadata(reference(wrong), "team-a")

    reads = len(cluster.reads)
    assert reads <= 103
    assert (await owners.metadata(reference(job), "team-a")).metadata.uid == job.metadata.uid
    assert len(cluster.reads) == reads


async def test_a_refusal_counts_for_all_objects_of_the_kind_in_the_namespace(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    jobs = [make_object("batch/v1", "Job", f"j-{number}") for number in range(100)]
    for job in jobs:
        await cluster.put(job)
    cluster.denied = True
    lengths = []
    for job in jobs:
        with pytest.raises(ForbiddenError) as caught:
            await owners.metadata(reference(job), "team-a")
        lengths.append(len(caught.traceback))

    assert len(cluster.reads) == 1
    assert len(set(lengths[1:])) == 1  # the traceback does not grow with each raise


# Large owners.


async def test_owners_of_a_megabyte_are_kept_within_the_bound_and_take_nothing_from_others(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    async def read(owner: Unstructured) -> None:
        with contextlib.suppress(OverBudgetError):
            await owners.instance(await owners.metadata(reference(owner), owner.namespace), Reads.SPEC)

    quiet = make_object("batch/v1", "Job", "quiet", namespace="team-b", generation=1, spec={"parallelism": 3})
    await cluster.put(quiet)
    await read(quiet)
    for number in range(80):
        loud = make_object(
            "batch/v1",
            "Job",
            f"loud-{number}",
            generation=1,
            annotations={"a": "x" * 2**18},
            spec="x" * 2**20,
        )
        await cluster.put(loud, reported=False)
        await read(loud)
        await cluster.server.delete(loud, propagation="Background")

    assert 2**20 < owners._contents.size <= CAPACITY
    assert 2**18 < owners._metadata.size <= CAPACITY / 4
    reads = len(cluster.reads)
    await read(quiet)
    assert len(cluster.reads) == reads


@pytest.mark.parametrize("large", ["annotations", "spec"])
async def test_decoding_a_large_owner_for_each_of_its_pods_is_charged(
    cluster: OwnerServer, owners: OwnerCache, large: str
) -> None:
    text: dict[str, Any] = {large: {"a": "x" * LARGE_TEXT}}
    await cluster.put(job := make_object("batch/v1", "Job", "j", generation=1, **text), reported=False)
    for _ in range(2):
        await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)
    assert len(owners.budget) == 1

    owners.budget.spend("team-a", 1000)
    with pytest.raises(OverBudgetError):
        await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)


@pytest.mark.parametrize("kind", ["Job", "Widget"])
async def test_thousands_of_owners_leave_a_bounded_memory(
    cluster: OwnerServer, owners: OwnerCache, kind: str
) -> None:
    api_version = "batch/v1" if kind == "Job" else "example.com/v1"
    for number in range(3300):
        namespace = f"ns-{number % 1100}"
        owner = make_object(api_version, kind, f"o-{number}", namespace=namespace)
        with contextlib.suppress(NotFoundError, OverBudgetError):
            await owners.metadata(reference(owner), namespace)
        await anyio.lowlevel.checkpoint()

    assert len(owners._metadata) == len(owners._contents) == 0
    assert (owners._reading, owners._reading_unwatched) == ({}, set())
    for held in (owners.budget, owners._watched):
        assert len(held) <= 1024
    assert owners._locks._used == {}
