# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate`` as users run it; test/integration/cli compares the verdicts with those of an API server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cel
import pytest
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit.builders import written_cluster_runtime

import trainerctl
from trainerctl.offline import podfindings
from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.stored import Evaluator, schemas

pytestmark = pytest.mark.real_time
JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s}
spec:
  runtimeRef: {name: %s}
"""
Tool = Callable[..., tuple[int, str, str]]


def test_every_other_file_of_a_folder_has_its_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, text in {
        "a.yaml": JOB % ("a", "torch-distributed"),
        "values.yaml": "a: 1",
        "z.yaml": "{",
    }.items():
        (tmp_path / name).write_text(text)
    assert trainerctl.main(["validate", "-f", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out.replace(str(tmp_path), "") == "/a.yaml:2: document 1 (TrainJob a): valid\n"
    note, error = err.replace(str(tmp_path), "").splitlines()
    assert note == "trainerctl: note: /values.yaml: not a Kubernetes object, skipped"
    assert error.startswith("trainerctl: /z.yaml:2: ")
    (tmp_path / "z.yaml").unlink()
    assert trainerctl.main(["validate", "-f", str(tmp_path)]) == 0


def test_unknown_missing_and_refused_fields_are_reported_together(tool: Tool) -> None:
    text = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: a, label: {}}
spec:
  runtimeref: {name: torch-distributed}
  numNodes: 2
  podSpecOverrides: []
  nonsense: 1
  pod: 1
  podT: 1
  podTemplateOverrides: [{targetJob: node, spec: {nodeSelecter: {}}}]
  trainer: {resources: {}}
---"""
    refused = JOB % ("b", "nowhere") + "  numnodes: 2\n"
    code, out, _ = tool("validate", text + refused)
    lines = [line.partition(": ")[2] for line in out.splitlines()]
    assert code == 1
    assert lines[1:11] == [
        "* metadata.label: unknown field; did you mean labels?",
        "* spec.nonsense: unknown field",
        "* spec.numNodes: unknown field; did you mean spec.trainer.numNodes?",
        "* spec.pod: unknown field",
        (
            "* spec.podSpecOverrides: unknown field; since Trainer v2.1, it is podTemplateOverrides, and the fields"
            " of a pod are below its spec"
        ),
        "* spec.podT: unknown field; did you mean podTemplateOverrides?",
        "* spec.podTemplateOverrides[0].spec.nodeSelecter: unknown field; did you mean nodeSelector?",
        "* spec.podTemplateOverrides[0].targetJob: unknown field; targetJobs is a list of {name: JOB}",
        "* spec.runtimeref: unknown field; did you mean runtimeRef?",
        "* spec.trainer.resources: unknown field; did you mean resourcesPerNode?",
    ]
    assert lines[11:13] == [
        "* spec.podTemplateOverrides[0].targetJobs: Required value",
        "* spec.runtimeRef: Required value",
    ]
    assert '* admission webhook "validator.trainjob.trainer.kubeflow.org" denied' in lines[-1]


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {containers: [{name: node, image: a}]}}}}
"""


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            JOB % ("a", "mine") + "---" + RUNTIME,
            "there is a TrainingRuntime mine: to use it, set spec.runtimeRef.kind",
        ),
        (
            JOB % ("a", "torch-distributed, kind: TrainingRuntime"),
            "there is a ClusterTrainingRuntime torch-distributed: to use it, set spec.runtimeRef.kind",
        ),
        (JOB % ("a", "nowhere"), ""),
    ],
)
def test_a_runtime_of_this_name_and_the_other_kind_is_named(tool: Tool, text: str, hint: str) -> None:
    code, out, _ = tool("validate", text)
    assert (code, "there is a" in out) == (1, bool(hint))
    assert hint in out
    webhook = 'admission webhook "validator.trainjob.trainer.kubeflow.org"'
    assert f"Error from server (Forbidden): {webhook} denied the request: " in out
    code, _, err = tool("render", text)
    assert code == 1
    assert hint in err
    assert ("the shipped runtimes are" in err) == (not hint)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("TrainJob", "Trainjob"), "* did you mean TrainJob in trainer.kubeflow.org/v1alpha1?"),
        (("v1alpha1", "v2alpha1"), "* did you mean TrainJob in trainer.kubeflow.org/v1alpha1?"),
        (
            ("TrainJob", "Thing"),
            "* the kinds of trainer.kubeflow.org/v1alpha1 are TrainJob, TrainingRuntime,",
        ),
    ],
)
def test_for_a_kind_that_is_not_served_the_right_one_is_named(
    tool: Tool, changed: tuple[str, str], words: str
) -> None:
    text = (JOB % ("a", "torch-distributed")).replace(*changed)
    code, out, _ = tool("validate", text)
    assert (code, words in out) == (1, True)
    for command in ("render", "explain", "convert --to 2.3"):
        code, _, err = tool(command, text)
        assert (code, words.removeprefix("* ") in err) == (2, True)


def test_what_keeps_an_object_from_being_created_is_a_warning(tool: Tool) -> None:
    one = JOB % ("a", "torch-distributed")
    stored = one.replace("name: a", 'name: b, resourceVersion: "5"')
    generated = one.replace("name: a", "generateName: a-")
    code, out, _ = tool("validate", "---".join([one, one, stored, generated, generated]))
    assert code == 0
    assert [line.partition("): ")[2] for line in out.splitlines()] == [
        "valid",
        "Warning: in.yaml, document 1 has the same kind and name",
        "valid",
        "Warning: metadata.resourceVersion: remove it to create the object; with it, an object can only be updated",
        *["valid"] * 3,
    ]


def test_a_template_in_quotes_and_a_kustomization_are_told(tool: Tool, tmp_path: Path) -> None:
    text = "---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n---"
    _, _, err = tool("validate", text + JOB % ('"{{ .Release.Name }}"', "a"))
    assert "note: in.yaml: this looks like a template: give the output of `helm template` instead" in err
    assert (
        f"(Kustomization): not validated: not a Trainer kind; give the output of `kubectl kustomize {tmp_path}`"
        in err
    )
    _, _, err = tool("validate", JOB % ("a", "torch-distributed") + "  trainer: {args: ['{{ x }}']}")
    assert err == ""


@pytest.mark.parametrize(
    "encode", [lambda text: b"\xef\xbb\xbf" + text.encode(), lambda text: text.replace("\n", "\r\n").encode()]
)
def test_byte_order_marks_and_line_ends_of_windows_change_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, encode: Callable[[str], bytes]
) -> None:
    text = (
        (JOB % ("a", "torch-distributed")).lstrip()
        + "---"
        + JOB % ("b", "torch-distributed")
        + "---\na: {{ b }}\n"
    )
    (tmp_path / "in.yaml").write_bytes(encode(text))
    assert trainerctl.main(["validate", "-f", str(tmp_path / "in.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out.replace(str(tmp_path), "").splitlines() == [
        "/in.yaml:1: document 1 (TrainJob a): valid",
        "/in.yaml:7: document 2 (TrainJob b): valid",
    ]
    assert "/in.yaml:13: a: a map cannot be a key; this looks like a template" in err


def test_a_value_that_yaml_takes_for_another_type_needs_quotes_and_the_refused_runtime_is_named(
    tool: Tool,
) -> None:
    runtime = RUNTIME.replace("image: a", "image: a, env: [{name: A, value: on}]")
    text = JOB % ("a", "mine, kind: TrainingRuntime") + "---" + runtime
    code, out, _ = tool("validate", text)
    assert code == 1
    assert out.splitlines()[0].endswith(
        "(TrainJob a): Warning: the TrainingRuntime mine of in.yaml, document 2 is refused, or in another namespace"
    )
    assert 'must be of type string: "boolean"; to make it a string, put it in quotes' in out
    code, _, err = tool("render", text)
    assert (code, "put it in quotes" in err) == (2, True)


def test_every_field_that_is_wrong_is_named_with_its_line(tool: Tool) -> None:
    text = JOB % ("bad", "torch-distributed") + "  managedBy: me\n  trainer:\n    args: a\n"
    code, out, _ = tool("validate", "---\n# nothing\n---" + text)
    assert code == 1
    assert [line.split(" Invalid")[0].removesuffix(":") for line in out.splitlines()] == [
        'in.yaml:4: document 2 (TrainJob bad): The TrainJob "bad" is invalid',
        "in.yaml:11: * spec.trainer.args",
        "in.yaml:4: *",
    ]


def test_a_rule_is_told_by_its_message(tool: Tool) -> None:
    _, out, _ = tool("validate", JOB % ("a" * 64, "torch-distributed"))
    assert (
        out.splitlines()[1] == "in.yaml:2: * Invalid value: metadata.name must be no more than 63 characters"
    )


def test_a_webhook_that_answers_for_the_crd_names_each_field(tool: Tool) -> None:
    text = JOB % ("bad", "torch-distributed") + "  initializer:\n    dataset:\n      storageUri: nowhere\n"
    code, out, _ = tool("validate --compatibility-version 2.3", text)
    detail = 'Invalid value: "nowhere": storageUri may be empty, or it must be a valid URI (scheme://...)'
    assert (code, out.splitlines()) == (
        1,
        [
            'in.yaml:2: document 1 (TrainJob bad): The TrainJob "bad" is invalid:',
            f"in.yaml:9: * spec.initializer.dataset.storageUri: {detail}",
        ],
    )


def test_a_runtime_of_the_same_input_is_found_by_its_namespace(tool: Tool) -> None:
    job = JOB % ("a", "mine, kind: TrainingRuntime")
    for namespace, code in (("team", 0), ("other", 1)):
        runtime = RUNTIME.replace("{name: mine}", f"{{name: mine, namespace: {namespace}}}")
        assert tool("validate -n team", runtime, job)[0] == code


@pytest.mark.parametrize(
    ("metadata", "spec", "words"),
    [
        ("ownerReferences: 5", "", "cannot unmarshal number into Go struct field ObjectMeta.ownerReferences of type []v1.OwnerReference"),
        ("ownerReferences: [a]", "", "cannot unmarshal string into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference"),
        ("generation: x", "", "cannot unmarshal string into Go struct field ObjectMeta.generation of type int64"),
        ("creationTimestamp: 5", "", "cannot unmarshal number into Go value of type string"),
        ("creationTimestamp: yesterday", "", 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00"'),
        ("deletionTimestamp: 2024-01-01", "", 'parsing time "2024-01-01"'),
        ("finalizers: [null]", "", 'metadata.finalizers: Invalid value: ""'),
        ("namespace: A_B", "", 'metadata.namespace: Invalid value: "A_B"'),
        ("labels: {}", "activeDeadlineSeconds: 99999999999999999999", 'spec.activeDeadlineSeconds in body must be of type integer: "number"'),
    ],
)  # fmt: skip
def test_metadata_and_numbers_that_go_cannot_decode_are_refused(
    tool: Tool, metadata: str, spec: str, words: str
) -> None:
    head = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"
    job = f"{head}metadata: {{name: a, {metadata}}}\nspec: {{runtimeRef: {{name: torch-distributed}}, {spec}}}\n"
    code, out, err = tool("validate", job)
    assert (code, err) == (1, "")
    assert words in out


NO_POD = "admitted, but no pod will start"


@pytest.mark.parametrize(
    ("nodes", "of_job", "verdicts", "lines"),
    [
        (-1, "replicas: 1", ["valid", NO_POD], ["24: document 2 (TrainJob a): spec.trainer.numNodes: -1 must"]),
        (0, "replicas: 1", ["valid", NO_POD], ["24: document 2 (TrainJob a): spec.trainer.numNodes: 0 must"]),
        (
            1, "replicas: -1", [NO_POD] * 2,
            ["13: document 1 (ClusterTrainingRuntime mine): spec.template.spec.replicatedJobs[1].replicas: -1"] * 2,
        ),
        (
            1, "dependsOn: [{name: missing, status: Ready}]", [NO_POD] * 2,
            ["13: document 1 (ClusterTrainingRuntime mine): spec.template.spec.replicatedJobs[1].dependsOn[0].name: missing is"] * 2,
        ),
        (1, "dependsOn: [{name: node, status: Ready}]", ["valid", "valid"], []),
    ],
    ids=["negative", "zero", "replicas", "dependency", "good"],
)  # fmt: skip
def test_an_object_with_values_with_which_no_pod_can_start_is_not_valid(
    tool: Tool, nodes: int, of_job: str, verdicts: list[str], lines: list[str]
) -> None:
    text = f"""apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: mine}}
spec:
  mlPolicy: {{torch: {{}}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
          spec: {{template: {{spec: {{containers: [{{name: node, image: i}}]}}}}}}
      - {of_job}
        name: side
        template: {{spec: {{template: {{spec: {{containers: [{{name: side, image: i}}]}}}}}}}}
---
{JOB % ("a", "mine")}  trainer:
    numNodes: {nodes}
"""
    code, out, _ = tool("validate", text)
    found = out.splitlines()
    assert [line.rpartition(": ")[2] for line in found if line.endswith((": valid", NO_POD))] == verdicts
    assert code == (verdicts != ["valid"] * 2)
    others = [line.partition(".yaml:")[2] for line in found if not line.endswith((": valid", NO_POD))]
    assert [line[: len(each)] for line, each in zip(others, lines, strict=True)] == lines


def test_a_train_job_is_not_valid_if_the_webhook_refuses_its_runtime(tool: Tool) -> None:
    runtime = written_cluster_runtime("mine", pod={"containers": [{"name": "main", "image": "i"}]})
    code, out, _ = tool("validate", runtime.to_dict(), JOB % ("a", "mine"))
    refused, hint, missing = out.splitlines()
    assert (code, "must contain the required container" in refused) == (1, True), refused
    assert "the ClusterTrainingRuntime mine of in.yaml, document 1 is refused" in hint
    assert 'clustertrainingruntimes.trainer.kubeflow.org "mine" not found' in missing


def test_an_obstacle_in_a_shipped_runtime_would_be_named_at_the_reference_to_it() -> None:
    document = InputObject(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "a"},
         "spec": {"runtimeRef": {"name": "mine"}}}, "in.yaml", 1,
    )  # fmt: skip
    job = {"name": "node", "replicas": 1, "dependsOn": [{"name": "x", "status": "Ready"}], "template": {}}
    runtime = ClusterTrainingRuntime.from_dict(
        {"metadata": {"name": "mine"}, "spec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    )
    (found,) = podfindings.obstacles_of(TrainJob.from_dict(document.data), runtime, document, [document])
    assert str(found).startswith(
        "in.yaml: document 1 (TrainJob a): spec.runtimeRef: ClusterTrainingRuntime mine: spec.template.spec."
    )


def test_a_runtime_with_malformed_metadata_has_a_verdict_of_its_own(tool: Tool) -> None:
    runtime = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: r, managedFields: {}}\n"
    code, out, err = tool("validate", f"{runtime}---{JOB % ('fine', 'torch-distributed')}")
    assert (code, err) == (1, "")
    assert "document 1 (TrainingRuntime r): Error from server (BadRequest)" in out
    assert "document 2 (TrainJob fine): valid" in out


def test_programs_get_json(tool: Tool) -> None:
    text = JOB % ("fine", "torch-distributed") + "---" + JOB % ("odd", "x") + "  nope: 1\n"
    code, out, _ = tool("validate -o json", text)
    fine, odd = json.loads(out)
    assert code == 1
    assert (fine["valid"], fine["code"], fine["name"]) == (True, 200, "fine")
    assert (odd["valid"], odd["code"], odd["reason"], odd["document"]) == (False, 400, "BadRequest", 2)
    assert odd["causes"][0] == {"field": "spec.nope", "message": "unknown field"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "in.yaml:2: did not find expected node content"),
        (
            "kind: ConfigMap\napiVersion: v1\n",
            "the input contains no TrainJob, TrainingRuntime or ClusterTrainingRuntime",
        ),
        ("[]", "contains no Kubernetes objects"),
    ],
)
def test_input_that_cannot_be_judged_is_code_2(tool: Tool, text: str, complaint: str) -> None:
    code, out, err = tool("validate", text)
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize(
    ("rule", "value", "verdict"),
    [
        ("self > 0 || self in ['auto', 'cpu']", 1, True),
        ("self > 0 || self in ['auto', 'cpu']", 0, False),
        ("self > 0 || self in ['auto', 'cpu']", "cpu", True),
        ("self > 0 || self in ['auto', 'cpu']", "tpu", "'no such overload': call arguments did not match"),
        ("!(has(self.a) && has(self.b))", {"a": 1}, True),
        ("!(has(self.a) && has(self.b))", {"a": 1, "b": None}, False),
        ("self.name.matches('^[a-z]+$')", {"name": "A"}, False),
        ("self.all(x, size(x.name) <= 3)", [{"name": "abc"}], True),
    ],
)
def test_rules_are_evaluated_as_the_server_does(rule: str, value: Any, verdict: bool | str) -> None:
    found = Evaluator()(rule, value)
    assert str(found).startswith(str(verdict))


def test_every_rule_of_the_shipped_crds_compiles() -> None:
    def rules(schema: Any) -> list[str]:
        if isinstance(schema, list):
            return [rule for each in schema for rule in rules(each)]
        if not isinstance(schema, dict):
            return []
        own = [each["rule"] for each in schema.get("x-kubernetes-validations", ())]
        return own + [rule for each in schema.values() for rule in rules(each)]

    found = {rule for schema in schemas().values() for rule in rules(schema)}
    assert len(found) >= 8
    for rule in found:
        cel.compile(rule)
