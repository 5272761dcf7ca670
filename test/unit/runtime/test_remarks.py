# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What of a TrainJob or a runtime has no effect, and numbers with which no pod runs, is a warning and never a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient

from pkg import shipped
from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core, remarks
from pkg.webhooks import TrainingRuntimeWebhook, TrainJobWebhook
from testkit.builders import train_job_document

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
QUEUE = {"scheduling.volcano.sh/queue-name": "high"}
MISSING = f"no job of the runtime has the label {STEP}: trainer (replicatedJobs[0].template.metadata.labels)"


def job(
    name: str = "node", step: str | None = "trainer", *, on_pods: str | None = None, container: str = "node",
    annotations: Any = None, **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    metadata = {"labels": {STEP: on_pods} if on_pods else {}, "annotations": annotations or {}}
    pods = {
        "metadata": metadata,
        "spec": {"schedulerName": "volcano", "containers": [{"name": container, "image": "i"}]},
    }
    labels = {STEP: step} if step else {}
    return {
        "name": name,
        "replicas": 1,
        "template": {"metadata": {"labels": labels}, "spec": {"template": pods, **spec}},
    }


def runtime(
    *jobs: dict[str, Any], metadata: Any = None, template: Any = None, template_spec: Any = None, **spec: Any
) -> TrainingRuntime:
    of_template = {"replicatedJobs": list(jobs), **(template_spec or {})}
    body = {"template": {"metadata": template or {}, "spec": of_template}, **spec}
    return TrainingRuntime.from_dict(
        {"metadata": {"namespace": "ns", "name": "rt", **(metadata or {})}, "spec": body}
    )


def train_job(trainer: Any = None, metadata: Any = None, **spec: Any) -> TrainJob:
    made = train_job_document("ns", "rt", kind="TrainingRuntime", metadata=metadata, trainer=trainer, **spec)
    return TrainJob.from_dict(made)


async def warnings(
    given: TrainingRuntime, new: TrainJob, old: TrainJob | None = None, version: str = "2.1"
) -> list[str]:
    cfg = defaulted(version)
    client = FakeClient(given)
    webhook = TrainJobWebhook(await core.new(client, client, cfg=cfg), cfg)
    return await (webhook.validate_create(new) if old is None else webhook.validate_update(old, new))


TORCH: dict[str, Any] = {"mlPolicy": {"torch": {}}}
MPI: dict[str, Any] = {"mlPolicy": {"mpi": {"runLauncherAsNode": True}}}
EVERYTHING: dict[str, Any] = {
    "numNodes": 4, "image": "mine", "command": ["a"], "args": ["b"], "env": [{"name": "A", "value": "b"}],
    "resourcesPerNode": {"limits": {"cpu": "1"}}, "numProcPerNode": 2,
}  # fmt: skip
ALL = "numNodes, image, command, args, env, resourcesPerNode, numProcPerNode"
LAUNCHER = job("launcher")
WORKERS = job("node", step=None)


SSH_SERVER = (
    "spec.trainer: command also replaces the SSH server of the workers, which the launcher needs: "
    "remove the label trainjob-ancestor-step from job node of the runtime, or set only image"
)


@pytest.mark.parametrize(
    ("given", "trainer", "found"),
    [
        pytest.param(runtime(job(), **TORCH), EVERYTHING, [], id="all fields have an effect"),
        pytest.param(
            runtime(job(step=None), **TORCH), EVERYTHING, [f"spec.trainer: {ALL} have no effect: {MISSING}"],
            id="the label is missing",
        ),
        pytest.param(
            runtime(job("x", step=None), job(step=None, on_pods="trainer"), **TORCH), {"image": "mine"},
            [f"spec.trainer: image has no effect: {MISSING.replace('[0]', '[1]')}; on the pod template, it does not count"],
            id="the label is on the pod template",
        ),
        pytest.param(runtime(job(step=None), **TORCH), {}, [], id="nothing is set"),
        pytest.param(runtime(job(step=None), **TORCH), None, [], id="no trainer"),
        pytest.param(
            runtime(job(), mlPolicy={"jax": {}}), {"numProcPerNode": 2},
            ["spec.trainer.numProcPerNode: has no effect: the mlPolicy of the runtime names none of torch, mpi and flux"],
            id="jax has no processes",
        ),
        pytest.param(runtime(job(), mlPolicy={"flux": {}}), {"numProcPerNode": 2}, [], id="flux has processes"),
        pytest.param(
            runtime(job()), {"resourcesPerNode": {"claims": [{"name": "gpu"}]}},
            ["spec.trainer.resourcesPerNode.claims: has no effect: Trainer does not pass claims on to pods; set them in the runtime"],
            id="claims",
        ),
        pytest.param(runtime(LAUNCHER, WORKERS, **MPI), {"numNodes": 4, "command": ["a"]}, [], id="MPI"),
        pytest.param(
            runtime(LAUNCHER, **MPI), {"numNodes": 1},
            ["spec.trainer.numNodes: has no effect: the runtime has an mpi policy, but no job node"],
            id="MPI without workers",
        ),
        pytest.param(
            runtime(LAUNCHER, WORKERS, **MPI), {"image": "mine", "resourcesPerNode": {"limits": {"cpu": "1"}}},
            ["spec.trainer: image has no effect on the workers (job node), which keep the values of the runtime"],
            id="the workers of MPI keep their image",
        ),
        pytest.param(
            runtime(LAUNCHER, WORKERS, mlPolicy={"mpi": {}}), {"image": "a", "resourcesPerNode": {"limits": {"cpu": "1"}}},
            ["spec.trainer: image, resourcesPerNode have no effect on the workers (job node), which keep the values of the runtime"],
            id="the launcher of MPI is no node",
        ),
        pytest.param(runtime(LAUNCHER, job(), **MPI), {"image": "mine"}, [], id="labelled workers get the image"),
        pytest.param(
            runtime(LAUNCHER, job(), **MPI), {"image": "mine", "command": ["mpirun"]},
            [
                SSH_SERVER
            ],
            id="labelled workers lose their server",
        ),
        pytest.param(
            runtime(job(), **TORCH), {"numNodes": -1, "numProcPerNode": 0},
            [
                "spec.trainer.numNodes: -1 must be at least 1: a Job cannot have a negative number of pods, so no pod starts",
                "spec.trainer.numProcPerNode: 0 must be at least 1: a node cannot run 0 processes",
            ],
            id="numbers",
        ),
        pytest.param(
            runtime(job()), {"numNodes": 0},
            ["spec.trainer.numNodes: 0 must be at least 1: no pod trains, but the TrainJob becomes Complete"],
            id="zero nodes",
        ),
        pytest.param(
            runtime(LAUNCHER, WORKERS, mlPolicy={"mpi": {}}), {"numNodes": 0},
            ["spec.trainer.numNodes: 0 must be at least 1: the launcher starts without workers"], id="zero workers",
        ),
        pytest.param(
            runtime(LAUNCHER, WORKERS, **MPI), {"numNodes": -1},
            ["spec.trainer.numNodes: -1 counts as 2: the launcher and one worker"], id="the launcher is a node",
        ),
    ],
)  # fmt: skip
async def test_what_of_the_trainer_has_no_effect_is_a_warning(
    given: TrainingRuntime, trainer: Any, found: list[str]
) -> None:
    assert await warnings(given, train_job(trainer)) == found
    assert all(len(each) <= 256 for each in found), "the API server cuts longer warnings"


async def test_in_version_2_3_resources_need_a_policy() -> None:
    new = train_job({"resourcesPerNode": {"limits": {"cpu": "1"}}})
    text = "spec.trainer.resourcesPerNode: has no effect: the runtime has no mlPolicy"
    assert await warnings(runtime(job()), new, version="2.3") == [text]
    assert await warnings(runtime(job()), new) == []


async def test_a_patch_may_bring_the_label() -> None:
    patch = {"name": "node", "template": {"metadata": {"labels": {STEP: "trainer"}}}}
    spec = {"template": {"spec": {"replicatedJobs": [patch]}}}
    new = train_job({"image": "mine"}, runtimePatches=[{"manager": "a.b/c", "trainingRuntimeSpec": spec}])
    assert await warnings(runtime(job(step=None)), new) == []


async def test_an_initializer_without_its_label_is_a_warning() -> None:
    given = runtime(job("dataset-initializer", step=None, container="dataset-initializer"))
    (found,) = await warnings(given, train_job(initializer={"dataset": {"storageUri": "hf://a/b"}}))
    assert found.startswith(
        f"spec.initializer.dataset: has no effect: no job of the runtime has the label {STEP}: d"
    )


async def test_an_update_warns_only_of_what_it_changes() -> None:
    given, old = runtime(job(step=None)), train_job({"image": "a"}, suspend=True)
    assert await warnings(given, train_job({"image": "a"}), old) == []
    assert len(await warnings(given, train_job({"image": "b"}), old)) == 1


@pytest.mark.parametrize(
    ("policy", "metadata", "spec", "found"),
    [
        (True, {}, QUEUE, None),
        (True, QUEUE, {}, "metadata.annotations[scheduling.volcano.sh/queue-name]: has no effect: for TrainJobs of Trainer, it"),
        (False, QUEUE, {}, "metadata.annotations[scheduling.volcano.sh/queue-name]: has no effect: the runtime has no podGroupPolicy.v"),
        (False, {}, QUEUE, "spec.annotations[scheduling.volcano.sh/queue-name]: has no effect: the runtime has no podGroupPolicy.v"),
    ],
)  # fmt: skip
async def test_a_queue_that_nobody_reads_is_a_warning(
    policy: bool, metadata: Any, spec: Any, found: str | None
) -> None:
    given = runtime(job(), **({"podGroupPolicy": {"volcano": {}}} if policy else {}))
    new = train_job(metadata={"annotations": metadata}, annotations=spec)
    got = await warnings(given, new)
    assert got == [] if found is None else [each.startswith(found) for each in got] == [True]


VOLCANO: dict[str, Any] = {"podGroupPolicy": {"volcano": {}}}


def _patch(**template: Any) -> list[dict[str, Any]]:
    jobs = [{"name": "node", "template": template}]
    return [
        {"manager": "example.com/m", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    ]


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (
            {
                "podTemplateOverrides": [
                    {"targetJobs": [{"name": "node"}], "metadata": {"annotations": QUEUE}}
                ]
            },
            "spec.podTemplateOverrides[0].metadata.",
        ),
        (
            {"runtimePatches": _patch(metadata={"annotations": QUEUE})},
            "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.metadata.",
        ),
        (
            {"runtimePatches": _patch(spec={"template": {"metadata": {"annotations": QUEUE}}})},
            "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.metadata.",
        ),
    ],
    ids=["override", "patch-of-a-job", "patch-of-pods"],
)
async def test_a_queue_for_pods_of_a_gang_is_a_warning(spec: Any, place: str) -> None:
    (warning,) = await warnings(runtime(job(), **VOLCANO), train_job(**spec))
    head = f"{place}annotations[scheduling.volcano.sh/queue-name]: has no effect: the gang has the queue of"
    assert warning.startswith(head)
    assert len(warning) <= 256
    assert await warnings(runtime(job()), train_job(**spec)) == []  # Volcano itself reads it then


async def test_a_patch_of_nothing_of_a_gang_has_no_warning() -> None:
    (patch,) = _patch()
    del patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    assert await warnings(runtime(job(), **VOLCANO), train_job(runtimePatches=[patch])) == []


async def test_a_queue_for_the_jobs_of_a_gang_is_a_warning() -> None:
    given = job()
    given["template"]["metadata"]["annotations"] = QUEUE
    (found,) = remarks.about_runtime(runtime(given, **VOLCANO))
    place = "spec.template.spec.replicatedJobs[0].template.metadata"
    assert found.path == f"{place}.annotations[scheduling.volcano.sh/queue-name]"


async def test_no_place_is_named_where_a_queue_would_have_no_effect_either() -> None:
    (warning,) = await TrainingRuntimeWebhook().validate_create(
        runtime(job(), metadata={"annotations": QUEUE})
    )
    assert warning.endswith("has no effect: the runtime has no podGroupPolicy.volcano")


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        (runtime(job(), template={"annotations": QUEUE}, **VOLCANO), []),
        (runtime(job(), template={"annotations": QUEUE}), ["spec.template.metadata.annotations[scheduling.volcano.sh/queue-name]"]),
        (runtime(job(), metadata={"annotations": QUEUE}, **VOLCANO), ["metadata.annotations[scheduling.volcano.sh/queue-name]"]),
        (runtime(job(), metadata={"annotations": QUEUE}), ["metadata.annotations[scheduling.volcano.sh/queue-name]"]),
        (
            runtime(job(annotations=QUEUE), **VOLCANO),
            ["spec.template.spec.replicatedJobs[0].template.spec.template.metadata.annotations[scheduling.volcano.sh/queue-name]"],
        ),
        (runtime(job(annotations=QUEUE)), []),  # Volcano itself reads the annotation of pods without a PodGroup
        (runtime(job(step=None, on_pods="trainer")), ["spec.template.spec.replicatedJobs[0].template.spec.template.metadata.labels"]),
        (runtime(job(step=None), template={"labels": {STEP: "trainer"}}), ["spec.template.metadata.labels"]),
        (runtime(job(step=None), metadata={"labels": {STEP: "trainer"}}), ["metadata.labels"]),
        (runtime(job(), mlPolicy={"numNodes": 0, "torch": {"numProcPerNode": -1}}), ["spec.mlPolicy.torch.numProcPerNode", "spec.mlPolicy.numNodes"]),
        (runtime(job(), mlPolicy={"mpi": {"numProcPerNode": 0}}), ["spec.mlPolicy.mpi.numProcPerNode", "spec.mlPolicy.mpi"]),
        (runtime(job("launcher"), job(step=None), mlPolicy={"mpi": {}}), []),
        (runtime(job("workers"), mlPolicy={"mpi": {}}), ["spec.mlPolicy.mpi"]),
        (runtime(job("launcher"), job("workers"), mlPolicy={"mpi": {}}), ["spec.mlPolicy.mpi"]),
        (runtime(job("launcher"), mlPolicy={"mpi": {"runLauncherAsNode": True}}), []),
        (runtime(job("workers"), mlPolicy={"flux": {}}), ["spec.mlPolicy.flux"]),
        (runtime(job("init", step="model-initializer", container="model-initializer"), job(), mlPolicy={"flux": {}}), []),
        *(
            (
                runtime(*jobs, mlPolicy={framework: {}}, template_spec={"network": {"enableDNSHostnames": False}}),
                ["spec.template.spec.network.enableDNSHostnames"],
            )
            for framework, jobs in {
                "torch": [job()], "jax": [job()], "xgboost": [job()], "flux": [job()],
                "mpi": [job("launcher"), job(step=None)],
            }.items()
        ),
        (runtime(job(), mlPolicy={"numNodes": 2}, template_spec={"network": {"enableDNSHostnames": False}}), []),
        (runtime(job(), mlPolicy={"torch": {"elasticPolicy": {"minNodes": 1}}}), ["spec.mlPolicy.torch.elasticPolicy"]),
        (runtime(job(), mlPolicy={"torch": {}}, template_spec={"network": {"subdomain": "mine"}}), []),
        (runtime(job(), mlPolicy={"flux": {"numProcPerNode": -2}}), ["spec.mlPolicy.flux.numProcPerNode"]),
        (
            runtime(job(backoffLimit=-1, parallelism=-1)),
            [f"spec.template.spec.replicatedJobs[0].template.spec.{name}" for name in ("backoffLimit", "parallelism")],
        ),
        (
            runtime(job("x", step=None, parallelism=0, completions=0), job(parallelism=2, completions=2), mlPolicy={"numNodes": 3}),
            [
                f"spec.template.spec.replicatedJobs[{name}"
                for name in (
                    "0].template.spec.parallelism", "0].template.spec.completions",
                    "1].template.spec.parallelism", "1].template.spec.completions",
                )
            ],
        ),
        (runtime(job(activeDeadlineSeconds=0)), ["spec.template.spec.replicatedJobs[0].template.spec.activeDeadlineSeconds"]),
        (runtime(job(parallelism=2, completions=2), mlPolicy={"numNodes": 2}), []),
    ],
)  # fmt: skip
async def test_the_webhook_of_runtimes_warns_too(given: TrainingRuntime, paths: list[str]) -> None:
    got = [each.partition(": ")[0] for each in await TrainingRuntimeWebhook().validate_create(given)]
    assert got == paths


def test_there_is_no_remark_about_shipped_runtimes() -> None:
    for each in (*shipped.manifests("runtimes"), *shipped.manifests("runtimes/data-cache")):
        if each["kind"] == "ClusterTrainingRuntime":
            assert remarks.about_runtime(ClusterTrainingRuntime.from_dict(each)) == []


def test_a_runtime_with_thousands_of_jobs_gets_few_remarks() -> None:
    given = runtime(*(job(f"j{number}", backoffLimit=-1) for number in range(3000)))
    assert len(remarks.about_runtime(given)) == 16


@pytest.mark.parametrize(
    ("replicas", "step", "text"),
    [
        (0, None, "0 counts as 1"),
        (-1, "trainer", "-1 counts as 1"),
        (-1, None, "-1 must be at least 0: JobSet creates no Jobs, so no pod starts"),
    ],
)
def test_a_remark_about_replicas_says_what_happens(replicas: int, step: str | None, text: str) -> None:
    (found,) = remarks.about_runtime(runtime({**job(step=step), "replicas": replicas}))
    assert (found.path, found.text) == ("spec.template.spec.replicatedJobs[0].replicas", text)


@pytest.mark.parametrize("policy", [{}, TORCH, MPI, {"podGroupPolicy": {"coscheduling": {}}}])
def test_a_runtime_without_jobs_is_remarked_upon(policy: Any) -> None:
    found = remarks.about_runtime(runtime(**policy))
    (first,) = [str(each) for each in found if each.prevents_start]
    assert first == (
        "spec.template.spec.replicatedJobs: there is no job, so no pod starts, and TrainJobs never end"
    )


@pytest.mark.parametrize("framework", ["torch", "jax", "xgboost"])
def test_a_second_trainer_that_does_not_find_the_first_is_remarked_upon(framework: str) -> None:
    policy: dict[str, Any] = {"mlPolicy": {framework: {}}}
    assert remarks.about_runtime(runtime(job("a"), job("b", None), **policy)) == []
    (found,) = map(str, remarks.about_runtime(runtime(job("x" * 300), job("y" * 300), **policy)))
    assert found.startswith(f"spec.mlPolicy.{framework}: job yyy")
    assert len(found) <= 256
    assert remarks.about_runtime(runtime(job("a"), job("b"))) == []


REFUSED = "is not an earlier job of the list: JobSet refuses it, so no pod starts"


@pytest.mark.parametrize(
    ("dependencies", "found"),
    [
        ({"b": "a", "c": "a"}, {}),
        ({"a": "a"}, {0: f"a {REFUSED}"}),
        ({"b": "missing"}, {1: f"missing {REFUSED}"}),
        ({"a": "b", "b": "c"}, {0: f"b {REFUSED}", 1: f"c {REFUSED}"}),
        ({"c": "c"}, {2: "the job waits for itself, so none of its pods starts"}),
    ],
)
def test_a_job_can_only_wait_for_an_earlier_job(dependencies: dict[str, str], found: dict[int, str]) -> None:
    jobs = [job(name) for name in "abc"]
    for each in jobs:
        if each["name"] in dependencies:
            each["dependsOn"] = [{"name": dependencies[each["name"]], "status": "Complete"}]
    got = remarks.about_runtime(runtime(*jobs))
    assert {each.path: each.text for each in got} == {
        f"spec.template.spec.replicatedJobs[{index}].dependsOn[0].name": text for index, text in found.items()
    }
    assert all(each.prevents_start for each in got)


def test_a_remark_about_a_dependency_fits_into_a_warning() -> None:
    given = runtime({**job(), "dependsOn": [{"name": "x" * 5000, "status": "Ready"}]})
    assert [len(str(each)) <= 256 for each in remarks.about_runtime(given)] == [True]


@pytest.mark.parametrize(
    ("given", "trainer", "longest"),
    [  # the longest name of a TrainJob with which the last pod, <TrainJob>-<job>-0-<index>-<5 characters>, has a valid name
        pytest.param(runtime(job(), **TORCH), {"numNodes": 10}, 63 - len("-node-0-9-12345"), id="ten nodes"),
        pytest.param(
            runtime(job(), **TORCH), {"numNodes": 11}, 63 - len("-node-0-10-12345"), id="eleven nodes"
        ),
        pytest.param(runtime(job()), {"numNodes": 11}, 63 - len("-node-0-10-12345"), id="no policy"),
        pytest.param(
            runtime(job(parallelism=11)), None, 63 - len("-node-0-10-12345"), id="the runtime's parallelism"
        ),
        pytest.param(
            runtime(LAUNCHER, WORKERS, **MPI),
            {"numNodes": 11},
            63 - len("-launcher-0-0-12345"),
            id="the launcher",
        ),
    ],
)
async def test_a_name_that_is_too_long_for_pods_is_a_warning(
    given: TrainingRuntime, trainer: Any, longest: int
) -> None:
    assert await warnings(given, train_job(trainer, {"name": "x" * longest})) == []
    (warning,) = await warnings(given, train_job(trainer, {"name": "x" * (longest + 1)}))
    assert warning.startswith("metadata.name: is too long: the pods of job ")
    assert warning.endswith(" would have names of 64 characters, and JobSet allows 63")


@pytest.mark.parametrize(
    ("template", "name", "is_valid"),
    [
        ({"volumeClaimPolicies": [{"templates": [{"metadata": {"name": "d" * 20}}]}]}, 42, True),
        ({"volumeClaimPolicies": [{"templates": [{"metadata": {"name": "d" * 60}}]}]}, 3, False),
        ({"volumeClaimPolicies": [{"templates": [{"metadata": 5}]}]}, 3, True),
        ({"coordinator": {"replicatedJob": "node"}}, 26, True),  # the label is <TrainJob>-node-0-0.<TrainJob>
        ({"coordinator": {"replicatedJob": "node"}}, 27, False),
        ({"coordinator": {"replicatedJob": "node"}, "network": {"subdomain": "net"}}, 28, True),
    ],
    ids=["claim", "long-claim", "no-claim", "coordinator", "long-coordinator", "subdomain"],
)
async def test_a_name_that_is_too_long_for_a_claim_or_the_coordinator_is_a_warning(
    template: Any, name: int, is_valid: bool
) -> None:
    given = runtime(job(), **TORCH, template_spec=template)
    found = remarks.about_train_job(train_job(None, {"name": "x" * name}), given.spec)
    assert [each.path for each in found] == ([] if is_valid else ["metadata.name"])
    assert all(each.prevents_start and len(str(each)) <= 256 for each in found)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        pytest.param("network", {"subdomain": "My_Net"}, "network.subdomain", id="a subdomain"),
        pytest.param("network", {"subdomain": "a.b"}, "network.subdomain", id="a dotted subdomain"),
        pytest.param("network", {"subdomain": "a" * 64}, "network.subdomain", id="a long subdomain"),
        pytest.param("network", {"subdomain": "net-1"}, "", id="a good subdomain"),
        pytest.param(
            "successPolicy",
            {"operator": "All", "targetReplicatedJobs": ["node", "gone"]},
            "successPolicy.targetReplicatedJobs[1]",
            id="success of a job that does not exist",
        ),
        pytest.param(
            "failurePolicy",
            {"rules": [{"name": "a", "action": "FailJobSet", "targetReplicatedJobs": ["gone"]}]},
            "failurePolicy.rules[0].targetReplicatedJobs[0]",
            id="failure of a job that does not exist",
        ),
        pytest.param(
            "failurePolicy",
            {"rules": [{"name": "a", "action": "FailJobSet"}, {"name": "a", "action": "RestartJobSet"}]},
            "failurePolicy.rules[1].name",
            id="two rules of one name",
        ),
        pytest.param(
            "failurePolicy",
            {
                "rules": [
                    {"action": "FailJobSet"},
                    {"action": "RestartJobSet"},
                    {"name": "a", "action": "FailJobSet"},
                ]
            },
            "",
            id="rules without names",
        ),
        pytest.param(
            "failurePolicy",
            {"rules": [{"name": "1st rule", "action": "FailJobSet"}]},
            "failurePolicy.rules[0].name",
            id="a name of a rule",
        ),
        pytest.param(
            "failurePolicy",
            {"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy", "OOMKilled"]}]},
            "failurePolicy.rules[0].onJobFailureReasons[1]",
            id="the reason of a pod",
        ),
        pytest.param(
            "coordinator", {"replicatedJob": "gone"}, "coordinator.replicatedJob", id="an unknown coordinator"
        ),
        pytest.param(
            "coordinator",
            {"replicatedJob": "node", "jobIndex": 1},
            "coordinator.jobIndex",
            id="the second Job of a trainer",
        ),
        pytest.param("coordinator", {"replicatedJob": "node"}, "", id="a good coordinator"),
    ],
)
def test_what_job_set_refuses_prevents_the_start(field: str, value: Any, path: str) -> None:
    found = remarks.about_runtime(runtime(job(), template_spec={field: value}))

    assert [each.path for each in found] == ([f"spec.template.spec.{path}"] if path else [])
    for each in found:
        assert each.text.endswith(": JobSet refuses it, so no pod starts")
        assert each.prevents_start


@pytest.mark.parametrize(
    ("name", "is_valid"), [("Node", False), ("my_node", False), ("a.b", False), ("1-a", True), ("node", True)]
)
def test_a_job_has_a_name_that_may_be_part_of_others(name: str, is_valid: bool) -> None:
    found = remarks.about_runtime(runtime(job(name)))

    assert [each.path for each in found] == (
        [] if is_valid else ["spec.template.spec.replicatedJobs[0].name"]
    )


def test_the_group_of_a_job_is_a_label() -> None:
    found = remarks.about_runtime(
        runtime({**job(), "groupName": "First Group"}, {**job("b", None), "groupName": "b"})
    )

    assert [each.path for each in found] == ["spec.template.spec.replicatedJobs[0].groupName"]


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "volcano", "my-volcano"])
def test_pods_of_another_scheduler_are_not_in_the_gang_of_volcano(scheduler: str) -> None:
    init = job("init", None)
    node = {**job(), "dependsOn": [{"name": "init", "status": "Complete"}]}
    launcher = {**job("launcher", None), "dependsOn": [{"name": "node", "status": "Ready"}]}
    for each in (init, node):
        each["template"]["spec"]["template"]["spec"]["schedulerName"] = scheduler

    found = remarks.about_runtime(runtime(init, node, launcher, **VOLCANO))

    path = "spec.template.spec.replicatedJobs[1].template.spec.template.spec.schedulerName"
    assert [each.path for each in found] == ([path] if scheduler in ("", "default-scheduler") else [])
    assert all(str(each) == each.path + ": " + each.text and len(str(each)) <= 256 for each in found)
    assert remarks.about_runtime(runtime(init, node)) == []


@pytest.mark.parametrize(
    ("manager", "is_ours"),
    [("", True), ("jobset.sigs.k8s.io/jobset-controller", True), ("acme.io/other", False)],
)
def test_a_job_set_of_another_controller_does_not_start(manager: str, is_ours: bool) -> None:
    found = remarks.about_runtime(runtime(job(), template_spec={"managedBy": manager}))

    assert [(each.path, each.prevents_start) for each in found] == (
        [] if is_ours else [("spec.template.spec.managedBy", True)]
    )


async def test_variables_with_which_the_nodes_find_each_other_are_a_warning() -> None:
    env = [{"name": "PET_NNODES", "value": "9"}, {"name": "PET_RDZV_ID", "value": "x"}]

    (warning,) = await warnings(runtime(job(), **TORCH), train_job({"env": env}))

    assert warning.startswith("spec.trainer.env: PET_NNODES: the value replaces Trainer's")
    assert await warnings(runtime(job()), train_job({"env": env})) == []
