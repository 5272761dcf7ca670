# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import anyio
import pytest
from controller_runtime import handler, source
from controller_runtime.machinery import GVK, LazyObject, NamespacedName, Unstructured, metadata_only
from controller_runtime.reconcile import Request

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import PodGrouper, PodReconciler
from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.plugins import GroupingError, Inputs, Key, inputs
from pkg.podgrouper.podgroup import Handler
from pkg.podgrouper.regrouping import LATER, PATIENCE, PERIOD, PORTION, Regrouping
from testkit.grouping import DirectClient, OwnerServer, make_object, make_pod
from testkit.recorder import Recorder

JOB = GVK("batch", "v1", "Job")
OWNER = Key(JOB, "team-a", "job")
STEP = PERIOD / 10


def pod(name: str, namespace: str = "team-a") -> NamespacedName:
    return NamespacedName(namespace, name)


def state(**metadata: Any) -> LazyObject[Any]:
    kind = metadata_only(JOB)
    named = {"name": "job", "namespace": "team-a", **metadata}
    return LazyObject(kind, kind.from_dict({"metadata": named}).to_json())


class Queue:
    """Records the pods of each moment, and their priority."""

    def __init__(self) -> None:
        self.added: list[tuple[float, str]] = []
        self._start = anyio.current_time()

    def add(self, item: NamespacedName, *, priority: int | None, after: float) -> None:
        assert priority == handler.LOW_PRIORITY
        self.added.append((round(anyio.current_time() - self._start + after, 3), item.name))

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.added]


async def fed(
    regrouping: Regrouping, *actions: Callable[[], object], seconds: float, gone: Iterable[Key] = ()
) -> Queue:
    """Call an action each tenth of a period, and return the queue."""
    queue, missing = Queue(), set(gone)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(regrouping.feed, cast("source.Queue", queue), lambda key: key not in missing)
        for action in actions:
            action()
            await anyio.sleep(STEP)
        await anyio.sleep(seconds - STEP * len(actions) + STEP / 2)
        tasks.cancel_scope.cancel()
    return queue


def edit(regrouping: Regrouping, key: Key = OWNER, number: int = 1) -> Callable[[], None]:
    return lambda: regrouping.owner_changed(key, state(generation=number), state(generation=number + 1))


def deletion(regrouping: Regrouping, name: str = "g") -> Callable[[], None]:
    return lambda: regrouping.group_deleted(pod(name))


async def test_an_edit_of_an_owner_reaches_its_pods_within_a_period() -> None:
    regrouping = Regrouping()
    regrouping.note(pod("a"), "g", [OWNER])
    regrouping.note(pod("b"), "other", [OWNER._replace(name="other")])

    queue = await fed(regrouping, edit(regrouping), seconds=3 * PERIOD)

    assert queue.added == [(PERIOD, "a")]
    assert [regrouping.take(pod("a")), regrouping.take(pod("a"))] == [1, 0]


async def test_while_an_owner_changes_one_pod_of_its_group_is_reconciled_in_each_period() -> None:
    """Otherwise, each pod would write a newer state of the owner into the group."""
    regrouping = Regrouping()
    for name in ("a", "b"):
        regrouping.note(pod(name), "g", [OWNER])

    for first, second in (("a", "b"), ("b", "a"), ("a", "b")):
        queue = await fed(regrouping, edit(regrouping), seconds=2 * PERIOD)
        assert queue.names == [first, second]
        period = regrouping.take(pod(first))
        assert not regrouping.is_repeated(pod(first), period)
        edit(regrouping, number=2)()
        assert regrouping.take(pod(second)) == period
        assert regrouping.is_repeated(pod(second), period)


async def test_while_an_owner_does_not_change_all_pods_of_its_group_are_reconciled() -> None:
    regrouping = Regrouping()
    for name in ("a", "b", "c"):
        regrouping.note(pod(name), "g", [OWNER])

    queue = await fed(regrouping, edit(regrouping), seconds=2 * PERIOD)

    assert [regrouping.is_repeated(pod(name), regrouping.take(pod(name))) for name in queue.names] == [
        False
    ] * 3
    assert not regrouping.is_repeated(pod("unknown"), 1)


async def test_an_owner_that_changes_all_the_time_has_its_pods_regrouped_once_a_period() -> None:
    regrouping = Regrouping()
    regrouping.note(pod("a"), "g", [OWNER])

    queue = await fed(regrouping, *(edit(regrouping, number=n) for n in range(1, 40)), seconds=4 * PERIOD)

    assert len(queue.added) == 4


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        ({"generation": 1, "resourceVersion": "1"}, {"generation": 1, "resourceVersion": "2"}, False),
        ({"resourceVersion": "1"}, {"resourceVersion": "2"}, True),
        ({"generation": 1}, {"generation": 2}, True),
        ({"generation": 1}, {"generation": 1, "labels": {"kai.scheduler/queue": "q"}}, True),
        ({"generation": 1}, {"generation": 1, "annotations": {"a": "b"}}, True),
        ({"generation": 1, "finalizers": ["a"]}, {"generation": 1, "finalizers": []}, False),
    ],
)
@pytest.mark.parametrize("decoded", [False, True])
async def test_a_change_of_only_the_status_of_an_owner_reaches_no_pod(
    old: Any, new: Any, matters: bool, decoded: bool
) -> None:
    regrouping = Regrouping()
    regrouping.note(pod("a"), "g", [OWNER])
    before, after = state(**old), state(**new)
    if decoded:
        assert before.object
        assert after.object

    queue = await fed(regrouping, lambda: regrouping.owner_changed(OWNER, before, after), seconds=2 * PERIOD)

    assert queue.names == (["a"] if matters else [])


async def test_a_deleted_group_reaches_its_pods_but_later_if_an_owner_is_gone_too() -> None:
    regrouping = Regrouping()
    regrouping.note(pod("a"), "g", [OWNER])
    regrouping.note(pod("b"), "own")
    actions = deletion(regrouping), deletion(regrouping, "own"), deletion(regrouping, "unknown")

    queue = await fed(regrouping, *actions, seconds=2 * PERIOD, gone=[OWNER])
    assert queue.added == [(PERIOD, "b"), (PERIOD + LATER + PERIOD / PORTION, "a")]
    queue = await fed(regrouping, *actions, seconds=2 * PERIOD)
    assert queue.added == [(PERIOD, "a"), (PERIOD + PERIOD / PORTION, "b")]


async def test_one_pod_brings_a_deleted_group_back_and_all_are_tried_if_it_does_not() -> None:
    regrouping = Regrouping()
    for name in ("a1", "a2", "b1", "b2"):
        regrouping.note(pod(name), name[0], [OWNER])

    queue = await fed(
        regrouping,
        deletion(regrouping, "a"),
        deletion(regrouping, "b"),
        *[lambda: None] * 12,
        lambda: regrouping.group_created(pod("a")),
        seconds=(PATIENCE + 3) * PERIOD,
    )

    assert queue.names == ["a1", "b1", "b1", "b2"]


async def test_a_deleted_group_is_not_awaited_if_its_pods_are_reconciled_or_gone_anyway() -> None:
    regrouping = Regrouping()
    regrouping.note(pod("a"), "a", [OWNER])
    regrouping.note(pod("b"), "b")
    deletions = deletion(regrouping, "a"), deletion(regrouping, "b")

    queue = await fed(
        regrouping,
        edit(regrouping),
        *deletions,
        lambda: regrouping.forget(pod("b")),
        seconds=(PATIENCE + 3) * PERIOD,
    )

    assert queue.names == ["a"]


async def test_a_group_whose_pod_waits_behind_many_others_is_awaited_for_longer() -> None:
    regrouping = Regrouping()
    for number in range(5 * PORTION):
        regrouping.note(pod(f"a{number}"), "a", [OWNER])
    for name in ("b1", "b2"):
        regrouping.note(pod(name), "b")

    queue = await fed(
        regrouping,
        edit(regrouping),
        *[lambda: None] * 11,
        deletion(regrouping, "b"),
        *[lambda: None] * 80,
        lambda: regrouping.group_created(pod("b")),
        seconds=15 * PERIOD,
    )

    assert [name for name in queue.names if name.startswith("b")] == ["b1"]


async def test_a_deleted_group_whose_pods_are_gone_is_not_awaited() -> None:
    regrouping = Regrouping()
    for name in ("a1", "a2"):
        regrouping.note(pod(name), "a", [OWNER])

    queue = await fed(
        regrouping,
        deletion(regrouping, "a"),
        *[lambda: None] * 12,
        lambda: regrouping.forget(pod("a1")),
        lambda: regrouping.forget(pod("a2")),
        seconds=(PATIENCE + 3) * PERIOD,
    )

    assert queue.names == ["a1"]


async def test_many_pods_of_a_namespace_come_in_portions_and_do_not_delay_those_of_others() -> None:
    regrouping, other = Regrouping(), OWNER._replace(namespace="team-b")
    for number in range(2 * PORTION + 1):
        regrouping.note(pod(f"a{number}"), "g", [OWNER])
    regrouping.note(pod("b", "team-b"), "g", [other])

    queue = await fed(regrouping, edit(regrouping), edit(regrouping, other), seconds=4 * PERIOD)

    times = [time for time, _ in queue.added]
    assert [times.count(number * PERIOD) for number in (1, 2, 3, 4)] == [PORTION + 1, PORTION, 1, 0]
    assert (PERIOD, "b") in queue.added


async def test_many_groups_come_one_after_the_other_and_the_pods_of_a_group_together() -> None:
    regrouping, groups = Regrouping(), PORTION // 2
    for number in range(groups):
        for name in ("a", "b"):
            regrouping.note(pod(f"{name}{number}"), f"g{number}", [OWNER])

    queue = await fed(regrouping, edit(regrouping), seconds=2 * PERIOD)

    expected = [round(PERIOD + 2 * number * PERIOD / PORTION, 3) for number in range(groups)]
    assert [time for time, name in queue.added if name.startswith("a")] == expected
    assert [time for time, name in queue.added if name.startswith("b")] == expected


async def test_one_pod_of_each_group_comes_first() -> None:
    regrouping = Regrouping()
    for name in ("a1", "a2", "b1", "b2"):
        regrouping.note(pod(name), name[0], [OWNER])

    queue = await fed(regrouping, edit(regrouping), seconds=2 * PERIOD)

    assert {name[1] for name in queue.names[:2]} == {"1"}
    assert sorted(queue.names) == ["a1", "a2", "b1", "b2"]


async def test_a_pod_that_is_gone_or_has_another_group_is_forgotten() -> None:
    regrouping = Regrouping()
    for name in ("a", "b"):
        regrouping.note(pod(name), "g", [OWNER])
    regrouping.forget(pod("a"))
    regrouping.note(pod("b"), "other")
    regrouping.note(pod("c"), "third", [OWNER])
    regrouping.note(pod("d"), "fourth", [OWNER])
    regrouping.forget(pod("d"))
    regrouping.forget(pod("unknown"))

    queue = await fed(regrouping, edit(regrouping), deletion(regrouping), seconds=2 * PERIOD)

    assert queue.names == ["c"]


async def test_only_objects_that_were_read_for_the_pod_are_collected() -> None:
    inputs().read.add(OWNER)
    mine = Inputs()
    with mine.collecting():
        inputs().read.add(OWNER)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_another)

    assert mine.read == {OWNER}


async def _read_another() -> None:
    with Inputs().collecting():
        inputs().read.add(OWNER._replace(name="another"))


@pytest.fixture
def regrouping() -> Regrouping:
    return Regrouping()


@pytest.fixture
def reconciler(cluster: OwnerServer, recorder: Recorder, regrouping: Regrouping) -> PodReconciler:
    client = cluster.watched
    owners = OwnerCache(DirectClient(cluster), client, cluster, regrouping=regrouping)
    groups = Handler(client, client, node_pool_key="", queue_key="")
    return PodReconciler(client, recorder, PodGrouper(owners, owners.hub), groups, regrouping=regrouping)


async def test_an_edit_of_an_owner_that_could_not_be_grouped_reaches_its_pods(
    cluster: OwnerServer, reconciler: PodReconciler, regrouping: Regrouping
) -> None:
    ray = make_object("ray.io/v1", "RayCluster", "ray", spec={"workerGroupSpecs": ["no map"]}, generation=1)
    await cluster.put(ray)
    await cluster.put(make_pod("a", ray))
    with pytest.raises(GroupingError, match="is no map"):
        await reconciler.reconcile(Request(*pod("a")))

    queue = await fed(regrouping, edit(regrouping, Key(ray.gvk, "team-a", "ray")), seconds=2 * PERIOD)

    assert queue.added == [(PERIOD, "a")]


DB = Key(GVK("apps", "v1", "StatefulSet"), "team-a", "db")


async def label(cluster: OwnerServer, team: str) -> Unstructured:
    """Give the owner of the pods a label, which its group gets too."""
    made = make_object("apps/v1", "StatefulSet", "db", labels={"team": team}, resourceVersion=team)
    await cluster.put(made)
    return made


@pytest.fixture
async def grouped(cluster: OwnerServer, reconciler: PodReconciler) -> PodReconciler:
    """Return the reconciler, which has grouped the two pods of an owner."""
    owner = await label(cluster, "1")
    for name in ("a", "b"):
        await cluster.put(make_pod(name, owner))
        await reconciler.reconcile(Request(*pod(name)))
    return reconciler


async def test_while_an_owner_changes_its_group_is_written_for_one_of_its_pods(
    cluster: OwnerServer, grouped: PodReconciler, regrouping: Regrouping
) -> None:
    queue = await fed(regrouping, edit(regrouping, DB), seconds=2 * PERIOD)
    for name, team in zip(queue.names, ("2", "3"), strict=True):
        edit(regrouping, DB)()
        await label(cluster, team)
        await grouped.reconcile(Request(*pod(name)))

    (group,) = await cluster.watched.list(PodGroup)
    assert group.labels["team"] == "2"


async def test_a_group_that_is_deleted_right_after_it_was_made_comes_back(
    cluster: OwnerServer, grouped: PodReconciler, regrouping: Regrouping
) -> None:
    (group,) = await cluster.watched.list(PodGroup)
    await cluster.watched.delete(group)
    queue = await fed(regrouping, lambda: regrouping.group_deleted(group.key), seconds=2 * PERIOD)

    await grouped.reconcile(Request(*pod(queue.names[0])))

    assert len(await cluster.watched.list(PodGroup)) == 1
