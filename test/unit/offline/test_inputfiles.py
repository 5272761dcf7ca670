# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reading ``-f FILE…``: what is found, and the one line that says what is wrong and where."""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pkg.apis.scheme import default_scheme
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.offline import inputfiles, yamljson

JOB = (
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: llama, namespace: team-a}\n"
)
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def write(tmp_path: Path, text: str, name: str = "job.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def read_one(tmp_path: Path, text: str, name: str = "job.yaml") -> inputfiles.InputObject:
    (found,) = inputfiles.read([write(tmp_path, text, name)])
    return found


def complaint(tmp_path: Path, text: str, name: str = "job.yaml") -> str:
    def read_and_decode() -> None:
        for document in inputfiles.read([write(tmp_path, text, name)]):
            document.decode_with(default_scheme())

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
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("1e3", 1000),
        ("1.5", 1.5),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("yes", True),
        ("~", None),
        ("=", "="),
        ("0x_", "0x_"),
        ("-0b_", "-0b_"),
        ("0o_", "0o_"),
        ("0_", 0),
        ("0x_f", 15),
        ("1.2.3", "1.2.3"),
        ("{1: a, true: b}", {"1": "a", "true": "b"}),
        ("{<<: {a: 1, b: 1}, b: 2}", {"a": 1, "b": 2}),
    ],
)
def test_yaml_means_what_it_means_to_kubectl(text: str, value: Any) -> None:
    assert list(yamljson.parse(f"v: {text}")) == [(1, {"v": value})]


def merges(levels: int, width: int, keys: int = 1) -> str:
    """Return maps of which each merges the one before ``width`` times."""
    lines = ["a0: &a0 {" + ", ".join(f"k{number}: 1" for number in range(keys)) + "}"]
    for level in range(1, levels + 1):
        sources = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} {{<<: [{sources}], x{level}: 1}}")
    return "\n".join(lines)


def test_a_merge_gives_way_to_the_map_s_own_keys_and_the_first_that_is_merged() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*b, *a], z: 5}\nd: {<<: *a, e: {<<: *b}}\n"
    ((_, data),) = yamljson.parse(text)
    assert data["c"] == {"x": 1, "y": 3, "z": 5}
    assert data["d"] == {"x": 1, "y": 2, "e": {"y": 3, "z": 4}}
    assert data == yaml.safe_load(text)


def test_merges_of_merges_do_not_multiply() -> None:
    ((_, data),) = yamljson.parse(merges(levels=30, width=9))
    assert len(data["a30"]) == 31


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (merges(levels=200, width=50, keys=1000), "merges make it too large"),
        ("a: &a {<<: *a}", "a map merges itself"),
        ("a: &a {b: &b {<<: *a}, <<: *b}", "a map merges itself"),
        ("a: {<<: 1}", "<< needs a map, or a list of maps"),
        ("a: {<<: [{}, 1]}", "<< needs a map, or a list of maps"),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "key << is given twice"),
    ],
)
def test_a_merge_that_cannot_be_carried_out_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(yamljson.SyntaxProblemError, match=problem):
        list(yamljson.parse(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 100_000 + "]" * 100_000, "nested more than 200 levels deep"),
        ("\n".join(" " * number + "a:" for number in range(1_100)), "nested more than 200 levels deep"),
        ("- " * 50_000 + "a", "nested more than 200 levels deep"),
        ("a: " + "{b: " * 300 + "1" + "}" * 300, "nested more than 200 levels deep"),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", "nested more than 200 levels deep"),
        ("[" * 100_000, "nested more than 200 levels deep"),
        ("a: " + "9" * 5_000, "a number has more than 1000 digits"),
        ('{"a": ' + "9" * 5_000 + "}", "a number has more than 1000 digits"),
        ('{"a": 1e999}', "is not a number in JSON"),
    ],
)
def test_what_would_break_the_parser_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(yamljson.SyntaxProblemError, match=problem):
        list(yamljson.parse(text))


def test_brackets_in_text_are_no_nesting() -> None:
    script = "[" * 2_000
    assert list(yamljson.parse(f"a: '{script}'\nb: {'-' * 1_500}x\n")) == [
        (1, {"a": script, "b": "-" * 1_500 + "x"})
    ]


@pytest.mark.parametrize("text", ['{"a": "\\ud800x", "b\\uDFFF": ["\\ud83d\\ude00"]}', '"a": "\\uD800x"'])
def test_half_of_a_surrogate_pair_can_be_printed(text: str) -> None:
    try:
        ((_, data),) = yamljson.parse(text)
    except yamljson.SyntaxProblemError:
        assert not text.startswith("{")  # libyaml refuses it
    else:
        assert data["a"] == "\ufffdx"
        yamljson.dump(data).encode()


def test_a_line_is_found_in_time_that_does_not_grow_with_the_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "spec:\n" + "".join(f"  field{number}: 1\n" for number in range(500))
    composed: list[str] = []
    compose_all = yaml.compose_all

    def counted(given: str, *, Loader: Any) -> Any:  # noqa: N803 as yaml has it
        composed.append(given)
        return compose_all(given, Loader=Loader)

    monkeypatch.setattr(yaml, "compose_all", counted)
    lines = [yamljson.line_of(text, 1, ("spec", f"field{number}")) for number in range(500)]
    assert lines == list(range(2, 502))
    assert composed == [text]


def test_aliases_share_nothing() -> None:
    ((_, data),) = yamljson.parse("a: &x {b: 1}\nc: *x\n")
    data["a"]["b"] = 2
    assert data["c"] == {"b": 1}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (JOB + "spec: {runtimeRef: [}", "job.yaml:4: did not find expected node content"),
        (JOB + "spec:\n  a: 1\n  a: 2\n", "job.yaml:6: key a is given twice"),
        (JOB + "spec: {a: .nan}", "job.yaml:4: .nan is not a number in JSON"),
        (JOB + "spec: {a: !!binary aGk=}", "job.yaml:4: a value of type binary has no place in JSON"),
        (JOB + "spec: &a {a: *a}", "job.yaml: an alias contains itself"),
        (JOB + "spec: {a: !!int x}", "job.yaml:4: 'x' is not a value of type int"),
        (JOB + "spec:\n  a: !!int\n", "job.yaml:5: '' is not a value of type int"),
        (JOB + "spec: {a: !!float ''}", "job.yaml:4: '' is not a value of type float"),
        (JOB + "spec: {a: !!bool maybe}", "job.yaml:4: 'maybe' is not a value of type bool"),
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
        ("apiVersion: v1\nkind: A\nmetadata: 3\n", "job.yaml:3: document 1 (A): metadata: a map is expected"),
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
        ('{"a": 1,\n"b": {\n"a": 1,\n"a": 2}}', "4: key a is given twice"),
        ('{"a": "NaN",\n"b": NaN}', "2: NaN is not a number in JSON"),
        ('{"a": [1,\n2,\n-1e999]}', '3: "-1e999" is not a number in JSON'),
        ('{"a": "\\"",\n"b": ' + "1" * 1_001 + "}", "2: a number has more than 1000 digits"),
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
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(inputfiles.InputError, match="not UTF-8 text"):
        inputfiles.read([str(tmp_path / "a.yaml")])


def test_a_link_of_a_folder_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    write(tmp_path, JOB)
    (tmp_path / "later.yaml").symlink_to("none.yaml")
    with pytest.raises(inputfiles.InputError, match=r"later\.yaml: No such file or directory"):
        inputfiles.read([str(tmp_path)])


def test_a_name_that_the_system_refuses_is_an_error_of_the_input() -> None:
    with pytest.raises(inputfiles.InputError, match=r"a: File name too long"):
        inputfiles.read(["a" * 300])


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    with pytest.raises(yamljson.SyntaxProblemError, match="too large"):
        list(yamljson.parse(bomb))


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(yamljson.SyntaxProblemError):
        list(yamljson.parse(text))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
        max_leaves=10,
    )
)
def test_json_is_read_as_json_reads_it(value: Any) -> None:
    assert list(yamljson.parse(json.dumps(value), is_json=True)) == [(1, value)]
