# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reading ``-f FILE…``: the objects that are found, and one line for each error, with its place."""

import io
import json
import sys
from pathlib import Path

import pytest
from pkg.apis import default_scheme
from pkg.apis.trainer.v1alpha1 import TrainJob

from trainerctl.offline import inputfiles

JOB = (
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: llama, namespace: team-a}\n"
)
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def write(tmp_path: Path, text: str, name: str = "job.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def complaint(tmp_path: Path, text: str, name: str = "job.yaml") -> str:
    def read_and_decode() -> None:
        for document in inputfiles.read([write(tmp_path, text, name)]):
            document.decode(default_scheme().kind_for(document.gvk))

    with pytest.raises(inputfiles.InputError) as caught:
        read_and_decode()
    return str(caught.value).removeprefix(str(tmp_path) + "/")


def test_documents_keep_their_order_and_number_and_empty_ones_count(tmp_path: Path) -> None:
    found = inputfiles.read([write(tmp_path, f"---\n# nothing\n---\n{JOB}---\n{MAP}")])
    assert [(each.number, each.name) for each in found] == [(2, "TrainJob team-a/llama"), (3, "ConfigMap a")]


def test_a_folder_gives_its_files_by_name(tmp_path: Path) -> None:
    write(tmp_path, MAP, "b.yml")
    write(tmp_path, JOB, "a.yaml")
    write(tmp_path, json.dumps({"apiVersion": "v1", "kind": "Secret"}), "c.json")
    write(tmp_path, "no manifest", "README.md")
    assert [each.gvk.kind for each in inputfiles.read([str(tmp_path)])] == ["TrainJob", "ConfigMap", "Secret"]


def test_lists_give_their_items_and_typed_ones_need_not_repeat_the_kind(tmp_path: Path) -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]
    listed = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJobList", "items": items}
    found = inputfiles.read(
        [write(tmp_path, json.dumps({"apiVersion": "v1", "kind": "List", "items": [listed]}))]
    )
    assert [(each.name, each.inside) for each in found] == [
        ("TrainJob a", ("items", 0, "items", 0)),
        ("TrainJob b", ("items", 0, "items", 1)),
    ]


def test_json_may_hold_many_values(tmp_path: Path) -> None:
    text = '{"apiVersion": "v1", "kind": "A"}\n{"apiVersion": "v1", "kind": "B"}'
    assert [each.number for each in inputfiles.read([write(tmp_path, text, "a.json")])] == [1, 2]


async def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    (found,) = await inputfiles.load(["-"])
    assert (found.source, found.name) == ("standard input", "TrainJob team-a/llama")
    with pytest.raises(inputfiles.InputError, match="only once"):
        await inputfiles.load(["-", "-"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (JOB + "spec: {runtimeRef: [}", "job.yaml:4: did not find expected node content"),
        (JOB + "spec:\n  a: 1\n  a: 2\n", "job.yaml:6: spec.a: key is given twice, first at line 5"),
        (JOB + "spec: {a: .nan}", "job.yaml:4: spec.a: nan is not a number in JSON"),
        (JOB + "spec: &a {a: *a}", "job.yaml:4: spec.a: anchor 'a' value contains itself"),
        (JOB + "spec:\n  a: !!int\n", "job.yaml:5: spec.a: '' is not of type int"),
        (
            JOB.replace("trainer.kubeflow.org/v1alpha1", "a/b/c"),
            (
                "job.yaml:1: document 1 (TrainJob team-a/llama): apiVersion: "
                'GROUP/VERSION or VERSION is expected, not "a/b/c"'
            ),
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: ''\n",
            "job.yaml:3: document 1 (A): metadata: a map is expected",
        ),
        (MAP + "---\n- a\n", "job.yaml: document 2, [0]: a map is expected"),
        (MAP + "---\nkind: A\n", "job.yaml:5: document 2: apiVersion is missing or not a string"),
        ("# nothing\n", "job.yaml: contains no Kubernetes objects"),
        (
            f"{MAP}---\n{JOB}spec:\n  runtimeRef: {{name: x}}\n  trainer:\n    numNodes: three\n",
            (
                "job.yaml:11: document 2 (TrainJob team-a/llama): spec.trainer.numNodes: "
                'a whole number is expected, not "three"'
            ),
        ),
        (
            JOB + "spec:\n  trainer:\n    numProcPerNode: [1]\n",
            (
                "job.yaml:6: document 1 (TrainJob team-a/llama): spec.trainer.numProcPerNode: "
                "a whole number or a string is expected, not a list"
            ),
        ),
        (
            JOB + "spec:\n  podTemplateOverrides:\n  - targetJobs: [{name: 1}]\n",
            (
                "job.yaml:6: document 1 (TrainJob team-a/llama): spec.podTemplateOverrides[0].targetJobs[0].name: "
                "a string is expected, not 1"
            ),
        ),
    ],
)
def test_what_is_wrong_is_one_line_with_file_line_document_and_field(
    text: str, line: str, tmp_path: Path
) -> None:
    assert complaint(tmp_path, text) == line


def test_bad_json_tells_its_line(tmp_path: Path) -> None:
    assert complaint(tmp_path, '{\n"a": }', "a.json") == "a.json:2: not JSON: Expecting value"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1,\n"b": {\n"a": 1,\n"a": 2}}', "4: b.a: key is given twice, first at line 3"),
        ('{"a": "NaN",\n"b": NaN}', "2: 'NaN' is not a number in JSON"),
        ('{"a": [1,\n2,\n-1e999]}', "3: '-1e999' is not a number in JSON"),
        ('{"a": "\\"",\n"b": ' + "1" * 1_001 + "}", f"2: '{'1' * 56} ...' is not a number in JSON"),
    ],
)
def test_json_that_cannot_be_represented_has_a_line(text: str, line: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, text, "a.json") == f"a.json:{line}"


def test_items_of_a_list_are_named_by_their_place(tmp_path: Path) -> None:
    job = {"apiVersion": TrainJob.gvk.api_version, "kind": "TrainJob", "spec": {"suspend": "no"}}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [job]}, indent=1)
    assert complaint(tmp_path, text, "a.json") == (
        'a.json:9: document 1, items[0] (TrainJob): spec.suspend: true or false is expected, not "no"'
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(inputfiles.InputError, match=r"none\.yaml: No such file or directory"):
        inputfiles.read([str(tmp_path / "none.yaml")])
    (tmp_path / "a.yaml").write_bytes(b"\xff\x00")
    with pytest.raises(inputfiles.InputError, match="not UTF-8 text"):
        inputfiles.read([str(tmp_path / "a.yaml")])
    (tmp_path / "a.yaml").write_bytes(JOB.encode("utf-16"))
    with pytest.raises(inputfiles.InputError, match="UTF-16 text: save the file as UTF-8"):
        inputfiles.read([str(tmp_path / "a.yaml")])


def test_a_link_of_a_folder_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    write(tmp_path, JOB)
    (tmp_path / "later.yaml").symlink_to("none.yaml")
    with pytest.raises(inputfiles.InputError, match=r"later\.yaml: No such file or directory"):
        inputfiles.read([str(tmp_path)])


def test_a_name_that_the_system_refuses_is_an_error_of_the_input() -> None:
    with pytest.raises(inputfiles.InputError, match=r"a: File name too long"):
        inputfiles.read(["a" * 300])


TEMPLATE = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n"


async def test_of_a_folder_what_is_no_object_is_skipped_with_a_note(tmp_path: Path) -> None:
    write(tmp_path, "image: a\nnodes: 2\n", "values.yaml")
    write(tmp_path, "resources: [job.yaml]\n", "kustomization.yaml")
    write(tmp_path, "apiVersion: v2\nname: x\n", "Chart.yaml")
    write(tmp_path, "[1, 2]", "numbers.json")
    write(tmp_path, f"{JOB}---\na: 1\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / ".git").mkdir()
    notes: list[str] = []
    (found,) = await inputfiles.load([str(tmp_path)], notes.append)
    assert found.name == "TrainJob team-a/llama"
    assert [note.removeprefix(str(tmp_path)) for note in notes] == [
        ": subfolders are not read: templates; give each folder with -f",
        (
            f"/Chart.yaml: not a Kubernetes object, skipped; give the output of `helm template {tmp_path}` on standard"
            " input"
        ),
        "/job.yaml: document 2: not a Kubernetes object, skipped",
        (
            "/kustomization.yaml: not a Kubernetes object, skipped; give the output of `kubectl kustomize"
            f" {tmp_path}` on standard input"
        ),
        "/numbers.json: not a Kubernetes object, skipped",
        "/values.yaml: not a Kubernetes object, skipped",
    ]


def test_an_object_of_a_folder_without_a_kind_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "metadata: {name: a}\nspec: {}\n")
    with pytest.raises(
        inputfiles.InputError, match=r"job\.yaml:1: document 1: apiVersion and kind are missing"
    ):
        inputfiles.read([str(tmp_path)])


async def test_all_files_and_documents_that_cannot_be_read_are_named_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    write(tmp_path, f"{JOB}---\n{TEMPLATE}---\n{MAP}---\nkind: Secret\n", "a.yaml")
    write(tmp_path, "a: [1", "b.yaml")
    write(tmp_path, MAP, "c.yaml")
    found = await inputfiles.gather([str(tmp_path), str(tmp_path / "none.yaml")])
    assert [(each.number, each.name, each.line(("metadata",))) for each in found.objects] == [
        (1, "TrainJob team-a/llama", 3),
        (3, "ConfigMap a", 12),
        (1, "ConfigMap a", 3),
    ]
    assert [str(each).removeprefix(f"{tmp_path}/") for each in found.errors] == [
        (
            "a.yaml:8: metadata.name: a map cannot be a key; this looks like a template: give the output of"
            " `helm template` instead"
        ),
        "a.yaml:14: document 4: apiVersion is missing or not a string",
        "b.yaml:2: did not find expected ',' or ']'",
        "none.yaml: No such file or directory",
    ]
    with pytest.raises(inputfiles.InputError) as caught:
        await inputfiles.load([str(tmp_path)])
    assert len(str(caught.value).splitlines()) == 3
