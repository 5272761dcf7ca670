# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Namespace, Pod
from controller_runtime.cache import UndecodableObjectError
from controller_runtime.client import MERGE, interceptor, raw_patch
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import ForbiddenError, InvalidError, NotFoundError
from controller_runtime.metrics import REGISTRY
from controller_runtime.reconcile import Request, Result, TerminalError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import PodGrouper, PodReconciler, Settings, new_plugins_hub
from pkg.podgrouper.budget import OverBudgetError
from pkg.podgrouper.ownercache import READ_TTL, OwnerCache
from pkg.podgrouper.podgroup import Handler
from testkit.grouping import OwnerServer, make_object, make_pod, make_reconciler, pod_grouper, refusing
from testkit.recorder import Recorder

REQUEST = Request("team-a", "db-0")
GROUP = "pg-db-uid-db"
ANNOTATION = "pod-group-name"


def verbs(client: FakeClient) -> list[tuple[str, str]]:
    return [(call.verb, call.kind.kind) for call in client.writes]


@pytest.fixture
def stateful_set() -> Unstructured:
    return make_object("apps/v1", "StatefulSet", "db", labels={"kai.scheduler/queue": "q"})


async def test_nothing_is_written_for_a_pod_that_has_all(stateful_set: Unstructured) -> None:
    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))
    reconciler = make_reconciler(client)

    for _ in range(3):
        await reconciler.reconcile(REQUEST)
    await make_reconciler(client).reconcile(REQUEST)

    assert verbs(client) == [("create", "PodGroup"), ("patch", "Pod")]


async def test_the_pods_of_an_owner_with_the_largest_annotations_are_grouped_and_an_event_says_what_is_missing(
    recorder: Recorder,
) -> None:
    large = {"applied": "x" * (262_100 - len("applied")), "small": "y"}
    owner = make_object("apps/v1", "StatefulSet", "db", annotations=large)
    client = FakeClient(owner, make_pod("db-0", owner), make_pod("db-1", owner))
    reconciler = make_reconciler(client, recorder=recorder, notices=recorder)

    for name in ("db-0", "db-1"):
        await reconciler.reconcile(Request("team-a", name))

    assert (await client.get(PodGroup, ("team-a", GROUP))).annotations.keys() == {
        "kai.scheduler/top-owner-metadata",
        "small",
    }
    assert verbs(client) == [("create", "PodGroup"), ("patch", "Pod"), ("patch", "Pod")]
    (event,) = recorder.events
    assert event.startswith(
        "Warning FieldIgnored: the PodGroup of StatefulSet db lacks the largest annotations"
    )
    assert event.endswith("262144 bytes: applied")


async def test_a_pod_whose_annotations_have_no_room_for_a_group_is_reported(
    stateful_set: Unstructured, recorder: Recorder
) -> None:
    pod = make_pod("db-0", stateful_set, annotations={"a": "x" * (262_144 - 1)})
    client = FakeClient(stateful_set, pod)
    reconciler = make_reconciler(client, recorder=recorder)

    for _ in range(2):
        with pytest.raises(InvalidError, match="annotations: Too long: may not be more than 262144 bytes"):
            await reconciler.reconcile(REQUEST)

    assert verbs(client).count(("create", "PodGroup")) == 1
    assert len(set(recorder.events)) == 1


FORMER = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("pod", "group", "next_group"),
    [
        pytest.param({}, f"pg-db-0-{FORMER}", "pg-db-0-uid-db-0", id="of an earlier pod of its name"),
        pytest.param({}, f"pg-copied-{FORMER}", "pg-db-0-uid-db-0", id="of the pod that was copied"),
        pytest.param(
            {}, f"pg-lws-{FORMER}-group-0", "pg-db-0-uid-db-0", id="of an owner that the pod has lost"
        ),
        pytest.param({}, f"pg-{'a' * 241}-0123abcd", "pg-db-0-uid-db-0", id="of a name that was too long"),
        pytest.param({}, "pg-db-0-mine", "", id="a name that a user chose"),
        pytest.param({}, f"mine-{FORMER}", "", id="another name that a user chose"),
        pytest.param({}, f"pg-{'a' * 300}-{FORMER}", "", id="longer than any name"),
        pytest.param(
            {"labels": {"spark-app-name": "a", "spark-app-selector": "spark-1"}},
            "spark-1",
            "spark-1",
            id="Spark",
        ),
        pytest.param(
            {"labels": {"spark-app-name": "a", "spark-app-selector": "My_App"}},
            "my-app-0e86b84b",
            "my-app-0e86b84b",
            id="Spark, and the label is no valid name",
        ),
    ],
)
async def test_a_pod_that_names_the_dead_group_of_an_earlier_pod_gets_a_new_group(
    pod: Any, group: str, next_group: str
) -> None:
    client = FakeClient(make_pod("db-0", annotations={ANNOTATION: group}, **pod))

    await make_reconciler(client).reconcile(REQUEST)

    assert [each.name for each in await client.list(PodGroup)] == ([next_group] if next_group else [])
    assert (await client.get(Pod, REQUEST)).annotations[ANNOTATION] == (next_group or group)


@pytest.mark.parametrize("lags", [False, True], ids=["", "and is not in the cache yet"])
async def test_a_pod_without_an_owner_stays_in_a_group_that_exists(lags: bool, recorder: Any) -> None:
    async def get(within: FakeClient, kind: Any, key: Any) -> Any:
        if lags and kind is PodGroup:
            raise NotFoundError("not found", code=404, reason="NotFound")
        return await within.get(kind, key)

    group = f"pg-another-{FORMER}"
    stored = PodGroup.from_dict({"metadata": {"name": group, "namespace": "team-a"}})
    client = FakeClient(make_pod("db-0", annotations={ANNOTATION: group}), stored)
    cached = interceptor.wrap(client, interceptor.Funcs(get=get))
    handler = Handler(cached, client, node_pool_key="pool", queue_key="queue")

    await PodReconciler(cached, recorder, pod_grouper(cached), handler).reconcile(REQUEST)

    assert client.writes == []


async def test_only_pods_of_selected_namespaces_are_grouped(stateful_set: Unstructured) -> None:
    namespace = Namespace.from_dict({"metadata": {"name": "team-a"}})
    client = FakeClient(stateful_set, make_pod("db-0", stateful_set), namespace)
    reconciler = make_reconciler(client, Settings(namespace_labels={"team": "a"}))
    await reconciler.reconcile(REQUEST)
    assert client.writes == []

    namespace.metadata.labels = {"team": "a"}
    await client.update(namespace)
    await reconciler.reconcile(REQUEST)

    assert verbs(client)[1:] == [("create", "PodGroup"), ("patch", "Pod")]


@pytest.mark.parametrize(
    ("kind", "name", "uid", "leaves"),
    [
        ("Pod", "db-0", FORMER, True),
        ("Pod", "db-0", "uid-db-0", False),
        ("Pod", "db-1", FORMER, False),
        ("Job", "db-0", FORMER, False),
    ],
)
async def test_a_pod_leaves_the_group_of_an_earlier_pod_that_is_not_deleted_yet(
    kind: str, name: str, uid: str, leaves: bool
) -> None:
    group = f"pg-db-0-{FORMER}"
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}
    metadata = {"name": group, "namespace": "team-a", "ownerReferences": [owner]}
    stored = PodGroup.from_dict({"metadata": metadata, "spec": {"minMember": 1}})
    client = FakeClient(stored, make_pod("db-0", annotations={ANNOTATION: group}))

    await make_reconciler(client).reconcile(REQUEST)

    assert bool(client.writes) is leaves


async def test_a_pod_of_a_recreated_native_gang_gets_a_new_group() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    gang = make_object("scheduling.k8s.io/v1beta1", "PodGroup", "g", spec=spec)
    named = {"schedulingGroup": {"podGroupName": "g"}}
    pod = make_pod("db-0", annotations={ANNOTATION: f"pg-g-{FORMER}"}, spec=named)
    client = FakeClient(gang, pod)

    await make_reconciler(client).reconcile(REQUEST)

    assert (await client.get(Pod, REQUEST)).annotations[ANNOTATION] == "pg-g-uid-g"


GANG_UID = "00000000-0000-4000-8000-00000000000a"
OF_GANG = f"pg-g-{GANG_UID}"


@pytest.fixture
def make_gang() -> Callable[[int], Unstructured]:
    def make(count: int) -> Unstructured:
        spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
        return make_object("scheduling.k8s.io/v1beta1", "PodGroup", "g", spec=spec, uid=GANG_UID)

    return make


@pytest.mark.parametrize("node", ["", "n"])
async def test_the_group_of_a_gang_follows_it_although_its_pods_have_no_owner(
    node: str, make_gang: Callable[[int], Unstructured]
) -> None:
    names = [f"p-{number}" for number in range(3)]
    named = {"schedulingGroup": {"podGroupName": "g"}, "nodeName": node}
    queue = {"kai.scheduler/queue": "q"}
    pods = [make_pod(name, labels={"index": name, **queue}, spec=named) for name in names]
    client = FakeClient(make_gang(3), *pods)
    reconciler = make_reconciler(client)

    async def reconcile_all(times: int) -> list[tuple[str, str]]:
        before = len(verbs(client))
        for name in names * times:
            await reconciler.reconcile(Request("team-a", name))
        return [each for each in verbs(client)[before:] if each[1] != "Pod"]

    assert await reconcile_all(3) == [("create", "PodGroup")]
    edited = await client.get(type(make_gang(2)), ("team-a", "g"))
    edited.unknown_fields["spec"]["schedulingPolicy"]["gang"]["minCount"] = 2
    await client.update(edited)

    assert await reconcile_all(2) == [("update", "PodGroup")]
    group = await client.get(PodGroup, ("team-a", OF_GANG))
    assert (
        group.spec.min_member,
        {(await client.get(Pod, each.key)).annotations[ANNOTATION] for each in pods},
    ) == (
        2,
        {OF_GANG},
    )
    assert "name: g\n" in group.annotations["kai.scheduler/top-owner-metadata"]
    assert group.spec.queue == "q"


@pytest.mark.parametrize(("node", "expected"), [("", OF_GANG), ("n", f"pg-db-0-{FORMER}")])
async def test_a_pod_that_runs_in_another_group_than_that_of_its_gang_stays_there(
    node: str, expected: str, make_gang: Callable[[int], Unstructured]
) -> None:
    own = f"pg-db-0-{FORMER}"
    named = {"schedulingGroup": {"podGroupName": "g"}, "nodeName": node}
    pod = make_pod("db-0", annotations={ANNOTATION: own}, spec=named, uid=FORMER)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": FORMER}
    stored = PodGroup.from_dict(
        {"metadata": {"name": own, "namespace": "team-a", "ownerReferences": [owner]}}
    )
    client = FakeClient(make_gang(3), pod, stored)

    await make_reconciler(client).reconcile(REQUEST)

    assert (await client.get(Pod, REQUEST)).annotations[ANNOTATION] == expected


@pytest.mark.parametrize("has_owner", [True, False])
async def test_a_pod_stays_in_the_group_of_its_gang_when_the_gang_may_not_be_read_any_more(
    has_owner: bool, stateful_set: Unstructured, make_gang: Callable[[int], Unstructured]
) -> None:
    named = {"schedulingGroup": {"podGroupName": "g"}}
    pod = make_pod("db-0", *([stateful_set] if has_owner else []), spec=named)
    client = FakeClient(make_gang(3), stateful_set, pod)
    await make_reconciler(client).reconcile(REQUEST)
    before = len(client.writes)

    result = await make_reconciler(refusing(client, "PodGroup.scheduling.k8s.io")).reconcile(REQUEST)

    assert (len(client.writes), result.requeue_after) == (before, timedelta(seconds=60))
    assert (await client.get(Pod, REQUEST)).annotations[ANNOTATION] == OF_GANG


@pytest.mark.parametrize("ending", ["pod", "owner", ""])
async def test_a_deleted_group_comes_back_unless_its_pods_are_being_deleted(ending: str) -> None:
    deleted = {"deletionTimestamp": "2001-01-01T00:00:00Z", "finalizers": ["example.com/f"]}
    owner = make_object("apps/v1", "StatefulSet", "db", **(deleted if ending == "owner" else {}))
    pod = make_pod("db-0", owner, annotations={ANNOTATION: GROUP}, **(deleted if ending == "pod" else {}))
    client = FakeClient(owner, pod)

    await make_reconciler(client).reconcile(REQUEST)

    assert verbs(client) == ([] if ending else [("create", "PodGroup")])


async def test_a_pod_that_is_being_deleted_leaves_the_deleted_group_of_other_owners(
    stateful_set: Unstructured,
) -> None:
    deleted = {"deletionTimestamp": "2001-01-01T00:00:00Z", "finalizers": ["example.com/f"]}
    client = FakeClient(
        stateful_set, make_pod("db-0", stateful_set, annotations={ANNOTATION: "pg-gone"}, **deleted)
    )
    await make_reconciler(client).reconcile(REQUEST)
    assert verbs(client) == [("create", "PodGroup"), ("patch", "Pod")]


async def test_an_event_about_a_long_error_is_as_long_as_the_server_accepts(
    stateful_set: Unstructured, recorder: Any
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise ForbiddenError("x" * 2000)

    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))
    refused = interceptor.wrap(client, interceptor.Funcs(create=refuse))
    with pytest.raises(ForbiddenError):
        await make_reconciler(refused, recorder=recorder).reconcile(REQUEST)
    assert recorder.events == [f"Warning PodGrouperWarning: {'x' * 1024}"]


async def test_our_own_mark_is_not_looked_at_again_but_what_came_with_it_is(
    stateful_set: Unstructured,
) -> None:
    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))

    async def meanwhile(within: FakeClient, obj: Any, patch: Any, **options: Any) -> Any:
        pod = await within.get(Pod, REQUEST)
        pod.metadata.labels = {"user": "u"}
        await within.update(pod)
        return await within.patch(obj, patch, **options)

    reconciler = make_reconciler(interceptor.wrap(client, interceptor.Funcs(patch=meanwhile)))
    await reconciler.reconcile(REQUEST)
    await reconciler.reconcile(REQUEST)

    assert (await client.get(PodGroup, ("team-a", GROUP))).labels["user"] == "u"


async def test_our_own_mark_is_not_written_again_while_the_cache_does_not_show_it(
    stateful_set: Unstructured,
) -> None:
    before = make_pod("db-0", stateful_set, resourceVersion="1")
    client = FakeClient(stateful_set, before)

    async def get(within: FakeClient, kind: Any, key: Any) -> Any:
        return before.deep_copy() if kind is Pod else await within.get(kind, key)

    reconciler = make_reconciler(interceptor.wrap(client, interceptor.Funcs(get=get)))
    for _ in range(3):
        await reconciler.reconcile(REQUEST)

    assert verbs(client) == [("create", "PodGroup"), ("patch", "Pod")]


async def test_a_pod_does_not_get_the_group_of_an_earlier_pod_of_its_name(recorder: Any) -> None:
    client = FakeClient(make_pod("db-0"))

    async def meanwhile(within: FakeClient, obj: Any, patch: Any, **options: Any) -> Any:
        await within.delete(obj)
        within.add(make_pod("db-0", uid="uid-of-the-next"))
        return await within.patch(obj, patch, **options)

    replaced = make_reconciler(
        interceptor.wrap(client, interceptor.Funcs(patch=meanwhile)), recorder=recorder
    )
    assert await replaced.reconcile(REQUEST) == Result()
    await make_reconciler(client, recorder=recorder).reconcile(REQUEST)

    assert (await client.get(Pod, REQUEST)).annotations == {"pod-group-name": "pg-db-0-uid-of-the-next"}
    assert recorder.events == []


async def test_an_own_mark_is_looked_at_again_when_an_owner_changed_before_it_was_written(
    cluster: OwnerServer, owners: OwnerCache, recorder: Any
) -> None:
    def stateful_set(user: str, version: str) -> Unstructured:
        labels = {"user": user}
        return make_object("apps/v1", "StatefulSet", "db", labels=labels, resourceVersion=version)

    await cluster.put(stateful_set("u", "1"))
    client = FakeClient(make_pod("db-0", stateful_set("u", "1")))

    async def meanwhile(within: FakeClient, obj: Any, patch: Any, **options: Any) -> Any:
        await cluster.put(stateful_set("v", "2"))
        return await within.patch(obj, patch, **options)

    seen = interceptor.wrap(client, interceptor.Funcs(patch=meanwhile))
    grouper = PodGrouper(owners, new_plugins_hub(owners, found=[]))
    handler = Handler(seen, seen, node_pool_key="pool", queue_key="kai.scheduler/queue")
    reconciler = PodReconciler(seen, recorder, grouper, handler)
    result = await reconciler.reconcile(REQUEST)

    assert result.requeue_after == timedelta(seconds=READ_TTL)
    assert await reconciler.reconcile(REQUEST) == Result()
    assert (await client.get(PodGroup, ("team-a", GROUP))).labels["user"] == "v"


@pytest.mark.parametrize("denied", [False, True], ids=["below a skipped owner", "below a denied owner"])
async def test_a_pod_that_owns_its_group_leaves_nothing_for_the_next_manager_to_write(denied: bool) -> None:
    """The group copies the pod's annotations, and the pod is annotated with the group's name only afterwards."""

    workflow = make_object("argoproj.io/v1alpha1", "Workflow", "w")
    client = FakeClient(workflow, make_pod("db-0", workflow))
    seen = refusing(client, "Workflow") if denied else client
    reconciler = make_reconciler(seen)
    for _ in range(2):  # for the new pod, and for the event of our own annotation
        await reconciler.reconcile(REQUEST)
    written = len(client.writes)

    await make_reconciler(seen).reconcile(REQUEST)

    assert verbs(client)[written:] == []


@pytest.fixture
async def grouped(stateful_set: Unstructured) -> tuple[FakeClient, PodReconciler]:
    """Return a client of a cluster with a grouped pod, and the reconciler that grouped it."""
    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))
    reconciler = make_reconciler(client)
    await reconciler.reconcile(REQUEST)
    return client, reconciler


async def test_of_a_pod_that_is_gone_nothing_is_kept(grouped: tuple[FakeClient, PodReconciler]) -> None:
    client, reconciler = grouped
    await client.delete(await client.get(Pod, REQUEST))

    await reconciler.reconcile(REQUEST)

    assert reconciler._own_writes == {}
    assert len(client.writes) == 3


async def test_a_mark_that_somebody_takes_away_comes_back(grouped: tuple[FakeClient, PodReconciler]) -> None:
    client, reconciler = grouped
    pod = await client.get(Pod, REQUEST)
    pod.metadata.annotations = None
    await client.update(pod)

    await reconciler.reconcile(REQUEST)

    assert (await client.get(Pod, REQUEST)).annotations == {"pod-group-name": GROUP}


@pytest.mark.parametrize(
    ("owned", "denied", "labels"),
    [
        (True, False, {"kind": "StatefulSet.apps", "grouper": "Default Grouper", "reason": "top"}),
        (True, True, {"kind": "Pod", "grouper": "Default Grouper", "reason": "denied"}),
        (False, False, {"kind": "Pod", "grouper": "Default Grouper", "reason": "none"}),
    ],
)
async def test_a_metric_says_which_owner_was_chosen_and_why(
    stateful_set: Unstructured, owned: bool, denied: bool, labels: dict[str, str]
) -> None:
    client = FakeClient(stateful_set, make_pod("db-0", *([stateful_set] if owned else [])))

    def grouped() -> float:
        return REGISTRY.get_sample_value("kubeflow_trainer_pods_grouped_total", labels) or 0.0

    before = grouped()
    reconciler = make_reconciler(refusing(client) if denied else client)
    for _ in range(2):
        await reconciler.reconcile(REQUEST)

    assert grouped() - before == 1


async def test_a_pod_whose_namespace_has_used_its_share_comes_again_later_without_an_event(
    stateful_set: Unstructured, recorder: Any
) -> None:
    async def get(within: FakeClient, wanted: Any, key: Any) -> Any:
        if wanted.gvk.kind == "StatefulSet":
            raise OverBudgetError("team-a", 7.5)
        return await within.get(wanted, key)

    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))
    before = REGISTRY.get_sample_value("kubeflow_trainer_pods_put_off_total") or 0

    result = await make_reconciler(
        interceptor.wrap(client, interceptor.Funcs(get=get)), recorder=recorder
    ).reconcile(REQUEST)

    assert result == Result(requeue_after=timedelta(seconds=7.5))
    assert (recorder.events, client.writes) == ([], [])
    assert REGISTRY.get_sample_value("kubeflow_trainer_pods_put_off_total") == before + 1


# An owner that may not be read.


async def test_a_pod_that_has_a_group_keeps_it_while_its_owner_may_not_be_read(
    stateful_set: Unstructured,
) -> None:
    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))
    await make_reconciler(client).reconcile(REQUEST)
    before = len(client.writes)

    await make_reconciler(refusing(client)).reconcile(REQUEST)

    assert (await client.get(Pod, REQUEST)).annotations == {"pod-group-name": GROUP}
    assert len(client.writes) == before


async def test_a_mark_by_another_writer_is_corrected_once_the_owner_may_be_read_again(
    stateful_set: Unstructured,
) -> None:
    """There is a retry after a minute, because a permission that is granted again causes no event of the pod."""
    client = FakeClient(stateful_set, make_pod("db-0", stateful_set))
    await make_reconciler(client).reconcile(REQUEST)
    client.add(PodGroup.from_dict({"metadata": {"name": "other", "namespace": "team-a"}}))
    mark = raw_patch(MERGE, b'{"metadata":{"annotations":{"pod-group-name":"other"}}}')
    await client.patch(await client.get(Pod, REQUEST), mark)

    result = await make_reconciler(refusing(client)).reconcile(REQUEST)

    assert result.requeue_after == timedelta(seconds=60)
    await make_reconciler(client).reconcile(REQUEST)
    assert (await client.get(Pod, REQUEST)).annotations == {"pod-group-name": GROUP}


async def test_a_mark_of_a_group_that_does_not_exist_is_replaced_though_an_owner_may_not_be_read(
    stateful_set: Unstructured,
) -> None:
    client = FakeClient(make_pod("db-0", stateful_set, annotations={"pod-group-name": "made-up"}))

    await make_reconciler(refusing(client)).reconcile(REQUEST)

    assert (await client.get(Pod, REQUEST)).annotations == {"pod-group-name": "pg-db-0-uid-db-0"}


@pytest.mark.parametrize(("node", "again"), [(None, timedelta(seconds=60)), ("n", None)])
async def test_a_pod_grouped_without_its_owner_is_looked_at_again_until_it_has_a_node(
    node: str | None, again: timedelta | None
) -> None:
    """The event of our own write comes before the retry and replaces it in the queue."""
    top = make_object("example.com/v1", "Denied", "top")
    below = make_object("apps/v1", "StatefulSet", "db", top)
    client = FakeClient(below, make_pod("db-0", below, spec={"nodeName": node}))
    reconciler = make_reconciler(refusing(client, "Denied"))

    for _ in range(3):
        assert (await reconciler.reconcile(REQUEST)).requeue_after == again


async def test_a_pod_that_its_gang_does_not_list_yet_is_looked_at_again() -> None:
    def gang(*pods: str) -> Unstructured:
        references = [{"namespace": "team-a", "name": pod} for pod in pods]
        groups = [{"name": "workers", "minReplicas": 1, "podReferences": references}]
        return make_object("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec={"podgroups": groups})

    top = make_object("grove.io/v1alpha1", "PodCliqueSet", "set")
    client = FakeClient(top, gang(), make_pod("db-0", top, labels={"grove.io/podgang": "gang"}))
    reconciler = make_reconciler(client)
    for _ in range(2):
        assert (await reconciler.reconcile(REQUEST)).requeue_after == timedelta(seconds=60)

    client.table(type(gang())).rows.clear()
    client.add(gang("db-0"))

    assert await reconciler.reconcile(REQUEST) == Result()
    assert (await client.get(Pod, REQUEST)).labels["kai.scheduler/subgroup-name"] == "workers"


async def test_a_group_made_without_an_owner_follows_what_may_be_read(stateful_set: Unstructured) -> None:
    client = FakeClient(make_pod("db-0", stateful_set))
    await make_reconciler(refusing(client)).reconcile(REQUEST)
    await client.patch(
        await client.get(Pod, REQUEST),
        raw_patch(MERGE, b'{"metadata":{"labels":{"priorityClassName":"build"}}}'),
    )

    await make_reconciler(refusing(client)).reconcile(REQUEST)

    assert (await client.get(PodGroup, ("team-a", "pg-db-0-uid-db-0"))).labels == {
        "priorityClassName": "build"
    }


async def test_a_pod_that_is_grouped_without_an_owner_has_one_event_that_names_it(
    stateful_set: Unstructured, recorder: Any
) -> None:
    client = FakeClient(make_pod("db-0", stateful_set))
    reconciler = make_reconciler(refusing(client), recorder=recorder, notices=recorder)

    for _ in range(3):
        await reconciler.reconcile(REQUEST)

    message = "not allowed to read the owner StatefulSet team-a/db: the pod is grouped without it"
    assert (recorder.names, recorder.events) == (["db-0"], [f"Warning OwnerNotReadable: {message}"])


# Pods that are too large.


async def test_a_pod_that_cannot_be_decoded_has_an_event_and_is_not_tried_again(recorder: Any) -> None:
    async def get(_within: FakeClient, wanted: Any, _key: Any) -> Any:
        raise UndecodableObjectError(wanted.gvk, REQUEST, "too many objects", uid="u")

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(get=get))

    with pytest.raises(TerminalError, match="too many objects"):
        await make_reconciler(client, recorder=recorder).reconcile(REQUEST)
    (event,) = recorder.events
    assert event.startswith("Warning PodGrouperWarning: ")
    assert (recorder.names, "too many objects" in event) == (["db-0"], True)


async def test_pods_that_take_long_to_decode_delay_their_own_namespace_alone(recorder: Any) -> None:
    wide = [make_pod(f"wide-{number}") for number in range(50)]
    other = make_pod("other", namespace="team-b")
    client = FakeClient(*wide, other)
    ticks = itertools.count(0, 0.1)
    reconciler = make_reconciler(client, recorder=recorder, cpu=lambda: next(ticks))

    results = [await reconciler.reconcile(Request("team-a", pod.name)) for pod in wide]

    put_off = [result.requeue_after for result in results if result.requeue_after is not None]
    assert len(put_off) >= 39
    assert put_off == sorted(set(put_off))
    assert await reconciler.reconcile(Request("team-b", "other")) == Result()
    assert (await client.get(Pod, ("team-b", "other"))).annotations
    assert recorder.events == []


async def test_pods_whose_group_has_very_many_segments_use_the_share_of_their_namespace(
    recorder: Any,
) -> None:
    class Groups(Handler):
        """Writes no groups: this would take most of the test's time."""

        def __init__(self) -> None:
            pass

        async def apply_to_cluster(self, *_: Any) -> bool:
            return False

    template = {"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}}
    specs = {"Worker": {"replicas": 40_000, "template": template}}
    job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec={"pytorchReplicaSpecs": specs})
    worker = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    pods = [make_pod(f"p-{number}", job, labels=worker) for number in range(12)]
    other = make_pod("other", namespace="team-b")
    client = FakeClient(job, *pods, other)
    reconciler = PodReconciler(client, recorder, pod_grouper(client), Groups())

    results = [await reconciler.reconcile(Request("team-a", pod.name)) for pod in pods]

    assert results[0] == Result()
    assert results[-1].requeue_after
    assert await reconciler.reconcile(Request("team-b", "other")) == Result()


async def test_ordinary_pods_are_never_put_off() -> None:
    pods = [make_pod(f"p-{number}") for number in range(300)]
    reconciler = make_reconciler(FakeClient(*pods))

    assert [await reconciler.reconcile(Request("team-a", pod.name)) for pod in pods] == [Result()] * 300
