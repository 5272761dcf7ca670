# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl group``: the manager's own answer, and its causes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.machinery.crd import custom_resource_definition
from pkg.apis.kai.v2alpha2 import PodGroup

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


Tool = Callable[..., tuple[int, str, str]]
Group = Callable[..., Any]


@pytest.fixture
def groups(tool: Tool) -> Group:
    """Return a function that returns the command's answers about the pods of the objects, as JSON."""

    def command(*objects: Data, **flags: str) -> Any:
        words = ["group -o json", *(f"--{name}={value}" for name, value in flags.items())]
        code, out, err = tool(" ".join(words), *objects)
        assert code == 0, err
        return json.loads(out)["pods"]

    return command


@pytest.fixture
def group(groups: Group) -> Group:
    """Return a function that returns the command's answer about the only pod of the objects."""

    def command(*objects: Data, **flags: str) -> Any:
        (answer,) = groups(*objects, **flags)
        return answer

    return command


def test_every_value_names_what_it_is_due_to(group: Group) -> None:
    answer = group(TRAIN_JOB, JOB_SET, JOB, POD, GOLD)

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


def test_a_priority_class_that_is_not_given_is_told(group: Group) -> None:
    labelled = {**POD, "spec": {**POD["spec"], "priorityClassName": "gold"}}

    without = group(TRAIN_JOB, JOB_SET, JOB, labelled)
    given = group(TRAIN_JOB, JOB_SET, JOB, labelled, GOLD)

    assert (without["group"]["priorityClassName"], without["missing"]) == ("train", ["PriorityClass gold"])
    assert given["group"]["priorityClassName"] == "gold"
    assert "PriorityClass gold: that it exists" in given["dueTo"]["priorityClassName"]


def test_a_group_that_is_there_is_what_a_legacy_name_is_due_to(group: Group) -> None:
    job = obj("batch/v1", "Job", "j", spec={"parallelism": 2})
    legacy = obj("scheduling.run.ai/v2alpha2", "PodGroup", "pg-p-uid-j", spec={"minMember": 1})

    answer = group(job, pod("p", job), legacy)

    assert answer["group"]["name"] == "pg-p-uid-j"
    assert (
        "PodGroup pg-p-uid-j: that it exists" not in answer["dueTo"]["name"]
    )  # without the group, it would have the same name
    assert answer["dueTo"]["name"] == ["Job j: uid"]


def test_what_others_have_may_decide(groups: Group) -> None:
    spec = {
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
    }
    job = obj("kubeflow.org/v1", "MPIJob", "m", spec=spec)
    labels = {"training.kubeflow.org/job-name": "m", "training.kubeflow.org/job-role": "launcher"}
    worker, launcher = pod("w", job), pod("l", labels=labels, spec={"schedulerName": "other"})

    answer = groups(job, worker, launcher)[0]
    assert answer["group"]["minMember"] == 3
    assert "Pod l: that it exists" in answer["dueTo"]["minMember"]
    assert "MPIJob m: spec.mpiReplicaSpecs.Worker.replicas" in answer["dueTo"]["minMember"]


def test_the_text_has_a_line_for_each_value(tool: Tool) -> None:
    stateful_set = obj("apps/v1", "StatefulSet", "db", labels={"kai.scheduler/queue": "q"})

    code, out, _ = tool("group", stateful_set, pod("db-0", stateful_set))

    assert code == 0
    assert out.splitlines() == [
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
def test_pods_that_are_left_alone(left: Data, why: str, group: Group) -> None:
    assert group(left) == {"pod": "team-a/p", "leftAlone": why}


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
    objects: list[Data], why: str, group: Group
) -> None:
    assert group(*objects)["group"]["name"].startswith("pg-")
    left = group(*objects, rules="v0.17")
    assert left == {"pod": "team-a/p", "leftAlone": why}


def selecting(tmp_path: Path, **pod_grouper: Any) -> str:
    """Write a Configuration of the manager, and return its path."""
    path = tmp_path / "config.yaml"
    header = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    path.write_text(yaml.safe_dump({**header, "podGrouper": pod_grouper}))
    return str(path)


def test_pods_that_the_managers_selectors_leave_out(tmp_path: Path, group: Group) -> None:
    config = selecting(tmp_path, podLabelSelector={"team": "blue"}, namespaceLabelSelector={"kai": "enabled"})
    blue = pod("p", labels={"team": "blue"})
    namespace = {"apiVersion": "v1", "kind": "Namespace"}

    assert group(pod("p"), config=config)["leftAlone"] == ("podGrouper.podLabelSelector does not select it")
    unlabelled = {**namespace, "metadata": {"name": "team-a"}}
    assert group(blue, unlabelled, config=config)["leftAlone"] == (
        "podGrouper.namespaceLabelSelector does not select the namespace team-a"
    )
    labelled = {**namespace, "metadata": {"name": "team-a", "labels": {"kai": "enabled"}}}
    assert "missing" not in group(blue, labelled, config=config)
    assert group(blue, config=config)["missing"] == ["Namespace team-a"]


def test_a_pod_without_a_group_fails_the_command(tool: Tool) -> None:
    code, out, err = tool("group", TRAIN_JOB, JOB_SET, JOB, pod("p", JOB), pod("q", TRAIN_JOB, JOB))

    assert code == 1
    missing = 'pod team-a/p missing required label "jobset.sigs.k8s.io/replicatedjob-name"'
    assert f"trainerctl: Pod team-a/p: {missing}" in err.replace("\n", "")
    assert "pg-q-uid-q" in out


def test_the_managers_settings_count(tmp_path: Path, tool: Tool, group: Group) -> None:
    config = selecting(tmp_path, queueLabelKey="team", schedulerName="mine")
    mine = pod("p", labels={"team": "blue"}, spec={"schedulerName": "mine"})

    answer = group(mine, config=config)

    assert answer["group"]["queue"] == "blue"
    Path(config).write_text("kind: Other")
    assert tool(f"group --config={config}", mine)[0] == 2


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
def test_input_that_makes_no_sense(objects: list[Data], shown: str, tool: Tool) -> None:
    code, _, err = tool("group", *objects)
    assert code == 2
    assert shown in err.replace("\n", " ")


def test_the_rules_are_those_of_the_crd_in_the_files_or_of_a_flag(group: Group) -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "1"}
    objects = (TRAIN_JOB, JOB_SET, JOB, pod("p", JOB, labels=labels))

    oldest = group(*objects)["group"]
    by_crd = group(*objects, custom_resource_definition(PodGroup))["group"]
    by_flag = group(*objects, custom_resource_definition(PodGroup), rules="v0.13")["group"]

    assert oldest == by_flag
    assert (oldest["name"], oldest["minMember"]) == ("pg-js-uid-js-node", 6)
    assert (by_crd["name"], by_crd["minSubGroup"], by_crd["subGroup"]) == (
        "pg-js-uid-js",
        1,
        "node-replica-1",
    )
    assert by_crd["subGroups"][0] == {"name": "node", "minSubGroup": 2}


def test_objects_without_a_namespace_are_found_by_that_of_the_command(groups: Group) -> None:
    job = obj("batch/v1", "Job", "j", spec={})
    objects = [pod("alone"), job, pod("owned", job)]
    for each in objects:
        del each["metadata"]["namespace"]

    pods = groups(*objects, namespace="team-b")
    assert [each["pod"] for each in pods] == ["team-b/alone", "team-b/owned"]
    assert [[owner["name"] for owner in each["owners"]] for each in pods] == [["alone"], ["j"]]


@pytest.mark.parametrize(
    "spec", ["x", ["x"], {"versions": ["x"]}, {"versions": [{"name": "v2alpha2", "schema": "x"}]}]
)
def test_a_malformed_crd_of_the_pod_group_decides_nothing(spec: Any, group: Group) -> None:
    name = "podgroups.scheduling.run.ai"
    crd = obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec)
    assert group(crd, pod("p"))["group"]["minMember"] == 1


def test_an_owner_that_kubectl_printed_in_another_version_is_found(tool: Tool, group: Group) -> None:
    printed = {**TRAIN_JOB, "apiVersion": "trainer.kubeflow.org/v2"}

    answer = group(printed, JOB_SET, JOB, POD, GOLD)

    assert (answer["grouper"], answer["group"]["queue"]) == ("SkipTopOwner Grouper", "q")
    stranger = {**printed, "metadata": {**printed["metadata"], "uid": "another"}}
    assert tool("group", stranger, JOB_SET, JOB, POD, GOLD)[0] == 1


TEMPLATE = {"spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "a"}]}}
JOBSET_API, LWS_API = "jobset.x-k8s.io/v1alpha2", "leaderworkerset.x-k8s.io/v1"


def workload(api_version: str, kind: str, **spec: Any) -> Data:
    return obj(api_version, kind, "w", spec=spec)


def of_job(name: str, *, numbers: Data | None = None, **fields: Any) -> Data:
    return {"name": name, **fields, "template": {"spec": {**(numbers or {}), "template": TEMPLATE}}}


def of_ray(name: str, **fields: Any) -> Data:
    return {"groupName": name, **fields, "template": TEMPLATE}


def ray_cluster(*worker_groups: Data) -> Data:
    return workload(
        "ray.io/v1", "RayCluster", headGroupSpec={"template": TEMPLATE}, workerGroupSpecs=list(worker_groups)
    )


def segments(replicas: int = 2) -> Data:
    return {"replicas": replicas, "template": TEMPLATE}


WORKLOADS = [
    (workload("batch/v1", "Job", template=TEMPLATE), {"w-0": ""}),
    (workload("apps/v1", "Deployment", template=TEMPLATE), {"w-0": ""}),
    (workload(JOBSET_API, "JobSet", replicatedJobs=[of_job("node"), of_job("idle", replicas=0)]), {"w-node-0-0": "node-replica-0"}),
    (ray_cluster(of_ray("g", replicas=1)), {"w-head": "headgroup", "w-g-0": "g"}),
    (workload(LWS_API, "LeaderWorkerSet", leaderWorkerTemplate={"size": 2, "workerTemplate": TEMPLATE}),
     {"w-0-0": "leader", "w-0-1": "workers"}),
    (workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs={"Master": segments(1), "Worker": segments()}),
     {"w-master-0": "master", "w-worker-0": "worker"}),
    (workload("kubeflow.org/v1", "XGBoostJob", xgbReplicaSpecs={"Master": segments(1), "Worker": segments()}),
     {"w-master-0": "", "w-worker-0": ""}),
    (ray_cluster(of_ray("idle", replicas=0), of_ray("off", replicas=1, suspend=True), of_ray("g", minReplicas=1)),
     {"w-head": "headgroup", "w-g-0": "g"}),
    (workload(LWS_API, "LeaderWorkerSet", leaderWorkerTemplate={"workerTemplate": TEMPLATE}), {"w-0-0": "leader"}),
    (workload("kubeflow.org/v1", "TFJob", tfReplicaSpecs={"PS": segments(0), "Worker": segments()}), {"w-worker-0": ""}),
    (workload("kubeflow.org/v2beta1", "MPIJob", mpiReplicaSpecs={"Launcher": {"template": TEMPLATE}, "Worker": {"template": TEMPLATE}}),
     {"w-launcher-0": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "pods"), WORKLOADS, ids=lambda each: each.get("kind", ""))
def test_the_pods_of_a_workload_that_is_given_alone_are_made(
    given: Data, pods: dict[str, str], groups: Group
) -> None:
    without_uid = {name: value for name, value in given["metadata"].items() if name != "uid"}
    given = {**given, "metadata": without_uid}

    shown = groups(given, rules="v0.17")
    assert {each["pod"].removeprefix("team-a/"): each["group"].get("subGroup", "") for each in shown} == pods
    assert all(each["group"]["name"].startswith("pg-w-") for each in shown)


@pytest.mark.parametrize(
    ("given", "pods"),
    [
        (workload(JOBSET_API, "JobSet", replicatedJobs=[
            of_job("negative", replicas=-2), of_job("idle", numbers={"parallelism": 0}), of_job("done", numbers={"completions": 0}),
            of_job("node", numbers={"parallelism": 3, "completions": 2})]), ["w-node-0-0"]),
        (ray_cluster(of_ray("negative", replicas=-1), of_ray("none", replicas=1, maxReplicas=0),
                     of_ray("hostless", replicas=1, numOfHosts=0), of_ray("g", replicas=0, minReplicas=1)), ["w-head", "w-g-0"]),
        (workload("kubeflow.org/v1", "TFJob", tfReplicaSpecs={"PS": segments(-1), "Worker": segments()}), ["w-worker-0"]),
    ],
    ids=["JobSet", "RayCluster", "TFJob"],
)  # fmt: skip
def test_only_pods_that_an_operator_creates_are_made(given: Data, pods: list[str], groups: Group) -> None:
    shown = groups(given, rules="v0.17")
    assert [each["pod"].removeprefix("team-a/") for each in shown] == pods


@pytest.mark.parametrize(("spec", "needed"), [({}, 1), ({"completions": 5}, 1), ({"parallelism": 2}, 2)])
def test_a_job_has_the_numbers_that_the_api_server_sets(spec: Data, needed: int, group: Group) -> None:
    annotations = {"kai.scheduler/batch-min-member": "3"}
    job = obj("batch/v1", "Job", "w", spec={**spec, "template": TEMPLATE}, annotations=annotations)

    assert group(job, rules="v0.17")["group"]["minMember"] == needed
    assert group(job, pod("p", job), rules="v0.17")["group"]["minMember"] == needed


def test_fields_without_a_value_are_dropped_as_the_api_server_does(groups: Group) -> None:
    """A template of a chart often writes a field without its value."""
    worker_group = {"groupName": "w", "replicas": 2, "minReplicas": None, "numOfHosts": None, "suspend": None}
    spec = {"headGroupSpec": None, "enableInTreeAutoscaling": None, "workerGroupSpecs": [worker_group]}
    cluster = obj("ray.io/v1", "RayCluster", "rc", spec=spec)
    lws = obj(LWS_API, "LeaderWorkerSet", "l", spec={"leaderWorkerTemplate": {"size": None}})
    head, leader = pod("h", cluster, labels={"ray.io/group": "headgroup"}), pod("l-0", lws)

    shown = groups(cluster, lws, head, leader, rules="v0.17")
    assert [each["group"]["minMember"] for each in shown] == [3, 1]


def test_a_workload_of_which_no_pods_are_shown_is_named(tool: Tool) -> None:
    idle = obj("apps/v1", "StatefulSet", "idle", spec={"replicas": 0, "template": TEMPLATE})
    job_set = obj(JOBSET_API, "JobSet", "js", TRAIN_JOB, spec={"replicatedJobs": [of_job("node")]})
    other = obj("trainer.kubeflow.org/v1alpha1", "TrainJob", "other")

    code, _, err = tool("group", TRAIN_JOB, job_set, other, idle, GOLD)

    assert code == 0
    note = " ".join(err.split())
    assert "no pods are shown of TrainJob other, StatefulSet idle: there are none, or" in note


def test_a_value_that_was_given_is_never_a_default(group: Group) -> None:
    service = obj("serving.knative.dev/v1", "Service", "s")
    revision = obj(
        "serving.knative.dev/v1", "Revision", "r", annotations={"autoscaling.knative.dev/min-scale": "0"}
    )
    labels = {"serving.knative.dev/revision": "r", "kai.scheduler/preemptibility": "preemptible"}

    due = group(service, revision, pod("p", service, labels=labels))["dueTo"]

    assert due["name"] == ["Revision r: uid"]
    assert due["minMember"] == ["Revision r: annotation autoscaling.knative.dev/min-scale"]


def test_the_search_for_causes_logs_nothing_about_values_that_nobody_wrote(tool: Tool) -> None:
    code, out, err = tool("group", pod("p", labels={"kai.scheduler/preemptibility": "preemptible"}))

    assert code == 0
    assert "preemptiblex" not in out + err


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
def test_a_misspelled_label_gets_a_hint(labels: Data, annotations: Data, hint: str, group: Group) -> None:
    answer = group(pod("p", labels=labels, annotations=annotations))

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
    named: str, owner_uid: str, grouped: bool, group: Group
) -> None:
    solo = pod("solo", annotations={"pod-group-name": named})
    solo["metadata"]["uid"] = NEW_UID
    stored = obj("scheduling.run.ai/v2alpha2", "PodGroup", named, spec={"minMember": 1})
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "solo", "uid": owner_uid}
    stored["metadata"]["ownerReferences"] = [reference]

    answer = group(solo, *([stored] if owner_uid else []))

    if grouped:
        assert answer["group"]["name"] == f"pg-solo-{NEW_UID}"
    else:
        assert answer["leftAlone"] == f"it has no owner and is already assigned to the group {named}"


def test_values_that_come_from_the_input_are_not_defaults(group: Group) -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
    one = {"name": "node", "template": {"spec": {"parallelism": 3}}}
    job_set = obj("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec={"replicatedJobs": [one]})

    due = group(job_set, pod("p", job_set, labels=labels), rules="v0.17")["dueTo"]

    assert due["minSubGroup"] == ["JobSet js: spec.replicatedJobs"]
    assert any(each.startswith("JobSet js: spec.replicatedJobs") for each in due["subGroups"])
    assert due["subGroup"] == [f"Pod p: label {label}" for label in sorted(labels)]
    assert "queue" not in due


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
def test_an_ignored_field_has_no_cause(version: str, tool: Tool) -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "priorityClassName": "gold",
    }
    gang = obj(f"scheduling.k8s.io/{version}", "PodGroup", "g", spec=spec)

    code, out, _ = tool("group", gang, GOLD, pod("p", spec={"schedulingGroup": {"podGroupName": "g"}}))

    assert code == 0
    lines = out.splitlines()
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
    given: list[Data], owners: list[str], name: str, more: str, group: Group
) -> None:
    answer = group(WORKFLOW, pod("p", WORKFLOW), *given)

    assert ([each["kind"] for each in answer["owners"]], answer["group"]["name"]) == (owners, name)
    text = (
        "the shipped role does not permit reading CronWorkflow nightly: the pod is grouped without this owner"
    )
    assert answer["hints"] == [text + more]
