# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl render`` and ``explain``: the manager's own answer, and a correct explanation of it."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.client import interceptor
from controller_runtime.envtest import kubeconfig
from controller_runtime.fake import FakeClient
from controller_runtime.rest import TransportError
from hypothesis import given
from hypothesis import strategies as st
from pkg.apis import default_scheme
from pkg.runtime import core, runtime_for
from replayer.world import objects
from testkit.builders import pod_override, train_job_document, written_cluster_runtime, written_runtime
from testkit.replay import replay

from trainerctl.cli import explain, parser, render
from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles, trainjobs
from trainerctl.offline.filesclient import FilesClient
from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.rendering import manifest
from trainerctl.offline.trace.trainjob import trace

SAMPLES = Path(__file__).parents[4] / "config" / "samples"
RECORDED = Path(__file__).parents[4] / "test" / "testdata" / "parity" / "newobjects.json"
Tool = Callable[..., tuple[int, str, str]]


job = functools.partial(train_job_document, namespace="team-a", runtime="torch-distributed")


def runtime(name: str = "mine", **spec: Any) -> dict[str, Any]:
    return written_cluster_runtime(name, **spec).to_dict()


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
    console = Console(file=io.StringIO(), width=80)
    explain.print_text(explanation, console)
    text = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    authors = [step.author for step in pipeline.steps if step.aside is not None]
    assert all(text.count(f"  {author}  stood aside: ") == 1 for author in authors)
    data = explanation.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert replay(pipeline.template_state, changes) == pipeline.state
    assert result(pipeline.state) == result({str(n): manifest(obj) for n, obj in enumerate(wanted)})
    for step in pipeline.steps:
        assert not (step.aside and step.changes), f"{step.author} says it stood aside, and changed something"


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


def test_changes_are_due_to_the_fields_that_make_them(tool: Tool) -> None:
    wanted = job(runtime="mine", trainer={"image": "b", "numNodes": 3}, labels={"team": "a"})
    made = runtime(mlPolicy={"numNodes": 1, "torch": {"numProcPerNode": 2}})

    code, out, _ = tool("explain -o json", wanted, made)

    assert code == 0
    (explained,) = json.loads(out)["explanations"]
    due = {change["path"]: change.get("dueTo") for step in explained["steps"] for change in step["changes"]}
    pod = "JobSet.spec.replicatedJobs[node].template.spec"
    container = f"{pod}.template.spec.containers[node]"
    assert due["JobSet.metadata.labels.team"] == ["spec.labels"]
    assert due[f"{container}.image"] == ["spec.trainer.image"]
    assert due[f"{pod}.completions"] == ["spec.trainer.numNodes"]
    assert due[f"{container}.env[PET_NNODES]"] == ["spec.trainer.numNodes", "runtime's mlPolicy.torch"]
    assert due[f"{container}.env[PET_NPROC_PER_NODE]"][-1] == "runtime's mlPolicy.torch.numProcPerNode"


def test_an_explanation_is_told_in_the_order_of_the_stages(tool: Tool) -> None:
    override = pod_override({"nodeSelector": {"pool": "a100"}})

    code, out, _ = tool("explain", job(podTemplateOverrides=[override], trainer={"numNodes": 2}))

    assert code == 0
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
def test_what_has_no_effect_is_told(command: str, about: str, tool: Tool) -> None:
    unlabelled = runtime(mlPolicy={"numNodes": 1, "torch": {}})
    template = unlabelled["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    template["spec"]["template"]["metadata"] = template.pop("metadata")
    trainer = {"numNodes": 2, "image": "mine", "numProcPerNode": -1}

    code, out, _ = tool(command, unlabelled, job(runtime="mine", trainer=trainer))

    assert code == 0
    assert (
        f"{about}spec.trainer: numNodes, image, numProcPerNode have no effect: no job of the runtime" in out
    )
    assert f"{about}spec.trainer.numProcPerNode: -1 must be at least 1: a node cannot run -1 processes" in out
    assert "spec.template.spec.replicatedJobs[0].template.spec.template.metadata.labels: the label" in out


def test_a_refusal_is_told_and_the_others_are_rendered(tool: Tool) -> None:
    code, out, err = tool("render -o json", job(name="one", runtime="none"), job(name="two"))

    assert code == 1
    assert [item["metadata"]["name"] for item in json.loads(out)["items"]] == ["two"]
    assert err.startswith("trainerctl: TrainJob team-a/one: not found ClusterTrainingRuntime")
    assert "the shipped runtimes are deepspeed-distributed, " in err


@pytest.mark.parametrize("command", ["render", "explain"])
def test_a_runtime_that_the_webhook_refuses_is_told_and_its_train_jobs_are_refused(
    command: str, tool: Tool
) -> None:
    bad = runtime("bad")
    bad["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = 2
    code, out, err = tool(
        command, bad, job(name="a", runtime="bad"), runtime(), job(name="b", runtime="mine")
    )
    assert code == 1
    assert "in.yaml:1: document 1 (ClusterTrainingRuntime bad): admission webhook" in err
    assert "spec.template.spec.replicatedJobs[0].replicas: Invalid value: 2: always must be 1" in err
    assert "TrainJob team-a/a: its ClusterTrainingRuntime bad is refused" in err
    assert "TrainJob team-a/b on ClusterTrainingRuntime mine" in out


def test_an_explanation_goes_as_far_as_the_pipeline_did(tool: Tool) -> None:
    code, out, err = tool("explain", job(runtime="deepspeed-distributed", trainer={"numNodes": 50000}))

    assert code == 1
    assert out.index("env[OMPI_MCA_orte_set_default_slots]") < out.index("\nRefused  TrainJob")
    assert "the host file of 49999 nodes is larger than 1 MiB" in err


def test_a_runtime_of_the_files_goes_before_a_shipped_one(tool: Tool) -> None:
    code, out, _ = tool("render -o table", job(), runtime("torch-distributed"))
    assert code == 0
    assert out.startswith("TrainJob team-a/job on ClusterTrainingRuntime torch-distributed\n")
    assert out.endswith("Applies JobSet job\n\n")


async def test_a_cluster_gives_the_runtimes_that_the_files_lack() -> None:
    cluster = FakeClient(default_scheme().decode(runtime("remote")))
    given = await trainjobs.prepare(given_documents(job(runtime="remote"), job(name="two")), cluster=cluster)
    assert [subject.runtime for subject in given.subjects] == [
        "ClusterTrainingRuntime remote (from the cluster)",
        "ClusterTrainingRuntime torch-distributed",
    ]


@pytest.mark.parametrize(
    ("flags", "namespace"),
    [([], "default"), (["--context", "local"], "team-b"), (["--context", "local", "-n", "team-c"], "team-c")],
)
async def test_objects_without_a_namespace_are_in_that_of_the_context(
    flags: list[str], namespace: str, tmp_path: Path
) -> None:
    config = kubeconfig("https://127.0.0.1:1", user="u", namespace="team-b")
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    file = tmp_path / "in.yaml"
    file.write_text(yaml.safe_dump_all([{**job(runtime="mine"), "metadata": {"name": "job"}}, runtime()]))
    given_config = ["--kubeconfig", str(tmp_path / "kubeconfig")] if flags else []

    given = await render.load(parser.parse(["render", "-f", str(file), *flags, *given_config]))

    assert [subject.train_job.namespace for subject in given.subjects] == [namespace]


def test_private_keys_are_not_printed(tool: Tool) -> None:
    code, out, _ = tool("render", job(runtime="deepspeed-distributed"))
    assert code == 0
    assert "ssh-privatekey: <generated by the manager" in out
    assert "BEGIN" not in out
    assert "LS0tLS1" not in out


@pytest.mark.parametrize(
    ("objects", "complaint"),
    [
        ([job(trainer={"numNodes": "3"})], "in.yaml:10: document 1 (TrainJob team-a/job): spec.trainer.numNodes: Invalid value: "),
        ([job(trainer={"env": [{"name": "A"}, {"name": "A"}]})], 'spec.trainer.env[1]: Duplicate value: {"name":"A"}'),
        ([job(name="")], "metadata.name: Required value: name or generateName is required"),
        ([job(), job()], "duplicate of "),
        ([runtime()], "the input contains no TrainJob, only ClusterTrainingRuntime"),
        ([runtime(mlPolicy={"mpi": {"mpiImplementation": "X"}}), job()], 'Unsupported value: "X": supported values: "OpenMPI", ""'),
    ],
)  # fmt: skip
def test_bad_input_is_a_line_for_each_problem_and_code_2(
    objects: list[dict[str, Any]], complaint: str, tool: Tool
) -> None:
    code, _, err = tool("render", *objects)
    assert code == 2
    assert complaint in err
    assert err.startswith("trainerctl: ")
    assert all("in.yaml:" in line for line in err.splitlines()[1:])


@pytest.mark.parametrize("command", ["render", "explain"])
@pytest.mark.parametrize("name", ["fine", "", "Foo", "1foo", "foo.bar", "a" * 64, "a" * 254, 5, "a\nb"])
def test_a_name_is_judged_as_validate_judges_it(name: Any, command: str, tool: Tool) -> None:
    _, out, _ = tool("validate -o json", job(name=name))
    (verdict,) = json.loads(out)
    code, _, said = tool(command, job(name=name))

    assert code == {200: 0, 400: 2, 403: 1, 422: 2}[verdict["code"]]
    if verdict["code"] == 422:
        assert verdict["causes"][0]["message"] in said
    else:
        assert verdict["message"].rpartition("cannot be handled as a TrainJob: ")[2] in said


@pytest.mark.parametrize("command", ["render", "explain", "validate"])
@pytest.mark.parametrize("version", ["trainer.kubeflow.org/v1", "kubeflow.org/v1"])
def test_a_train_job_of_a_version_that_is_not_served_is_an_error(
    command: str, version: str, tool: Tool
) -> None:
    code, *said = tool(command, job() | {"apiVersion": version}, job(name="other"))
    assert code == (1 if command == "validate" else 2)
    assert f'no matches for kind "TrainJob" in version "{version}"' in "".join(said)


ENDED = {"type": "Complete", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z", "reason": "Done", "message": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (job(managedBy="kueue.x-k8s.io/multikueue"), "spec.managedBy names kueue.x-k8s.io/multikueue"),
        (job(metadata={"deletionTimestamp": "2025-01-01T00:00:00Z"}), "it is being deleted"),
        ({**job(), "status": {"conditions": [ENDED]}}, "it is Complete"),
    ],
)
async def test_a_train_job_that_the_manager_leaves_alone_is_rendered_with_a_warning(
    wanted: dict[str, Any], why: str
) -> None:
    given = await trainjobs.prepare(given_documents(wanted))
    assert given.warnings == [f"TrainJob team-a/job: {why}; the manager ignores it"]
    assert await trainjobs.objects(given, given.subjects[0].train_job)


def test_fields_that_a_server_drops_are_named_and_have_no_effect(tool: Tool) -> None:
    code, out, err = tool("render", job(trainer={"nodes": 3}))
    assert code == 0
    assert "in.yaml:10: document 1 (TrainJob team-a/job): spec.trainer.nodes: unknown field" in err
    assert "parallelism: 1" in out
    _, _, err = tool("render", job(trainer={"numnodes": 3}))
    assert "unknown field; did you mean numNodes? (a server drops it)" in err


@pytest.mark.parametrize(("version", "kinds"), [("2.1", ["JobSet"]), ("2.3", ["ConfigMap", "JobSet"])])
def test_the_compatibility_version_decides_whether_there_is_a_snapshot(
    version: str, kinds: list[str], tool: Tool
) -> None:
    code, out, _ = tool(
        f"render -o json --compatibility-version {version}", {**job(runtime="jax-distributed"), "metadata": {"name": "job"}}
    )  # fmt: skip
    assert code == 0
    made = json.loads(out)["items"]
    assert [each["kind"] for each in made] == kinds
    for each in made:
        assert not {"uid", "resourceVersion", "creationTimestamp"} & each["metadata"].keys()
    if version == "2.3":
        assert yaml.safe_load(made[0]["data"]["runtime"])["metadata"] == {
            "name": "jax-distributed",
            "labels": {"trainer.kubeflow.org/framework": "jax"},
        }


def test_names_that_the_server_generates_do_not_collide(tool: Tool) -> None:
    generated = {**job(), "metadata": {"generateName": "sweep-"}}
    code, out, _ = tool("render -o json", generated, generated)
    assert code == 0
    names = [each["metadata"]["name"] for each in json.loads(out)["items"]]
    assert names == ["sweep-xxxxx", "sweep-00001"]


async def test_the_runtime_of_the_other_kind_is_looked_up_while_the_cluster_is_connected() -> None:
    is_connected = True

    async def getting(inner: Any, kind: Any, key: Any) -> Any:
        if not is_connected:
            raise TransportError("closed")
        return await inner.get(kind, key)

    cluster = interceptor.wrap(FakeClient(written_runtime("team-a", "mine")), interceptor.Funcs(get=getting))
    given = await trainjobs.prepare(given_documents(job(runtime="mine")), cluster=cluster)
    is_connected = False
    with pytest.raises(trainjobs.RefusedError, match="there is a TrainingRuntime mine: to use it"):
        await trainjobs.objects(given, given.subjects[0].train_job)


def test_feature_gates_are_those_of_the_manager(tool: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = tool("render -o json", job())
    assert [each["kind"] for each in json.loads(out)["items"]] == ["JobSet"]
    _, out, _ = tool("render -o json --feature-gates TrainJobStatus=true", job())
    made = json.loads(out)["items"]
    assert [each["kind"] for each in made] == ["JobSet", "ConfigMap"]
    assert made[1]["data"] == {"ca.crt": "<certificate authority of the manager>"}
    with pytest.raises(SystemExit):
        tool("render --feature-gates Nothing=true", job())
    assert "unrecognized feature gate: Nothing" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["render", "explain"])
@pytest.mark.parametrize("version", ["2.1", "2.3"])
def test_the_webhook_refuses_what_the_chosen_release_refuses(verb: str, version: str, tool: Tool) -> None:
    bad = job(initializer={"dataset": {"storageUri": "nowhere"}})
    code, _, err = tool(f"{verb} --compatibility-version {version}", bad)
    assert code == 1
    assert ("storageUri may be empty, or it must be a valid URI" in err) == (version == "2.3")


def test_render_warns_of_a_train_job_that_becomes_complete_without_a_pod(tool: Tool) -> None:
    none = job(runtime="mine", trainer={"numNodes": 0})
    code, _, err = tool("render", runtime(mlPolicy={"torch": {}}), none)
    assert code == 0
    (warning,) = err.splitlines()
    problem = "spec.trainer.numNodes: 0 must be at least 1: no pod trains"
    assert f"document 2 (TrainJob team-a/job): {problem}" in warning
    assert warning.startswith("trainerctl: warning: ")
