# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The recorded answers, case by case, and the output of the replayer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import replay
from replayer import cases, compare, grouping, ops

RECORDED = Path(__file__).parents[1] / "testdata" / "parity"
CASES = list(cases.load(sorted(RECORDED.glob("*.json"))))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_the_product_answers_as_recorded(case: cases.Case) -> None:
    wrong = compare.differences(case, await ops.answer(case))
    assert not wrong, "\n".join(wrong)


def fails_a_read_that_is_not_made(case: cases.Case) -> bool:
    """Return True if a read of a cache fails that the manager with its cache of owners does not make."""
    return any(
        fault["verb"] == "get" and fault.get("client") == "cached" for fault in case.input.get("faults") or ()
    )


GROUPED = [
    case
    for case in cases.load(RECORDED / f"groups-{op}.json" for op in ("owners", "metadata", "v0.17-metadata"))
    if not fails_a_read_that_is_not_made(case)
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in GROUPED])
async def test_owners_from_the_managers_cache_give_the_recorded_groups(case: cases.Case) -> None:
    answer = {"owners": grouping.owners, "metadata": grouping.metadata}[case.op]
    wrong = compare.differences(case, await answer(case.input, remembering=True))
    assert not wrong, "\n".join(wrong)


def _file(tmp_path: Path, *content: object) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    return path


def _broken(case: cases.Case) -> dict[str, object]:
    return {**case.input, "want": {**case.want, "objects": []}}


@pytest.fixture
def plain() -> cases.Case:
    return next(case for case in CASES if case.op == "newObjects" and case.want.get("objects"))


def test_a_difference_is_shown_with_its_path_and_counted(
    tmp_path: Path, plain: cases.Case, capsys: pytest.CaptureFixture[str]
) -> None:
    code = replay.main([str(_file(tmp_path, plain.input, _broken(plain)))])

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[0] == f"FAIL {plain.name} (newObjects)"
    assert lines[1].startswith("    objects[0]: want nothing, got {")
    assert lines[-1] == "1 passed, 1 failed"


def test_emitted_answers_have_the_shape_of_the_recorded_ones(tmp_path: Path, plain: cases.Case) -> None:
    emitted = tmp_path / "got.json"

    assert replay.main([str(_file(tmp_path, _broken(plain))), "--emit", str(emitted)]) == 1

    assert json.loads(emitted.read_text()) == [{"op": plain.op, "name": plain.name, "got": plain.want}]


def test_families_are_whole_segments(
    tmp_path: Path, plain: cases.Case, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {**plain.input, "name": "newobjects/torch/x"}
    other = {**_broken(plain), "name": "newobjects/torchtune/x"}

    assert replay.main([str(_file(tmp_path, wanted, other)), "--family", "newobjects/torch"]) == 0

    assert capsys.readouterr().out == "1 passed, 0 failed\n"


def test_an_unknown_operation_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = replay.main([str(_file(tmp_path, {"op": "dance", "name": "a/b", "want": {}}))])

    assert (code, capsys.readouterr().out) == (
        1,
        "FAIL a/b (dance)\n    unknown op: dance\n0 passed, 1 failed\n",
    )


@pytest.mark.parametrize("content", ["{}", "nonsense", "[{}]"])
def test_a_file_that_holds_no_cases_is_named(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content)

    assert replay.main([str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"{path}: ")


def _case(op: str, want: dict[str, object], **given: object) -> cases.Case:
    return cases.Case(op, "a/b", want, {"op": op, "name": "a/b", "want": want, **given})


@pytest.mark.parametrize(
    ("want", "good", "bad"),
    [
        pytest.param(
            {"anyOf": [{"error": "a"}, {"error": "b"}]}, {"error": "b"}, {"error": "c"}, id="one of several"
        ),
        pytest.param(
            {"errors": [{"e": 1}, {"e": 2}], "unordered": ["errors"]},
            {"errors": [{"e": 2}, {"e": 1}], "message": "[2, 1]"},
            {"errors": [{"e": 2}, {"e": 2}]},
            id="errors in any order, without their message",
        ),
        pytest.param(
            {"error": "for <pointer> doesn't"},
            {"error": "for MPICH doesn't"},
            {"error": "for"},
            id="a pointer",
        ),
        pytest.param({"n": 1}, {"n": 1}, {"n": True}, id="a bool is no number"),
    ],
)
def test_comparing(want: dict[str, object], good: dict[str, object], bad: dict[str, object]) -> None:
    assert compare.differences(_case("x", want), good) == []
    assert compare.differences(_case("x", want), bad) != []


def test_applies_are_compared_as_a_set() -> None:
    ref = {"apiVersion": "v1", "kind": "A", "name": "a", "namespace": "n"}

    assert compare.differences(_case("reconcile", {"applied": [ref, ref]}), {"applied": [ref]}) == []
    assert compare.differences(_case("reconcile", {"applied": [ref]}), {"applied": []}) != []


def test_a_train_job_that_names_another_manager_is_to_be_left_alone() -> None:
    ref = {"apiVersion": "v1", "kind": "A", "name": "a", "namespace": "n"}
    upstream: dict[str, object] = {"applied": [ref], "error": None, "events": [], "status": {}}
    case = _case("reconcile", upstream, trainJob={"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}})

    assert compare.differences(case, {**upstream, "applied": []}) == []
    assert compare.differences(case, upstream) != []


def test_namesakes_may_be_woken_too_and_nobody_else() -> None:
    case = _case("enqueue", {"requests": {"p": ["a/j"]}})

    assert compare.differences(case, {"requests": {"p": ["a/j", "b/j"]}}) == []
    assert compare.differences(case, {"requests": {"p": ["a/j", "b/k"]}}) != []
    assert compare.differences(case, {"requests": {"p": ["b/j"]}}) != []
