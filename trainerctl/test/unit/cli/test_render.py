# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl render`` and ``explain``: the manager's own answer, and a correct explanation of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.rest import TransportError
from hypothesis import given
from hypothesis import strategies as st
from pkg.apis import default_scheme
from pkg.apis.trainer.v1alpha1 import TrainingRuntime
from pkg.runtime import core, runtime_for
from replayer.world import objects
from testkit.replay import replay

import trainerctl
from trainerctl.cli import explain, parser, render
from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles, trainjobs
from trainerctl.offline.filesclient import FilesClient
from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.rendering import manifest
from trainerctl.offline.trace.trainjob import TrainJobTrace, trace

SAMPLES = Path(__file__).parents[4] / "config" / "samples"
RECORDED = Path(__file__).parents[4] / "test" / "testdata" / "parity" / "newobjects.json"


def job(name: str = "job", runtime: str = "torch-distributed", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"runtimeRef": {"name": runtime}, **spec},
    }


def runtime(name: str = "mine", **spec: Any) -> dict[str, Any]:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = {"spec": {"containers": [{"name": "node", "image": "a"}]}}
    jobs = [{"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}, **spec},
    }


def write(tmp_path: Path, *objects: dict[str, Any]) -> str:
    path = tmp_path / "in.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def given_documents(*objects: dict[str, Any]) -> list[InputObject]:
    return [InputObject(data, "in.yaml", number) for number, data in enumerate(objects, 1)]


def recorded_cases() -> list[Any]:
    cases = json.loads(RECORDED.read_text())
    return [pytest.param(case, id=case["name"]) for case in cases if case["want"].get("objects")]


def result(state: dict[str, Any]) -> list[Any]:
    """Return the objects in a state, without a JobSet that was not built."""
    objects = [data for data in state.values() if "kind" in data]
    return sorted(objects, key=lambda data: json.dumps(data, sort_keys=True))


async def assert_account_is_true(given: trainjobs.Offline, subject: trainjobs.Subject) -> None:
    explanation = await trace(given, subject)
    pipeline = explanation.pipeline
    changes = [change for step in pipeline.steps for change in step.changes]
    wanted = await trainjobs.objects(given, subject.train_job)

    assert explanation.refusal is None
    assert_it_can_be_printed(explanation)
    assert replay(pipeline.template_state, changes) == pipeline.state
    assert result(pipeline.state) == result({str(n): manifest(obj) for n, obj in enumerate(wanted)})
    for step in pipeline.steps:
        assert not (step.aside and step.changes), f"{step.author} says it stood aside, and changed something"


def assert_it_can_be_printed(explanation: TrainJobTrace) -> None:
    console = Console(file=io.StringIO(), width=80)
    explain.print_text(explanation, console)
    text = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    authors = [step.author for step in explanation.pipeline.steps if step.aside is not None]
    assert all(text.count(f"  {author}  stood aside: ") == 1 for author in authors)
    data = explanation.to_dict()
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize("case", recorded_cases())
async def test_the_changes_lead_from_the_template_to_what_the_manager_applies(case: dict[str, Any]) -> None:
    scheme = default_scheme()
    client = FilesClient(())
    for obj in objects(case):
        client.add(obj)
    train_job = scheme.decode(case["trainJob"])
    given = trainjobs.Offline(client, await core.new(client, client), [])
    subject = trainjobs.Subject(train_job, InputObject(case["trainJob"], "case", 1), "")  # type: ignore[arg-type] # a TrainJob
    try:
        await trainjobs.objects(given, subject.train_job)
    except trainjobs.RefusedError:
        pytest.skip("upstream's answer is an error")
    await assert_account_is_true(given, subject)


NAMES = st.sampled_from(["node", "a", "b"])
ENV = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("ABC"), "value": st.sampled_from("xy")}),
    max_size=3,
    unique_by=lambda env: env["name"],
)
TRAINERS = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from("xy"),
        "numNodes": st.integers(1, 4),
        "numProcPerNode": st.integers(1, 4) | st.just("auto"),
        "env": ENV,
        "command": st.sampled_from([["tune", "run"], ["torchrun"]]),
        "resourcesPerNode": st.just({"limits": {"nvidia.com/gpu": 2}}),
    },
)
OVERRIDES = st.lists(
    st.fixed_dictionaries(
        {"targetJobs": st.lists(st.fixed_dictionaries({"name": NAMES}), min_size=1, max_size=2)},
        optional={
            "metadata": st.just({"labels": {"a": "b"}}),
            "spec": st.fixed_dictionaries(
                {},
                optional={
                    "nodeSelector": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
                    "containers": st.just([{"name": "sidecar", "env": [{"name": "A", "value": "1"}]}]),
                    "volumes": st.just([{"name": "v", "emptyDir": {}}]),
                },
            ),
        },
    ),
    max_size=3,
)
POLICIES = st.sampled_from(
    [
        {},
        {"torch": {}},
        {"torch": {"numProcPerNode": 2}},
        {"numNodes": 3},
        {"mpi": {"runLauncherAsNode": True}},
    ]
)
GANGS: st.SearchStrategy[dict[str, Any] | None] = st.sampled_from(
    [None, {"coscheduling": {"scheduleTimeoutSeconds": 3}}, {"volcano": {}}]
)


@given(TRAINERS, OVERRIDES, POLICIES, GANGS, st.dictionaries(st.sampled_from("ab"), st.just("x")))
async def test_the_account_of_any_train_job_is_true(
    trainer: dict[str, Any],
    overrides: list[dict[str, Any]],
    policy: dict[str, Any],
    gang: dict[str, Any] | None,
    labels: dict[str, str],
) -> None:
    wanted = job(runtime="mine", trainer=trainer, podTemplateOverrides=overrides, labels=labels)
    made = runtime(mlPolicy=policy)
    if gang is not None:
        made["spec"]["podGroupPolicy"] = gang
    given = await trainjobs.prepare(given_documents(made, wanted))
    await assert_account_is_true(given, given.subjects[0])


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("trainjob*.yaml")), ids=lambda path: path.stem)
async def test_every_sample_is_rendered_as_the_manager_would(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(sample), str(SAMPLES / "trainingruntime.yaml")]
    given = await trainjobs.prepare(inputfiles.read(files))
    (subject,) = given.subjects
    served = runtime_for(given.runtimes, subject.train_job.spec.runtime_ref)
    expected = [manifest(obj) for obj in await served.new_objects(subject.train_job)]

    parsed = parser.parse(["render", "-f", *files])
    console = Console()
    assert await render.render_command(parsed, console, console) == 0

    assert list(yaml.safe_load_all(capsys.readouterr().out)) == expected


def test_changes_are_due_to_the_fields_that_make_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = job(runtime="mine", trainer={"image": "b", "numNodes": 3}, labels={"team": "a"})
    path = write(tmp_path, wanted, runtime(mlPolicy={"numNodes": 1, "torch": {"numProcPerNode": 2}}))

    assert trainerctl.main(["explain", "-o", "json", "-f", path]) == 0

    (explained,) = json.loads(capsys.readouterr().out)["explanations"]
    due = {change["path"]: change.get("dueTo") for step in explained["steps"] for change in step["changes"]}
    pod = "JobSet.spec.replicatedJobs[node].template.spec"
    container = f"{pod}.template.spec.containers[node]"
    assert due["JobSet.metadata.labels.team"] == ["spec.labels"]
    assert due[f"{container}.image"] == ["spec.trainer.image"]
    assert due[f"{pod}.completions"] == ["spec.trainer.numNodes"]
    assert due[f"{container}.env[PET_NNODES]"] == ["spec.trainer.numNodes", "runtime's mlPolicy.torch"]
    assert due[f"{container}.env[PET_NPROC_PER_NODE]"][-1] == "runtime's mlPolicy.torch.numProcPerNode"


def test_an_explanation_is_told_in_the_order_of_the_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"pool": "a100"}}}
    path = write(tmp_path, job(podTemplateOverrides=[override], trainer={"numNodes": 2}))

    assert trainerctl.main(["explain", "-f", path]) == 0

    out = capsys.readouterr().out
    assert out.startswith("TrainJob team-a/job on ClusterTrainingRuntime torch-distributed (shipped)\n")
    expected = [
        "Template",
        "Overrides",
        "  podTemplateOverrides[0] for node",
        '      + nodeSelector.pool  "a100"',
        "EnforceMLPolicy",
        "  PlainML  stood aside: the runtime's mlPolicy names torch",
        '      + env[PET_NNODES]          "2"  ← spec.trainer.numNodes',
        "PodNetwork",
        "ComponentBuilder",
        "Result  JobSet job (pods: node 2)",
    ]
    places = [out.index(f"\n{line}") for line in expected]
    assert places == sorted(places)
    assert out.count("MPI  stood aside") == 1


@pytest.mark.parametrize(("command", "about"), [("explain", "Warning  "), ("validate", "Warning: ")])
def test_what_has_no_effect_is_told(
    command: str, about: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = {"metadata": {"labels": label}, "spec": {"containers": [{"name": "node", "image": "i"}]}}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pods}}}]}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "unlabelled"},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template},
    }
    trainer = {"numNodes": 2, "image": "mine", "numProcPerNode": -1}
    path = write(tmp_path, runtime, job(runtime="unlabelled", trainer=trainer))

    assert trainerctl.main([command, "-f", path]) == 0

    out = capsys.readouterr().out
    assert (
        f"{about}spec.trainer: numNodes, image, numProcPerNode have no effect: no job of the runtime has"
        in out
    )
    assert f"{about}spec.trainer.numProcPerNode: -1 must be at least 1: a node cannot run -1 processes" in out
    assert "spec.template.spec.replicatedJobs[0].template.spec.template.metadata.labels: the label" in out


def test_a_refusal_is_told_and_the_others_are_rendered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job("one", "none"), job("two"))

    assert trainerctl.main(["render", "-o", "json", "-f", path]) == 1

    captured = capsys.readouterr()
    assert [item["metadata"]["name"] for item in json.loads(captured.out)["items"]] == ["two"]
    assert captured.err.startswith("trainerctl: TrainJob team-a/one: not found ClusterTrainingRuntime")
    assert "the shipped runtimes are deepspeed-distributed, " in captured.err


@pytest.mark.parametrize("command", ["render", "explain"])
def test_a_runtime_that_the_webhook_refuses_is_told_and_its_train_jobs_are_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = runtime("bad")
    bad["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = 2
    path = write(tmp_path, bad, job("a", "bad"), runtime(), job("b", "mine"))
    assert trainerctl.main([command, "-f", path]) == 1
    out, err = capsys.readouterr()
    assert f"{path}:1: document 1 (ClusterTrainingRuntime bad): admission webhook" in err
    assert "spec.template.spec.replicatedJobs[0].replicas: Invalid value: 2: always must be 1" in err
    assert "TrainJob team-a/a: its ClusterTrainingRuntime bad is refused" in err
    assert "TrainJob team-a/b on ClusterTrainingRuntime mine" in out


def test_an_explanation_goes_as_far_as_the_pipeline_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job(runtime="deepspeed-distributed", trainer={"numNodes": 50000}))

    assert trainerctl.main(["explain", "-f", path]) == 1

    captured = capsys.readouterr()
    assert captured.out.index("env[OMPI_MCA_orte_set_default_slots]") < captured.out.index(
        "\nRefused  TrainJob"
    )
    assert "the host file of 49999 nodes is larger than 1 MiB" in captured.err


def test_a_runtime_of_the_files_goes_before_a_shipped_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job(), runtime("torch-distributed"))
    assert trainerctl.main(["render", "-o", "table", "-f", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("TrainJob team-a/job on ClusterTrainingRuntime torch-distributed\n")
    assert out.endswith("Applies JobSet job\n\n")


async def test_a_cluster_gives_the_runtimes_that_the_files_lack() -> None:
    scheme = default_scheme()
    cluster = FakeClient(scheme.decode(runtime("remote")))
    given = await trainjobs.prepare(
        given_documents(job(runtime="remote"), job("two", "torch-distributed")), cluster=cluster
    )
    assert [subject.runtime for subject in given.subjects] == [
        "ClusterTrainingRuntime remote (from the cluster)",
        "ClusterTrainingRuntime torch-distributed",
    ]


@pytest.mark.parametrize(
    ("flags", "namespace"),
    [([], "default"), (["--context", "c"], "team-b"), (["--context", "c", "-n", "team-c"], "team-c")],
)
async def test_objects_without_a_namespace_are_in_that_of_the_context(
    flags: list[str], namespace: str, tmp_path: Path
) -> None:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team-b"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    mine = {**job(runtime="mine"), "metadata": {"name": "job"}}
    path = write(tmp_path, mine, runtime())
    kubeconfig = ["--kubeconfig", str(tmp_path / "kubeconfig")] if flags else []

    given = await render.load(parser.parse(["render", "-f", path, *flags, *kubeconfig]))

    assert [subject.train_job.namespace for subject in given.subjects] == [namespace]


def test_private_keys_are_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["render", "-f", write(tmp_path, job(runtime="deepspeed-distributed"))]) == 0
    out = capsys.readouterr().out
    assert "ssh-privatekey: <generated by the manager" in out
    assert "BEGIN" not in out
    assert "LS0tLS1" not in out


@pytest.mark.parametrize(
    ("objects", "complaint"),
    [
        (
            [job(trainer={"numNodes": "3"})],
            "in.yaml:10: document 1 (TrainJob team-a/job): spec.trainer.numNodes: Invalid value: ",
        ),
        ([job(runtime="")], 'spec.runtimeRef.name: Invalid value: "": '),
        (
            [job(podTemplateOverrides=[{"spec": {}}])],
            "spec.podTemplateOverrides[0].targetJobs: Required value\n",
        ),
        (
            [job(trainer={"env": [{"name": "A"}, {"name": "A"}]})],
            'spec.trainer.env[1]: Duplicate value: {"name":"A"}',
        ),
        ([job(name="")], "metadata.name: Required value: name or generateName is required"),
        ([job(), job()], "duplicate of "),
        ([runtime()], "the input contains no TrainJob, only ClusterTrainingRuntime"),
        (
            [runtime(mlPolicy={"mpi": {"mpiImplementation": "X"}}), job()],
            'Unsupported value: "X": supported values: "OpenMPI", ""',
        ),
    ],
)
def test_bad_input_is_a_line_for_each_problem_and_code_2(
    objects: list[dict[str, Any]], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainerctl.main(["render", "-f", write(tmp_path, *objects)]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.startswith("trainerctl: ")
    assert all("in.yaml:" in line for line in err.splitlines()[1:])


@pytest.mark.parametrize("command", ["render", "explain"])
@pytest.mark.parametrize(
    "name", ["fine", "", "Foo", "1foo", "foo.bar", "foo bar", "a" * 63, "a" * 64, "a" * 254, 5, "a\nb"]
)
def test_a_name_is_judged_as_validate_judges_it(
    name: Any, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job(name=name))
    trainerctl.main(["validate", "-o", "json", "-f", path])
    (verdict,) = json.loads(capsys.readouterr().out)
    code = trainerctl.main([command, "-f", path])
    said = capsys.readouterr().err

    assert code == {200: 0, 400: 2, 403: 1, 422: 2}[verdict["code"]]
    if verdict["code"] == 422:
        assert verdict["causes"][0]["message"] in said
    else:
        assert verdict["message"].rpartition("cannot be handled as a TrainJob: ")[2] in said


@pytest.mark.parametrize("command", ["render", "explain", "validate"])
@pytest.mark.parametrize("version", ["trainer.kubeflow.org/v2", "trainer.kubeflow.org/v1", "kubeflow.org/v1"])
def test_a_train_job_of_a_version_that_is_not_served_is_an_error(
    command: str, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job() | {"apiVersion": version}, job(name="other"))
    assert trainerctl.main([command, "-f", path]) == (1 if command == "validate" else 2)
    assert f'no matches for kind "TrainJob" in version "{version}"' in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}},
            "spec.managedBy names kueue.x-k8s.io/multikueue",
        ),
        ({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}}, "it is being deleted"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "it is Complete"),
    ],
)
async def test_a_train_job_that_the_manager_leaves_alone_is_rendered_with_a_warning(
    changes: dict[str, Any], why: str
) -> None:
    wanted = job()
    for part, fields in changes.items():
        wanted[part] = {**wanted.get(part, {}), **fields}
    for condition in wanted.get("status", {}).get("conditions", ()):
        condition.update(lastTransitionTime="2025-01-01T00:00:00Z", reason="Done", message="")
    given = await trainjobs.prepare(given_documents(wanted))
    assert given.warnings == [f"TrainJob team-a/job: {why}; the manager ignores it"]
    assert await trainjobs.objects(given, given.subjects[0].train_job)


def test_fields_that_a_server_drops_are_named_and_have_no_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job(trainer={"nodes": 3}))
    assert trainerctl.main(["render", "-f", path]) == 0
    captured = capsys.readouterr()
    assert "in.yaml:10: document 1 (TrainJob team-a/job): spec.trainer.nodes: unknown field" in captured.err
    path = write(tmp_path, job(trainer={"numnodes": 3}))
    assert trainerctl.main(["render", "-f", path]) == 0
    assert "unknown field; did you mean numNodes? (a server drops it)" in capsys.readouterr().err
    assert "parallelism: 1" in captured.out


@pytest.mark.parametrize(("version", "kinds"), [("2.1", ["JobSet"]), ("2.3", ["ConfigMap", "JobSet"])])
def test_the_compatibility_version_decides_whether_there_is_a_snapshot(
    version: str, kinds: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: job}\n"
        "spec: {runtimeRef: {name: jax-distributed}}\n"
    )
    command = ["render", "-f", str(path), "-o", "json", "--compatibility-version", version]
    assert trainerctl.main(command) == 0
    made = json.loads(capsys.readouterr().out)["items"]
    assert [each["kind"] for each in made] == kinds
    for each in made:
        assert not {"uid", "resourceVersion", "creationTimestamp"} & each["metadata"].keys()
    if version == "2.3":
        assert yaml.safe_load(made[0]["data"]["runtime"])["metadata"] == {
            "name": "jax-distributed",
            "labels": {"trainer.kubeflow.org/framework": "jax"},
        }


def test_names_that_the_server_generates_do_not_collide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {generateName: sweep-}\n"
        "spec: {runtimeRef: {name: jax-distributed}, trainer: {numNodes: %d}}\n---\n"
    )
    path = tmp_path / "sweep.yaml"
    path.write_text(text % 2 + text % 3)
    assert trainerctl.main(["render", "-f", str(path), "-o", "json"]) == 0
    names = [each["metadata"]["name"] for each in json.loads(capsys.readouterr().out)["items"]]
    assert names == ["sweep-xxxxx", "sweep-00001"]


async def test_the_runtime_of_the_other_kind_is_looked_up_while_the_cluster_is_connected() -> None:
    runtime = {
        "metadata": {"name": "mine", "namespace": "team-a"},
        "spec": {"template": {"spec": {"replicatedJobs": []}}},
    }
    is_connected = True

    async def getting(inner: Any, kind: Any, key: Any) -> Any:
        if not is_connected:
            raise TransportError("closed")
        return await inner.get(kind, key)

    cluster = interceptor.wrap(FakeClient(TrainingRuntime.from_dict(runtime)), interceptor.Funcs(get=getting))
    wanted = job()
    wanted["spec"]["runtimeRef"] = {"name": "mine"}
    given = await trainjobs.prepare(given_documents(wanted), cluster=cluster)
    is_connected = False
    with pytest.raises(trainjobs.RefusedError, match="there is a TrainingRuntime mine: to use it"):
        await trainjobs.objects(given, given.subjects[0].train_job)


def test_feature_gates_are_those_of_the_manager(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, job())
    assert trainerctl.main(["render", "-f", path, "-o", "json"]) == 0
    assert [each["kind"] for each in json.loads(capsys.readouterr().out)["items"]] == ["JobSet"]
    assert (
        trainerctl.main(["render", "-f", path, "-o", "json", "--feature-gates", "TrainJobStatus=true"]) == 0
    )
    made = json.loads(capsys.readouterr().out)["items"]
    assert [each["kind"] for each in made] == ["JobSet", "ConfigMap"]
    assert made[1]["data"] == {"ca.crt": "<certificate authority of the manager>"}
    with pytest.raises(SystemExit):
        trainerctl.main(["render", "-f", path, "--feature-gates", "Nothing=true"])
    assert "unrecognized feature gate: Nothing" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["render", "explain"])
def test_the_webhook_refuses_what_the_chosen_release_refuses(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, job(initializer={"dataset": {"storageUri": "nowhere"}}))
    for version in ("2.1", "2.3"):
        assert trainerctl.main([verb, "-f", path, "--compatibility-version", version]) == 1
        err = capsys.readouterr().err
        assert ("storageUri may be empty, or it must be a valid URI" in err) == (version == "2.3")


def test_render_warns_of_a_train_job_that_becomes_complete_without_a_pod(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    train_job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "none"},
        "spec": {"runtimeRef": {"name": "mine"}, "trainer": {"numNodes": 0}},
    }
    assert trainerctl.main(["render", "-f", write(tmp_path, runtime(mlPolicy={"torch": {}}), train_job)]) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "document 2 (TrainJob none): spec.trainer.numNodes: 0 must be at least 1: no pod trains" in warning
    assert warning.startswith("trainerctl: warning: ")
