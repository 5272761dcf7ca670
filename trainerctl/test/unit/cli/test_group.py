# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl group``: the manager's own answer, and its causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.machinery.crd import custom_resource_definition
from pkg.apis.kai.v2alpha2 import PodGroup

import trainerctl

Data = dict[str, Any]


def obj(api_version: str, kind: str, name: str, *owners: Data, **more: Any) -> Data:
    metadata: Data = {"name": name, "namespace": "team-a", "uid": f"uid-{name}"}
    references = [
        {
            "apiVersion": o["apiVersion"],
            "kind": o["kind"],
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
        }
        for o in owners
    ]
    metadata |= {"ownerReferences": references} if references else {}
    metadata |= {name: more.pop(name) for name in ("labels", "annotations") if name in more}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def pod(name: str, *owners: Data, **more: Any) -> Data:
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "a"}]}
    return obj("v1", "Pod", name, *owners, spec={**spec, **more.pop("spec", {})}, **more)


TRAIN_JOB = obj(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    "tj",
    labels={"kai.scheduler/queue": "q", "priorityClassName": "gold"},
)
JOB_SET = obj(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    "js",
    TRAIN_JOB,
    spec={"replicatedJobs": [{"name": "node", "replicas": 2, "template": {"spec": {"parallelism": 3}}}]},
)
JOB = obj("batch/v1", "Job", "j", JOB_SET)
POD = pod("p", JOB, labels={"jobset.sigs.k8s.io/replicatedjob-name": "node"})
GOLD = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "gold"},
    "value": 1,
}


def run(tmp_path: Path, *objects: Data, flags: tuple[str, ...] = ()) -> int:
    path = tmp_path / "in.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return trainerctl.main(["group", "-f", str(path), *flags])


def group(tmp_path: Path, capsys: pytest.CaptureFixture[str], *objects: Data, **flags: str) -> Any:
    given = tuple(f"--{name}={value}" for name, value in flags.items())
    assert run(tmp_path, *objects, flags=("-o", "json", *given)) == 0
    (answer,) = json.loads(capsys.readouterr().out)["pods"]
    return answer


def test_every_value_names_what_it_is_due_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = group(tmp_path, capsys, TRAIN_JOB, JOB_SET, JOB, POD, GOLD)

    assert [f"{owner['kind']} {owner['name']}" for owner in answer["owners"]] == [
        "Job j",
        "JobSet js",
        "TrainJob tj",
    ]
    assert answer["grouper"] == "SkipTopOwner Grouper"
    assert answer["group"]["name"] == "pg-js-uid-js-node"
    assert (answer["group"]["queue"], answer["group"]["minMember"]) == ("q", 6)
    due = answer["dueTo"]
    assert due["queue"] == ["TrainJob tj: label kai.scheduler/queue"]
    assert due["name"] == ["JobSet js: uid", "Pod p: label jobset.sigs.k8s.io/replicatedjob-name"]
    assert "JobSet js: spec.replicatedJobs[0].replicas" in due["minMember"]
    assert "JobSet js: spec.replicatedJobs[0].template.spec.parallelism" in due["minMember"]
    assert "missing" not in answer


def test_a_priority_class_that_is_not_given_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = {**POD, "spec": {**POD["spec"], "priorityClassName": "gold"}}

    without = group(tmp_path, capsys, TRAIN_JOB, JOB_SET, JOB, labelled)
    given = group(tmp_path, capsys, TRAIN_JOB, JOB_SET, JOB, labelled, GOLD)

    assert (without["group"]["priorityClassName"], without["missing"]) == ("train", ["PriorityClass gold"])
    assert given["group"]["priorityClassName"] == "gold"
    assert "PriorityClass gold: that it exists" in given["dueTo"]["priorityClassName"]


def test_a_group_that_is_there_is_what_a_legacy_name_is_due_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = obj("batch/v1", "Job", "j", spec={"parallelism": 2})
    legacy = obj("scheduling.run.ai/v2alpha2", "PodGroup", "pg-p-uid-j", spec={"minMember": 1})

    answer = group(tmp_path, capsys, job, pod("p", job), legacy)

    assert answer["group"]["name"] == "pg-p-uid-j"
    assert (
        "PodGroup pg-p-uid-j: that it exists" not in answer["dueTo"]["name"]
    )  # without the group, it would have the same name
    assert answer["dueTo"]["name"] == ["Job j: uid"]


def test_what_others_have_may_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
    }
    job = obj("kubeflow.org/v1", "MPIJob", "m", spec=spec)
    labels = {"training.kubeflow.org/job-name": "m", "training.kubeflow.org/job-role": "launcher"}
    worker, launcher = pod("w", job), pod("l", labels=labels, spec={"schedulerName": "other"})

    assert run(tmp_path, job, worker, launcher, flags=("-o", "json")) == 0

    answer = json.loads(capsys.readouterr().out)["pods"][0]
    assert answer["group"]["minMember"] == 3
    assert "Pod l: that it exists" in answer["dueTo"]["minMember"]
    assert "MPIJob m: spec.mpiReplicaSpecs.Worker.replicas" in answer["dueTo"]["minMember"]


def test_subgroups_and_the_pods_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lws = obj(
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec={"leaderWorkerTemplate": {"size": 3}}
    )
    worker = pod("p", lws, labels={"leaderworkerset.sigs.k8s.io/worker-index": "1"})

    answer = group(tmp_path, capsys, lws, worker)

    assert answer["group"]["subGroups"] == [
        {"name": "leader", "minMember": 1},
        {"name": "workers", "minMember": 2},
    ]
    assert answer["dueTo"]["subGroups"] == ["LeaderWorkerSet l: spec.leaderWorkerTemplate.size"]
    assert answer["group"]["subGroup"] == "workers"


def test_the_text_has_a_line_for_each_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stateful_set = obj("apps/v1", "StatefulSet", "db", labels={"kai.scheduler/queue": "q"})

    assert run(tmp_path, stateful_set, pod("db-0", stateful_set)) == 0

    assert capsys.readouterr().out.splitlines() == [
        "Pod team-a/db-0",
        "  owners                       StatefulSet db",
        "  grouper                      Default Grouper",
        "  name                         pg-db-uid-db  ← StatefulSet db: uid",
        "  owner                        StatefulSet db",
        "  queue                        q  ← StatefulSet db: label kai.scheduler/queue",
        "  priorityClassName            train  ← by default",
        "  minMember                    1  ← by default",
        "  labels[kai.scheduler/queue]  q  ← StatefulSet db: label kai.scheduler/queue",
        "",
    ]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (pod("p", spec={"schedulerName": "other"}), "its scheduler is other"),
        (
            pod("p", annotations={"pod-group-name": "mine"}),
            "it has no owner and is already assigned to the group mine",
        ),
    ],
)
def test_pods_that_are_left_alone(
    left: Data, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert group(tmp_path, capsys, left) == {"pod": "team-a/p", "leftAlone": why}


SKIPPED = {"annotations": {"kai.scheduler/skip-podgrouper": "true"}}
SKIPPED_JOB = obj("batch/v1", "Job", "j", **SKIPPED)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        pytest.param([pod("p", **SKIPPED)], "its annotation kai.scheduler/skip-podgrouper is true", id="pod"),
        pytest.param(
            [SKIPPED_JOB, pod("p", SKIPPED_JOB)],
            "the annotation kai.scheduler/skip-podgrouper of Job j is true",
            id="owner",
        ),
    ],
)
def test_rules_that_know_the_annotation_to_skip_pods_leave_them_alone(
    objects: list[Data], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert group(tmp_path, capsys, *objects)["group"]["name"].startswith("pg-")
    left = group(tmp_path, capsys, *objects, rules="v0.17")
    assert left == {"pod": "team-a/p", "leftAlone": why}


def selecting(tmp_path: Path, **pod_grouper: Any) -> str:
    """Write a Configuration of the manager, and return its path."""
    path = tmp_path / "config.yaml"
    header = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    path.write_text(yaml.safe_dump({**header, "podGrouper": pod_grouper}))
    return str(path)


def test_pods_that_the_managers_selectors_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = selecting(tmp_path, podLabelSelector={"team": "blue"}, namespaceLabelSelector={"kai": "enabled"})
    blue = pod("p", labels={"team": "blue"})
    namespace = {"apiVersion": "v1", "kind": "Namespace"}

    assert group(tmp_path, capsys, pod("p"), config=config)["leftAlone"] == (
        "podGrouper.podLabelSelector does not select it"
    )
    unlabelled = {**namespace, "metadata": {"name": "team-a"}}
    assert group(tmp_path, capsys, blue, unlabelled, config=config)["leftAlone"] == (
        "podGrouper.namespaceLabelSelector does not select the namespace team-a"
    )
    labelled = {**namespace, "metadata": {"name": "team-a", "labels": {"kai": "enabled"}}}
    assert "missing" not in group(tmp_path, capsys, blue, labelled, config=config)
    assert group(tmp_path, capsys, blue, config=config)["missing"] == ["Namespace team-a"]


def test_a_pod_without_a_group_fails_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, TRAIN_JOB, JOB_SET, JOB, pod("p", JOB), pod("q", TRAIN_JOB, JOB)) == 1

    shown = capsys.readouterr()
    missing = 'pod team-a/p missing required label "jobset.sigs.k8s.io/replicatedjob-name"'
    assert f"trainerctl: Pod team-a/p: {missing}" in shown.err.replace("\n", "")
    assert "pg-q-uid-q" in shown.out


def test_the_managers_settings_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = selecting(tmp_path, queueLabelKey="team", schedulerName="mine")
    mine = pod("p", labels={"team": "blue"}, spec={"schedulerName": "mine"})

    answer = group(tmp_path, capsys, mine, config=config)

    assert answer["group"]["queue"] == "blue"
    Path(config).write_text("kind: Other")
    assert run(tmp_path, mine, flags=(f"--config={config}",)) == 2


@pytest.mark.parametrize(
    ("objects", "shown"),
    [
        (
            [TRAIN_JOB],
            "cannot make the pods of TrainJob tj; give pods with their owners, or for TrainJobs the output of",
        ),
        ([POD, POD], "duplicate of"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {}}], "metadata.name: a name is expected"),
        ([pod("p", spec={"containers": {}})], "spec.containers: a list is expected"),
        ([{**GOLD, "value": "much"}, POD], "value: a whole number is expected"),
        (
            [{"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "labels": [1]}}, POD],
            "metadata.labels: a map",
        ),
    ],
)
def test_input_that_makes_no_sense(
    objects: list[Data], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *objects) == 2
    assert shown in capsys.readouterr().err.replace("\n", " ")


def test_the_rules_are_those_of_the_crd_in_the_files_or_of_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "1"}
    objects = (TRAIN_JOB, JOB_SET, JOB, pod("p", JOB, labels=labels))

    oldest = group(tmp_path, capsys, *objects)["group"]
    by_crd = group(tmp_path, capsys, *objects, custom_resource_definition(PodGroup))["group"]
    by_flag = group(tmp_path, capsys, *objects, custom_resource_definition(PodGroup), rules="v0.13")["group"]

    assert oldest == by_flag
    assert (oldest["name"], oldest["minMember"]) == ("pg-js-uid-js-node", 6)
    assert (by_crd["name"], by_crd["minSubGroup"], by_crd["subGroup"]) == (
        "pg-js-uid-js",
        1,
        "node-replica-1",
    )
    assert by_crd["subGroups"][0] == {"name": "node", "minSubGroup": 2}


def test_objects_without_a_namespace_are_found_by_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = obj("batch/v1", "Job", "j", spec={})
    objects = [pod("alone"), job, pod("owned", job)]
    for each in objects:
        del each["metadata"]["namespace"]

    file = tmp_path / "in.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    assert trainerctl.main(["group", "-f", str(file), "-n", "team-b", "-o", "json"]) == 0
    pods = json.loads(capsys.readouterr().out)["pods"]
    assert [each["pod"] for each in pods] == ["team-b/alone", "team-b/owned"]
    assert [[owner["name"] for owner in each["owners"]] for each in pods] == [["alone"], ["j"]]


@pytest.mark.parametrize(
    "spec", ["x", ["x"], {"versions": ["x"]}, {"versions": [{"name": "v2alpha2", "schema": "x"}]}]
)
def test_a_malformed_crd_of_the_pod_group_decides_nothing(
    spec: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.run.ai"},
        "spec": spec,
    }
    file = tmp_path / "in.yaml"
    file.write_text(yaml.safe_dump_all([crd, pod("p")]))
    assert trainerctl.main(["group", "-f", str(file)]) == 0
    assert "minMember" in capsys.readouterr().out


def test_an_owner_that_kubectl_printed_in_another_version_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = {**TRAIN_JOB, "apiVersion": "trainer.kubeflow.org/v2"}

    answer = group(tmp_path, capsys, printed, JOB_SET, JOB, POD, GOLD)

    assert (answer["grouper"], answer["group"]["queue"]) == ("SkipTopOwner Grouper", "q")
    stranger = {**printed, "metadata": {**printed["metadata"], "uid": "another"}}
    assert run(tmp_path, stranger, JOB_SET, JOB, POD, GOLD) == 1


TEMPLATE = {"spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "a"}]}}
SEGMENTS = {"replicas": 2, "template": TEMPLATE}
WORKLOADS = [
    (obj("batch/v1", "Job", "w", spec={"template": TEMPLATE}), {"w-0": ""}),
    (obj("apps/v1", "Deployment", "w", spec={"template": TEMPLATE}), {"w-0": ""}),
    (
        obj(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "w",
            spec={
                "replicatedJobs": [
                    {"name": "node", "template": {"spec": {"template": TEMPLATE}}},
                    {"name": "idle", "replicas": 0, "template": {"spec": {"template": TEMPLATE}}},
                ]
            },
        ),
        {"w-node-0-0": "node-replica-0"},
    ),
    (
        obj(
            "ray.io/v1",
            "RayCluster",
            "w",
            spec={
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "template": TEMPLATE}],
            },
        ),
        {"w-head": "headgroup", "w-g-0": "g"},
    ),
    (
        obj(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "w",
            spec={"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
        ),
        {"w-0-0": "leader", "w-0-1": "workers"},
    ),
    (
        obj(
            "kubeflow.org/v1",
            "PyTorchJob",
            "w",
            spec={"pytorchReplicaSpecs": {"Master": {**SEGMENTS, "replicas": 1}, "Worker": SEGMENTS}},
        ),
        {"w-master-0": "master", "w-worker-0": "worker"},
    ),
    (
        obj(
            "kubeflow.org/v1",
            "XGBoostJob",
            "w",
            spec={"xgbReplicaSpecs": {"Master": {**SEGMENTS, "replicas": 1}, "Worker": SEGMENTS}},
        ),
        {"w-master-0": "", "w-worker-0": ""},
    ),
    (
        obj(
            "ray.io/v1",
            "RayCluster",
            "w",
            spec={
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [
                    {"groupName": "idle", "replicas": 0, "template": TEMPLATE},
                    {"groupName": "off", "replicas": 1, "suspend": True, "template": TEMPLATE},
                    {"groupName": "g", "minReplicas": 1, "template": TEMPLATE},
                ],
            },
        ),
        {"w-head": "headgroup", "w-g-0": "g"},
    ),
    (
        obj(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "w",
            spec={"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}},
        ),
        {"w-0-0": "leader"},
    ),
    (
        obj(
            "kubeflow.org/v1",
            "TFJob",
            "w",
            spec={"tfReplicaSpecs": {"PS": {**SEGMENTS, "replicas": 0}, "Worker": SEGMENTS}},
        ),
        {"w-worker-0": ""},
    ),
    (
        obj(
            "kubeflow.org/v2beta1",
            "MPIJob",
            "w",
            spec={"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"template": TEMPLATE}}},
        ),
        {"w-launcher-0": ""},
    ),
]


@pytest.mark.parametrize(("workload", "pods"), WORKLOADS, ids=lambda each: each.get("kind", ""))
def test_the_pods_of_a_workload_that_is_given_alone_are_made(
    workload: Data, pods: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_uid = {name: value for name, value in workload["metadata"].items() if name != "uid"}
    workload = {**workload, "metadata": without_uid}

    assert run(tmp_path, workload, flags=("-o", "json", "--rules=v0.17")) == 0

    shown = json.loads(capsys.readouterr().out)["pods"]
    assert {each["pod"].removeprefix("team-a/"): each["group"].get("subGroup", "") for each in shown} == pods
    assert all(each["group"]["name"].startswith("pg-w-") for each in shown)


@pytest.mark.parametrize(
    ("workload", "pods"),
    [
        (
            obj(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                "w",
                spec={
                    "replicatedJobs": [
                        {"name": name, **more, "template": {"spec": {**numbers, "template": TEMPLATE}}}
                        for name, more, numbers in (
                            ("negative", {"replicas": -2}, {}),
                            ("idle", {}, {"parallelism": 0}),
                            ("done", {}, {"completions": 0}),
                            ("node", {}, {"parallelism": 3, "completions": 2}),
                        )
                    ]
                },
            ),
            ["w-node-0-0"],
        ),
        (
            obj(
                "ray.io/v1",
                "RayCluster",
                "w",
                spec={
                    "headGroupSpec": {"template": TEMPLATE},
                    "workerGroupSpecs": [
                        {"groupName": "negative", "replicas": -1, "template": TEMPLATE},
                        {"groupName": "none", "replicas": 1, "maxReplicas": 0, "template": TEMPLATE},
                        {"groupName": "hostless", "replicas": 1, "numOfHosts": 0, "template": TEMPLATE},
                        {"groupName": "g", "replicas": 0, "minReplicas": 1, "template": TEMPLATE},
                    ],
                },
            ),
            ["w-head", "w-g-0"],
        ),
        (
            obj(
                "kubeflow.org/v1",
                "TFJob",
                "w",
                spec={"tfReplicaSpecs": {"PS": {**SEGMENTS, "replicas": -1}, "Worker": SEGMENTS}},
            ),
            ["w-worker-0"],
        ),
    ],
    ids=["JobSet", "RayCluster", "TFJob"],
)
def test_only_pods_that_an_operator_creates_are_made(
    workload: Data, pods: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, workload, flags=("-o", "json", "--rules=v0.17")) == 0

    shown = json.loads(capsys.readouterr().out)["pods"]
    assert [each["pod"].removeprefix("team-a/") for each in shown] == pods


@pytest.mark.parametrize(("spec", "needed"), [({}, 1), ({"completions": 5}, 1), ({"parallelism": 2}, 2)])
def test_a_job_has_the_numbers_that_the_api_server_sets(
    spec: Data, needed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    annotations = {"kai.scheduler/batch-min-member": "3"}
    job = obj("batch/v1", "Job", "w", spec={**spec, "template": TEMPLATE}, annotations=annotations)

    assert group(tmp_path, capsys, job, rules="v0.17")["group"]["minMember"] == needed
    assert group(tmp_path, capsys, job, pod("p", job), rules="v0.17")["group"]["minMember"] == needed


def test_fields_without_a_value_are_dropped_as_the_api_server_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A template of a chart often writes a field without its value."""
    worker_group = {"groupName": "w", "replicas": 2, "minReplicas": None, "numOfHosts": None, "suspend": None}
    spec = {"headGroupSpec": None, "enableInTreeAutoscaling": None, "workerGroupSpecs": [worker_group]}
    cluster = obj("ray.io/v1", "RayCluster", "rc", spec=spec)
    lws = obj(
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec={"leaderWorkerTemplate": {"size": None}}
    )
    head, leader = pod("h", cluster, labels={"ray.io/group": "headgroup"}), pod("l-0", lws)

    assert run(tmp_path, cluster, lws, head, leader, flags=("-o", "json", "--rules=v0.17")) == 0

    shown = json.loads(capsys.readouterr().out)["pods"]
    assert [each["group"]["minMember"] for each in shown] == [3, 1]


def test_a_workload_of_which_no_pods_are_shown_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = obj("apps/v1", "StatefulSet", "idle", spec={"replicas": 0, "template": TEMPLATE})
    job_set = obj(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "js",
        TRAIN_JOB,
        spec={"replicatedJobs": [{"name": "node", "template": {"spec": {"template": TEMPLATE}}}]},
    )
    other = obj("trainer.kubeflow.org/v1alpha1", "TrainJob", "other")

    assert run(tmp_path, TRAIN_JOB, job_set, other, idle, GOLD) == 0

    note = " ".join(capsys.readouterr().err.split())
    assert "no pods are shown of TrainJob other, StatefulSet idle: there are none, or" in note


def test_a_value_that_was_given_is_never_a_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = obj("serving.knative.dev/v1", "Service", "s")
    revision = obj(
        "serving.knative.dev/v1", "Revision", "r", annotations={"autoscaling.knative.dev/min-scale": "0"}
    )
    labels = {"serving.knative.dev/revision": "r", "kai.scheduler/preemptibility": "preemptible"}

    due = group(tmp_path, capsys, service, revision, pod("p", service, labels=labels))["dueTo"]

    assert due["name"] == ["Revision r: uid"]
    assert due["minMember"] == ["Revision r: annotation autoscaling.knative.dev/min-scale"]


def test_the_search_for_causes_logs_nothing_about_values_that_nobody_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"kai.scheduler/preemptibility": "preemptible"}

    assert run(tmp_path, pod("p", labels=labels)) == 0

    written = capsys.readouterr()
    assert "preemptiblex" not in written.out + written.err


@pytest.mark.parametrize(
    ("labels", "annotations", "hint"),
    [
        ({"kai.scheduler/priority": "high"}, {}, "did you mean the label priorityClassName?"),
        ({"priorityclassname": "high"}, {}, "did you mean the label priorityClassName?"),
        ({}, {"priorityClassName": "high"}, "did you mean the label priorityClassName?"),
        ({"preemptibility": "preemptible"}, {}, "did you mean the label kai.scheduler/preemptibility?"),
        ({"priorityClassName": "high", "priority": "app"}, {}, ""),
    ],
)
def test_a_misspelled_label_gets_a_hint(
    labels: Data, annotations: Data, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = group(tmp_path, capsys, pod("p", labels=labels, annotations=annotations))

    assert [each.partition("; ")[2] for each in answer.get("hints", ())] == ([hint] if hint else [])


OLD_UID, NEW_UID = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))


@pytest.mark.parametrize(
    ("named", "owner_uid", "grouped"),
    [
        pytest.param(f"pg-solo-{OLD_UID}", "", True, id="a group that died with the former pod"),
        pytest.param(f"pg-solo-{OLD_UID}", OLD_UID, True, id="a group that still belongs to the former pod"),
        pytest.param(f"pg-copied-{OLD_UID}", "", True, id="a group of the pod from which it was copied"),
        pytest.param(f"pg-solo-{NEW_UID}", NEW_UID, False, id="its own group"),
        pytest.param("made-by-a-user", "", False, id="a group of a user"),
        pytest.param("", "", False, id="no group"),
    ],
)
def test_a_pod_from_its_own_yaml_is_grouped_again(
    named: str, owner_uid: str, grouped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solo = pod("solo", annotations={"pod-group-name": named})
    solo["metadata"]["uid"] = NEW_UID
    stored = obj("scheduling.run.ai/v2alpha2", "PodGroup", named, spec={"minMember": 1})
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "solo", "uid": owner_uid}
    stored["metadata"]["ownerReferences"] = [reference]

    answer = group(tmp_path, capsys, solo, *([stored] if owner_uid else []))

    if grouped:
        assert answer["group"]["name"] == f"pg-solo-{NEW_UID}"
    else:
        assert answer["leftAlone"] == f"it has no owner and is already assigned to the group {named}"


def test_values_that_come_from_the_input_are_not_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
    one = {"name": "node", "template": {"spec": {"parallelism": 3}}}
    job_set = obj("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec={"replicatedJobs": [one]})

    due = group(tmp_path, capsys, job_set, pod("p", job_set, labels=labels), rules="v0.17")["dueTo"]

    assert due["minSubGroup"] == ["JobSet js: spec.replicatedJobs"]
    assert due["subGroup"] == [f"Pod p: label {label}" for label in sorted(labels)]
    assert "queue" not in due


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
def test_an_ignored_field_has_no_cause(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "priorityClassName": "gold",
    }
    gang = obj(f"scheduling.k8s.io/{version}", "PodGroup", "g", spec=spec)

    assert run(tmp_path, gang, GOLD, pod("p", spec={"schedulingGroup": {"podGroupName": "g"}})) == 0

    lines = capsys.readouterr().out.splitlines()
    (line,) = [each for each in lines if "ignored" in each]
    assert line.endswith("which names a Topology")
    assert not [each for each in lines if "not given" in each]


CRON_WORKFLOW = obj("argoproj.io/v1alpha1", "CronWorkflow", "nightly")
WORKFLOW = obj(
    "argoproj.io/v1alpha1", "Workflow", "nightly-1", CRON_WORKFLOW, labels={"kai.scheduler/queue": "q"}
)


@pytest.mark.parametrize(
    ("given", "owners", "name", "more"),
    [
        ([], ["Workflow"], "pg-p-uid-p", ""),
        (
            [CRON_WORKFLOW],
            ["Workflow", "CronWorkflow"],
            "pg-nightly-uid-nightly",
            ", unless you grant the permission",
        ),
    ],
)
def test_an_owner_that_the_shipped_role_does_not_permit_reading_gets_a_hint(
    given: list[Data],
    owners: list[str],
    name: str,
    more: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = group(tmp_path, capsys, WORKFLOW, pod("p", WORKFLOW), *given)

    assert ([each["kind"] for each in answer["owners"]], answer["group"]["name"]) == (owners, name)
    text = (
        "the shipped role does not permit reading CronWorkflow nightly: the pod is grouped without this owner"
    )
    assert answer["hints"] == [text + more]
