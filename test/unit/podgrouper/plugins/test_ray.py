# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.machinery import names as valid
from controller_runtime.machinery.errors import NotFoundError

from pkg.podgrouper import Rules
from pkg.podgrouper.plugins import GroupingError
from testkit.grouping import group_of, make_object, make_pod, make_pod_group, reference, sub_group_of


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(
    ("worker_group", "pods"),
    [
        pytest.param({"replicas": 3, "minReplicas": 2}, 2, id="the minimum of an autoscaled group"),
        pytest.param({"replicas": 3}, 3, id="all replicas without a minimum"),
        pytest.param({"minReplicas": 2, "maxReplicas": 4}, 2, id="replicas are raised to the minimum"),
        pytest.param({"replicas": 9, "maxReplicas": 4}, 4, id="replicas are lowered to the maximum"),
        pytest.param({"replicas": 9, "minReplicas": 5, "maxReplicas": 4}, 4, id="the maximum wins"),
        pytest.param(
            {"replicas": 2, "minReplicas": 5, "maxReplicas": 3}, 3, id="the minimum exceeds the maximum"
        ),
        pytest.param(
            {"minReplicas": 5, "maxReplicas": 3}, 3, id="the minimum exceeds the maximum, no replicas"
        ),
        pytest.param({"replicas": 2, "numOfHosts": 4}, 8, id="all hosts of each replica"),
        pytest.param({"replicas": 2**31 - 1, "numOfHosts": 4}, 2**31 - 2, id="no more than a group can have"),
        pytest.param({"replicas": 3, "minReplicas": 3, "suspend": True}, 0, id="suspended"),
        pytest.param({"replicas": 3, "minReplicas": 3, "suspend": False}, 3, id="not suspended"),
        pytest.param({"replicas": 2, "numOfHosts": 0}, 0, id="no hosts"),
        pytest.param({"replicas": -1, "minReplicas": -2}, 0, id="negative"),
    ],
)
async def test_a_cluster_requires_the_head_and_the_workers_that_kube_ray_creates(
    worker_group: dict[str, Any], pods: int, rules: Rules
) -> None:
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "w", **worker_group}]}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)

    head = await group_of(make_pod("h", cluster, labels={"ray.io/group": "headgroup"}), cluster, rules=rules)
    worker = await group_of(make_pod("p", cluster, labels={"ray.io/group": "w"}), cluster, rules=rules)

    assert head.min_available == 1 + pods
    assert [each.name for each in head.sub_groups[1:]] == (["w"] if pods else [])
    if pods:
        assert [each.pods_references for each in worker.sub_groups[1:]] == [["p"]]


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize(
    ("worker_group", "pods"),
    [
        pytest.param({"replicas": 3}, 0, id="no minimum"),
        pytest.param({"replicas": 3, "minReplicas": 0, "maxReplicas": 9}, 0, id="the minimum is 0"),
        pytest.param({"replicas": 3, "minReplicas": -1}, 0, id="the minimum is negative"),
        pytest.param({"replicas": 3, "minReplicas": 2, "numOfHosts": 2}, 4, id="a minimum"),
        pytest.param({"replicas": 1, "minReplicas": 2}, 2, id="a minimum above the replicas"),
        pytest.param({"minReplicas": 5, "maxReplicas": 3}, 3, id="a minimum above the maximum"),
        pytest.param({"replicas": 0}, None, id="no replicas"),
    ],
)
async def test_a_cluster_with_an_autoscaler_requires_only_the_minimum(
    worker_group: dict[str, Any], pods: int | None, rules: Rules
) -> None:
    spec = {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"groupName": "w", **worker_group}]}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)

    metadata = await group_of(
        make_pod("h", cluster, labels={"ray.io/group": "headgroup"}), cluster, rules=rules
    )

    workers = [] if pods is None else [("w", pods)]
    assert [(each.name, each.min_available) for each in metadata.sub_groups[1:]] == workers
    assert metadata.min_available == 1 + (pods or 0)


@pytest.mark.parametrize("value", [False, None, "true", 1])
async def test_a_cluster_requires_the_replicas_unless_it_has_an_autoscaler(value: Any) -> None:
    spec = {"enableInTreeAutoscaling": value, "workerGroupSpecs": [{"groupName": "w", "replicas": 3}]}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)

    assert (await group_of(make_pod("p", cluster), cluster)).min_available == 4


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(
    "worker_group",
    [
        pytest.param({"replicas": 0}, id="a worker that is left of a group without replicas"),
        pytest.param({"replicas": 1, "suspend": True}, id="a worker that is left of a suspended group"),
        # KubeRay creates no pods before v1.6, and two since v1.6.
        pytest.param({"replicas": 1, "minReplicas": 2, "maxReplicas": 0}, id="the maximum is 0"),
        pytest.param({"groupName": "other", "replicas": 1}, id="a worker of a group that was removed"),
    ],
)
async def test_a_worker_that_is_in_no_subgroup_has_a_group_of_its_own_until_its_worker_group_has_replicas(
    worker_group: dict[str, Any], rules: Rules
) -> None:
    spec = {"workerGroupSpecs": [{"groupName": "w", **worker_group}]}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)
    waiting = make_pod("p", cluster, labels={"ray.io/group": "w"})
    running = make_pod(
        "r",
        cluster,
        labels={"ray.io/group": "w"},
        annotations={"pod-group-name": "pg-rc-uid-rc"},
        spec={"nodeName": "n"},
    )

    alone = await group_of(waiting, cluster, rules=rules)
    assert (alone.name, alone.min_available, alone.sub_groups) == ("pg-rc-uid-rc-w", 1, [])
    other = make_pod("o", cluster, labels={"ray.io/group": "GPU_workers"})
    assert valid.is_dns1123_subdomain((await group_of(other, cluster, rules=rules)).name) == []
    assert (await group_of(running, cluster, rules=rules)).name == "pg-rc-uid-rc"

    waiting.metadata.annotations = {"pod-group-name": alone.name}
    spec["workerGroupSpecs"] = [{"groupName": "w", "replicas": 2}]
    cluster.set_unknown_fields({"spec": spec})
    together = await group_of(waiting, cluster, rules=rules)
    assert (together.name, together.min_available) == ("pg-rc-uid-rc", 3)
    assert together.sub_groups[1].pods_references == ["p"]


async def test_a_suspended_cluster_keeps_its_group_for_the_pods_that_it_has_when_it_resumes() -> None:
    spec = {"suspend": True, "workerGroupSpecs": [{"groupName": "w", "replicas": 2}]}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)

    metadata = await group_of(make_pod("p", cluster, labels={"ray.io/group": "w"}), cluster)

    assert [(each.name, each.min_available) for each in metadata.sub_groups] == [("headgroup", 1), ("w", 2)]


@pytest.fixture
def ray_job() -> list[Any]:
    """Return a RayJob, its RayCluster and its submitter's Job. The cluster has a Job that cleans up Redis."""
    job = make_object("ray.io/v1", "RayJob", "rj", labels={"kai.scheduler/queue": "q"})
    job.set_unknown_fields({"status": {"rayClusterName": "rc"}})
    spec = {"workerGroupSpecs": [{"groupName": "w", "replicas": 1}]}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", job, spec=spec)
    submitter = make_object("batch/v1", "Job", "rj", job)
    return [job, cluster, submitter, make_object("batch/v1", "Job", "rc-redis-cleanup", cluster)]


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(
    ("owner", "labels", "name", "pods"),
    [
        pytest.param(1, {"ray.io/group": "w"}, "pg-rj-uid-rj", 2, id="a worker"),
        pytest.param(2, {}, "pg-rj-uid-rj-rj", 1, id="the submitter"),
        pytest.param(3, {"ray.io/group": "headgroup"}, "pg-rj-uid-rj-rc-redis-cleanup", 1, id="the clean-up"),
    ],
)
async def test_a_pod_of_a_job_beside_the_cluster_has_a_group_of_its_own(
    owner: int, labels: dict[str, str], name: str, pods: int, rules: Rules, ray_job: list[Any]
) -> None:
    metadata = await group_of(make_pod("p", ray_job[owner], labels=labels), *ray_job, rules=rules)

    assert (metadata.name, metadata.min_available, metadata.queue) == (name, pods, "q")
    assert [each.name for each in metadata.sub_groups] == (["headgroup", "w"] if pods == 2 else [])


async def test_a_suspended_job_keeps_its_group_and_has_none_once_its_cluster_is_deleted(
    ray_job: list[Any],
) -> None:
    job, cluster, *_ = ray_job
    worker, status = make_pod("p", cluster, labels={"ray.io/group": "w"}), {"rayClusterName": "rc"}
    running = await group_of(worker, *ray_job)

    job.set_unknown_fields({"spec": {"suspend": True}, "status": status})
    assert await group_of(worker, *ray_job) == running

    job.set_unknown_fields({"spec": {"suspend": True}, "status": {"jobDeploymentStatus": "Suspended"}})
    with pytest.raises(GroupingError, match="failed to extract rayClusterName for"):
        await group_of(worker, *ray_job)


@pytest.mark.parametrize(("node", "name"), [("n", "pg-rj-uid-rj"), ("", "pg-rj-uid-rj-rj")])
async def test_a_submitter_that_runs_in_the_clusters_group_stays_there(
    node: str, name: str, ray_job: list[Any]
) -> None:
    annotated = {"pod-group-name": "pg-rj-uid-rj"}
    pod = make_pod("p", ray_job[2], annotations=annotated, spec={"nodeName": node})

    assert (await group_of(pod, *ray_job)).name == name


@pytest.fixture
def ray_service() -> Any:
    """Return a function that makes a RayService, its clusters ``a`` and ``b``, and a pod of one of them."""

    def make(active: str, pending: str, **groups: list[str]) -> dict[str, Any]:
        service = make_object("ray.io/v1", "RayService", "rs")
        named = {"activeServiceStatus": active, "pendingServiceStatus": pending}
        status = {field: {"rayClusterName": name} for field, name in named.items() if name}
        service.set_unknown_fields({"status": status})
        clusters = {
            name: make_object(
                "ray.io/v1",
                "RayCluster",
                name,
                service,
                spec={"workerGroupSpecs": [{"groupName": each, "replicas": 2} for each in workers]},
            )
            for name, workers in groups.items()
        }
        return {"service": service, **clusters}

    return make


OWN, OF_B = "pg-rs-uid-rs", "pg-rs-uid-rs-b"


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(
    ("active", "pending", "workers", "cluster", "runs_in", "exists", "expected"),
    [
        pytest.param("a", "", (["w"], ["w"]), "a", "", "", (OWN, ["w"]), id="before the upgrade"),
        pytest.param("", "a", (["w"], ["w"]), "a", "", "", (OWN, ["w"]), id="the first cluster"),
        pytest.param("a", "b", (["w"], ["w"]), "b", "", "", (OWN, ["w"]), id="the same groups"),
        pytest.param("a", "b", (["w", "x"], ["w"]), "b", "", "", (OWN, ["w", "x"]), id="a group is removed"),
        pytest.param("a", "b", (["w"], ["new"]), "b", "", "", (OF_B, ["new"]), id="a renamed group"),
        pytest.param("a", "b", (["w"], ["w", "x"]), "b", "", "", (OF_B, ["w", "x"]), id="another group"),
        pytest.param("a", "b", (["w"], ["new"]), "a", OWN, "", (OWN, ["w"]), id="the old cluster meanwhile"),
        pytest.param(
            "b", "", (["w"], ["new"]), "b", OF_B, OF_B, (OF_B, ["new"]), id="the new one afterwards"
        ),
        pytest.param("b", "", (["w"], ["new"]), "b", "", OF_B, (OF_B, ["new"]), id="its next pod"),
        pytest.param("b", "", (["w"], ["new"]), "a", OWN, OF_B, (OWN, ["w"]), id="the old one afterwards"),
        pytest.param("b", "", (["w"], ["w", "x"]), "a", OWN, OF_B, (OWN, ["w"]), id="the old one with fewer"),
    ],
)
async def test_an_upgrade_of_a_service_groups_the_clusters_separately_if_their_worker_groups_differ(
    active: str,
    pending: str,
    workers: tuple[list[str], list[str]],
    cluster: str,
    runs_in: str,
    exists: str,
    expected: tuple[str, list[str]],
    rules: Rules,
    ray_service: Any,
) -> None:
    made = ray_service(active, pending, a=workers[0], b=workers[1])
    own = workers["ab".index(cluster)][-1]
    pod = make_pod(
        "p",
        made[cluster],
        labels={"ray.io/group": own},
        annotations={"pod-group-name": runs_in} if runs_in else {},
        spec={"nodeName": "n"} if runs_in else {},
    )
    groups = [make_pod_group(exists, subGroups=[{"name": "headgroup", "minMember": 1}])] if exists else []

    metadata = await group_of(pod, *made.values(), *groups, rules=rules)

    assert (metadata.name, [each.name for each in metadata.sub_groups[1:]]) == expected
    assert metadata.min_available == 1 + 2 * len(expected[1])
    assert sub_group_of(metadata) == own


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
async def test_a_service_whose_active_cluster_was_deleted_starts_with_its_next_cluster(
    rules: Rules, ray_service: Any
) -> None:
    """KubeRay reports the deleted cluster as the active one until the pods of the next one run."""
    made = ray_service("a", "b", b=["w"])
    worker = make_pod("p", made["b"], labels={"ray.io/group": "w"})

    metadata = await group_of(worker, *made.values(), rules=rules)

    assert (metadata.name, metadata.min_available) == (OWN, 3)
    assert sub_group_of(metadata) == "w"
    with pytest.raises(NotFoundError, match='"b" not found'):
        await group_of(make_pod("p", made["service"]), made["service"], rules=rules)


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
async def test_each_run_of_a_cron_job_has_the_groups_of_its_ray_job(rules: Rules, ray_job: list[Any]) -> None:
    cron = make_object("ray.io/v1", "RayCronJob", "cron", labels={"kai.scheduler/queue": "nightly"})
    job, cluster, submitter, _ = ray_job
    job.metadata.labels = None
    job.metadata.owner_references = [reference(cron)]

    worker = await group_of(make_pod("p", cluster, labels={"ray.io/group": "w"}), cron, *ray_job, rules=rules)
    submitted = await group_of(make_pod("s", submitter), cron, *ray_job, rules=rules)

    assert (worker.name, worker.queue, worker.min_available) == ("pg-rj-uid-rj", "nightly", 2)
    assert [each.name for each in worker.sub_groups] == ["headgroup", "w"]
    assert (submitted.name, submitted.queue, submitted.sub_groups) == ("pg-rj-uid-rj-rj", "nightly", [])


@pytest.mark.parametrize("name", ["smallGroup", "gpu_workers", "gpu.a100", "w" * 63, "W" * 63])
async def test_a_subgroup_of_any_worker_group_has_a_name_that_the_newer_schema_permits(name: str) -> None:
    """KubeRay permits every value of a label, and its chart makes names such as smallGroup."""
    worker = {"groupName": name, "replicas": 1}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec={"workerGroupSpecs": [worker]})
    pod = make_pod("p", cluster, labels={"ray.io/group": name})

    older, newer = [await group_of(pod, cluster, rules=rules) for rules in (Rules.V0_13, Rules.V0_15)]

    assert older.sub_groups[1].name == name
    assert not valid.is_dns1123_label(newer.sub_groups[1].name)
    assert (newer.sub_groups[1].name == name) is (not valid.is_dns1123_label(name))
    assert newer.sub_groups[1].pods_references == ["p"]


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(
    ("worker_groups", "is_elastic", "parts", "own"),
    [
        pytest.param([("w", 3), ("w", 1)], False, {"w": 1}, "w", id="the same name"),
        pytest.param([("w", 1), ("x", 2), ("w", 3)], False, {"w": 1, "x": 2}, "w", id="not adjacent"),
        pytest.param([("w", 3), ("w", 0)], False, {}, None, id="one of them has no pods"),
        pytest.param([("w", 0), ("w", 3)], False, {}, None, id="the first has no pods"),
        pytest.param([("w", 3), ("w", 1)], True, {"w": 0}, "w", id="with an autoscaler"),
        pytest.param([("", 2)], False, {"worker-group-0": 2}, "worker-group-0", id="an empty name"),
        pytest.param([("", 0)], False, {}, None, id="an empty name, and no pods"),
        pytest.param([("", 2), ("", 3)], False, {"worker-group-0": 2}, "worker-group-0", id="empty names"),
        pytest.param([("headgroup", 3)], False, {"headgroup": 3}, "headgroup", id="the name of the head"),
        pytest.param([("headgroup", 0)], False, {}, "headgroup", id="the name of the head, and no pods"),
    ],
)
async def test_worker_groups_whose_pods_have_the_same_label_are_one_subgroup_of_the_pods_that_always_exist(
    worker_groups: list[tuple[str, int]],
    is_elastic: bool,
    parts: dict[str, int],
    own: str | None,
    rules: Rules,
) -> None:
    """KubeRay counts the pods of a worker group by their label, and deletes those that exceed its number."""
    specs = [{"groupName": name, "replicas": replicas} for name, replicas in worker_groups]
    spec = {"enableInTreeAutoscaling": is_elastic, "workerGroupSpecs": specs}
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)
    label = worker_groups[-1][0]

    metadata = await group_of(
        make_pod("h", cluster, labels={"ray.io/group": "headgroup"}), cluster, rules=rules
    )
    of_worker = await group_of(make_pod("p", cluster, labels={"ray.io/group": label}), cluster, rules=rules)

    numbers = {"headgroup": 1, **parts}
    assert [(each.name, each.min_available) for each in metadata.sub_groups] == [*numbers.items()]
    assert metadata.min_available == sum(numbers.values())
    part = of_worker.find_sub_group_for_pod("team-a", "p")
    assert (part and part.name) == own
    assert (of_worker.name == metadata.name) is (own is not None)
