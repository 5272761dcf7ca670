# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The check of pod templates; test/integration/util/test_podtemplates.py compares it with an API server."""

from typing import Any

import pytest

from pkg import shipped
from pkg.util import podtemplate


def job_set(*pods: Any, **spec: Any) -> dict[str, Any]:
    jobs = [
        {"name": f"job-{index}", "template": {"spec": {"template": {"spec": pod}}}}
        for index, pod in enumerate(pods)
    ]
    return {"spec": {"replicatedJobs": jobs, **spec}}


def _failing(**codes: Any) -> dict[str, Any]:
    return {
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", **codes}}]}
    }


def claim(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": name}, "spec": spec}


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


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (
            {"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}},
            ("resources", "limits", "hugepages-2Mi"),
        ),
        (
            {"resources": {"limits": {"hugepages-x": "3Mi", "cpu": "1"}}},
            ("resources", "limits", "hugepages-x"),
        ),
        ({"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}, ("volumeDevices", 0, "name")),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}}}]},
            ("env", 0, "valueFrom", "secretKeyRef", "key"),
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
            ("securityContext", "seccompProfile", "localhostProfile"),
        ),
    ],
)
def test_values_must_have_the_form_that_the_api_server_asks_for(changes: Any, path: tuple[Any, ...]) -> None:
    pod = {"containers": [{"name": "a", "image": "x", **changes}], "volumes": [{"name": "v", "emptyDir": {}}]}
    (found,) = podtemplate.violations(job_set(pod))
    assert found.path[7:] == ("containers", 0, *path)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"storage": "-1Gi"}, ("resources", "requests", "storage")),
        ({"selector": {"matchLabels": {"disk": "very fast"}}}, ("selector", "matchLabels", "disk")),
        ({"dataSource": {"kind": "PersistentVolumeClaim"}}, ("dataSource", "name")),
        ({"volumeAttributesClassName": "Fast Disks"}, ("volumeAttributesClassName",)),
    ],
)
def test_the_claim_of_an_ephemeral_volume_is_checked(changes: dict[str, Any], path: tuple[Any, ...]) -> None:
    storage = changes.pop("storage", "1Gi")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **changes}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    pod = {"containers": [{"name": "a", "image": "x"}], "volumes": [volume]}
    (found,) = podtemplate.violations(job_set(pod))
    assert found.path[7:] == ("volumes", 0, "ephemeral", "volumeClaimTemplate", "spec", *path)


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


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"maxFailedIndexes": 1}, ("maxFailedIndexes",)),
        ({"maxFailedIndexes": 1, "backoffLimitPerIndex": 0}, ()),
        ({"selector": {"matchLabels": {"a": "b"}}}, ("selector",)),
        ({"managedBy": "nobody"}, ("managedBy",)),
        ({"completionMode": "NonIndexed", "backoffLimitPerIndex": 1}, ("backoffLimitPerIndex",)),
        (_failing(values=[0]), ("podFailurePolicy", "rules", 0, "onExitCodes", "values")),
        (_failing(values=[3, 1]), ("podFailurePolicy", "rules", 0, "onExitCodes", "values")),
        (_failing(values=[1, 3]), ()),
        (
            _failing(values=[1], containerName="b"),
            ("podFailurePolicy", "rules", 0, "onExitCodes", "containerName"),
        ),
        ({**_failing(values=[1]), "podReplacementPolicy": "TerminatingOrFailed"}, ("podReplacementPolicy",)),
    ],
)
def test_fields_of_the_job_are_checked(fields: dict[str, Any], path: tuple[Any, ...]) -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}], "restartPolicy": "Never"})
    made["spec"]["replicatedJobs"][0]["template"]["spec"] |= fields
    assert [each.path[5:] for each in podtemplate.violations(made)] == ([path] if path else [])


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


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        ({"successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 3}]}}, ""),
        ({"successPolicy": {"rules": []}}, "rules"),
        ({"successPolicy": {"rules": [{}]}}, "0"),
        ({"successPolicy": {"rules": [{"succeededCount": 1}] * 21}}, "rules"),
        ({"successPolicy": {"rules": [{"succeededCount": -1}]}}, "succeededCount"),
        ({"successPolicy": {"rules": [{"succeededCount": 5}]}}, "succeededCount"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}}, "succeededCount"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "4"}]}}, "succeededIndexes"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "2,1"}]}}, "succeededIndexes"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "1-1"}]}}, "succeededIndexes"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "1;2"}]}}, "succeededIndexes"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0," * 40_000 + "1"}]}}, "succeededIndexes"),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 5}, "maxFailedIndexes"),
        (_failing(values=list(range(1, 257))), "values"),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "A", "status": "True"}]}] * 21}}, "rules"),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "A", "status": "True"}] * 21}]}}, "onPodConditions"),
    ],
)  # fmt: skip
def test_policies_of_jobs_that_the_api_server_refuses_are_found(policy: dict[str, Any], path: str) -> None:
    made = job_set({"containers": [{"name": "a", "image": "x"}], "restartPolicy": "Never"})
    made["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"completions": 4, **policy}
    assert [str(each.path[-1]) for each in podtemplate.violations(made)] == ([path] if path else [])


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
