# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The check of pod templates."""

from typing import Any

import pytest

from pkg import shipped
from pkg.util import podtemplate
from testkit.podtemplates import changed_job, templates


def job_set(*pods: Any, **spec: Any) -> dict[str, Any]:
    jobs = [
        {"name": f"job-{index}", "template": {"spec": {"template": {"spec": pod}}}}
        for index, pod in enumerate(pods)
    ]
    return {"spec": {"replicatedJobs": jobs, **spec}}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("changes", templates())
def test_what_an_api_server_refuses_is_found_and_nothing_else(changes: str) -> None:
    jobs = [{"name": "node", "template": {"spec": changed_job(changes)["spec"]}}]
    found = podtemplate.violations({"spec": {"replicatedJobs": jobs}})
    assert [each.error.field for each in found] == (templates()[changes] or [])


def test_a_violation_names_job_path_and_field() -> None:
    good = {"containers": [{"name": "a", "image": "x"}]}
    bad = {"containers": [{"name": "a", "image": "x", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    (found,) = podtemplate.violations(job_set(good, bad))
    assert found.job == "job-1"
    assert found.path == (
        "spec", "replicatedJobs", 1, "template", "spec",
        "template", "spec", "containers", 0, "resources", "limits", "nvidia.com/gpu",
    )  # fmt: skip
    assert found.sentence.startswith(
        "the API server will refuse the Jobs of job-1: "
        "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: must be set to the amount"
    )


def test_fields_that_exclude_each_other_are_named_in_a_sentence() -> None:
    pod = {
        "containers": [{"name": "a", "image": "x"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/x"}, "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "value": "x"}],
    }
    assert {each.error.detail for each in podtemplate.violations(job_set(pod))} == {
        "must not be set together with hostPath",
        "must be empty for the operator Exists",
    }


def test_a_missing_value_is_required() -> None:
    (found,) = podtemplate.violations(job_set({"containers": [{"name": "a"}]}))
    assert str(found.error) == "spec.template.spec.containers[0].image: Required value"


def test_mounts_may_name_volumes_of_the_job_sets_claim_policies() -> None:
    pod = {"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}
    assert podtemplate.violations(job_set(pod, volumeClaimPolicies=[{"templates": [claim("data")]}])) == []
    (found,) = podtemplate.violations(job_set(pod))
    assert found.path[-3:] == ("volumeMounts", 0, "name")


def test_a_jobs_failure_policy_needs_pods_that_are_not_restarted() -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}], "restartPolicy": "OnFailure"})
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"] = {"rules": []}
    (found,) = podtemplate.violations(made)
    assert found.error.field == "spec.template.spec.restartPolicy"


def test_the_number_of_violations_and_the_length_of_their_texts_are_bounded() -> None:
    containers = [{"name": "x" * 100_000, "image": "x", "env": [{"name": "=" * 100_000}]} for _ in range(500)]
    labels = {f"{'k' * 1000}@{index}": "v" * 5000 for index in range(500)}
    pod = {"containers": containers, "nodeSelector": labels}
    found = podtemplate.violations(job_set(pod, pod))
    assert len(found) == 16
    assert all(len(each.sentence) < 1500 for each in found)


def test_the_shipped_runtimes_lack_nothing_but_the_image_of_the_trainer() -> None:
    for runtime in shipped.manifests("runtimes"):
        if runtime["kind"] == "ClusterTrainingRuntime":
            found = podtemplate.violations(runtime["spec"]["template"])
            assert {each.path[-1] for each in found} <= {"image"}


def test_what_only_the_pods_of_a_job_are_refused_for_is_said_of_the_pods() -> None:
    found = podtemplate.violations(job_set({"containers": [{"name": "a", "image": "busybox\n"}]}))
    begin = "the API server will refuse the pods of job-0: spec.template.spec.containers[0].image: "
    detail = 'Invalid value: "busybox\\n": must not have leading or trailing whitespace'
    assert [each.sentence for each in found] == [begin + detail]
    gated = {"containers": [{"name": "a", "image": "x"}], "schedulingGates": [{"name": "g"}], "nodeName": "n"}
    (found_gate,) = podtemplate.violations(job_set(gated))
    assert found_gate.sentence.startswith(
        "the API server will refuse the pods of job-0: spec.template.spec.nodeName"
    )


def test_an_init_container_uses_each_port_of_the_host_once() -> None:
    port = {"containerPort": 80, "hostPort": 80}
    init = {"name": "i", "image": "x", "ports": [port]}
    pod = {"containers": [{"name": "a", "image": "x", "ports": [port]}], "initContainers": [init]}
    assert podtemplate.violations(job_set(pod)) == []
    init["ports"] = [port, {"containerPort": 81, "hostPort": 80}]
    (found,) = podtemplate.violations(job_set(pod))
    assert found.path[7:] == ("initContainers", 0, "ports", 1, "hostPort")
    assert found.error.detail == "must be unique in the init container"


def test_labels_and_annotations_of_the_job_set_and_its_jobs_are_checked() -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}]})
    made["metadata"] = {"labels": {"team": "a b"}, "annotations": {"example.com/Note": "any: text"}}
    made["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": {"not a key": ""}}

    of_set, of_job = podtemplate.violations(made)

    assert of_set.sentence.startswith(
        'the API server will refuse the JobSet: metadata.labels.team: Invalid value: "a b": a valid label must'
    )
    assert (of_set.job, of_set.path, of_set.keyed) == ("", *[("metadata", "labels", "team")] * 2)
    assert of_job.sentence.startswith(
        "the API server will refuse the Jobs of job-0: metadata.annotations[not a key]: Invalid value"
    )
    assert of_job.path == ("spec", "replicatedJobs", 0, "template", "metadata", "annotations", "not a key")
    assert of_job.keyed[2] == "job-0"


@pytest.mark.parametrize(("number", "refused"), [(131_071, False), (131_072, True)])
def test_annotations_must_have_room_in_their_object(number: int, refused: bool) -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}]})
    annotations = {"ok": "ä" * number}  # of two bytes
    made["metadata"] = {"annotations": annotations}
    template = made["spec"]["replicatedJobs"][0]["template"]
    template["metadata"] = template["spec"]["template"]["metadata"] = {"annotations": annotations}

    assert [str(each.error) for each in podtemplate.violations(made)] == [
        f"{path}metadata.annotations: Invalid value: may not be more than 262144 bytes"
        for path in ("", "", "spec.template.")
        if refused
    ]


MOUNTS = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}


@pytest.mark.parametrize(
    ("claims", "container", "volumes", "path"),
    [
        ([claim("data")], MOUNTS, [], ""),
        ([claim("data"), claim("data")], MOUNTS, [], "1.metadata.name"),
        ([claim("other")], {}, [], "0.metadata.name"),
        ([claim("Data")], {}, [], "0.metadata.name"),
        ([claim("data", accessModes=[])], MOUNTS, [], "0.spec.accessModes"),
        ([claim("data", resources={"requests": {"storage": "0"}})], MOUNTS, [], "0.spec.resources.requests.storage"),
        ([claim("data")], MOUNTS, [{"name": "data"}], "replicatedJobs.0.template.spec.template.spec.volumes.0.name"),
    ],
    ids=["good", "twice", "not-mounted", "no-name", "no-mode", "no-storage", "also-a-volume"],
)  # fmt: skip
def test_claims_that_job_set_refuses_or_cannot_create_are_found(
    claims: list[Any], container: Any, volumes: list[Any], path: str
) -> None:
    pod = {"containers": [{"name": "a", "image": "x", **container}], "volumes": volumes}
    found = podtemplate.violations(job_set(pod, volumeClaimPolicies=[{"templates": claims}]))
    assert bool(found) == bool(path)
    assert all(".".join(map(str, each.path)).endswith(path) for each in found[:1])
    assert not any(each.job for each in found)
    assert all(each.sentence.startswith("the API server will refuse the JobSet") for each in found)


def test_a_list_of_indexes_is_refused_if_it_is_too_long() -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}], "restartPolicy": "Never"})
    rules = [{"succeededIndexes": "0," * 40_000 + "1"}]
    made["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"successPolicy": {"rules": rules}}
    (found,) = podtemplate.violations(made)
    assert found.path[-1] == "succeededIndexes"


@pytest.mark.parametrize(("pods", "path"), [(2, []), (1, ["podIndex"])], ids=["good", "beyond"])
def test_the_coordinator_is_a_pod_of_its_job(pods: int, path: list[str]) -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}]})
    made["spec"]["coordinator"] = {"replicatedJob": "job-0", "podIndex": 1}
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] = pods
    assert [each.path[-1] for each in podtemplate.violations(made)] == path


def test_of_a_runtime_only_what_no_train_job_adds_is_reported() -> None:
    """A TrainJob may set the trainer's image, volumes, mounts and the number of nodes."""
    container = {"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    made = job_set({"containers": [container], "tolerations": [{"operator": "Equal"}]}, volumeClaimPolicies=[{"templates": [claim("data")]}])  # fmt: skip
    (job,) = made["spec"]["replicatedJobs"]
    job["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job["template"]["spec"] |= {"completions": 1, "successPolicy": {"rules": [{"succeededIndexes": "3"}]}}
    made["spec"]["coordinator"] = {"replicatedJob": "job-0", "podIndex": 3}
    (found,) = podtemplate.violations(made, of_runtime=True)
    assert found.path[-3:] == ("tolerations", 0, "operator")
    assert len(podtemplate.violations(made)) == 6
