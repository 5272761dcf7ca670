# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The runner finds a wrong answer, in any part of any operation's answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replayer import cases, compare, groupcompare, ops

RECORDED = Path(__file__).parents[1] / "testdata" / "parity"
Answer = dict[str, Any]


def representative() -> Iterator[Any]:
    """Yield, for each part of each operation's answer, the first case whose answer contains it."""
    seen = set()
    for case in cases.load(sorted(RECORDED.glob("*.json"))):
        special = case.want.keys() & {"panic", "unordered", "anyOf"}
        if special or "multikueue" in json.dumps(case.input):
            continue
        for part, held in case.want.items():
            if groupcompare.concerns(case) and part in {"error", "steps"}:
                continue  # the wording of these parts may differ; a test below covers them
            if held and (case.op, part) not in seen:
                seen.add((case.op, part))
                yield pytest.param(case, part, id=f"{case.op}: {part}")


CASES = list(representative())


def wrong_answers(got: Answer, part: str) -> Iterator[tuple[str, Answer]]:
    """Yield the answer with one wrong value in ``part``, for each value in it."""
    for path in paths(got[part], (part,)):
        value = at(got, path)
        if value is not None and path[:-1] != ("objects",):
            yield f"{path} is null", changed(got, path, None)
        if path[:-1] != ("objects",):
            yield f"{path} is another", changed(got, path, other(value))
        yield f"{path} is missing", changed(got, path)
        if isinstance(value, dict):
            yield f"{path} has more", changed(got, (*path, "unheard"), "of")
        if isinstance(value, list):
            more = {**value[-1], "unheard": "of"} if value and isinstance(value[-1], dict) else "more"
            yield f"{path} has an item more", changed(got, path, [*value, more])
            if len(value) > 1 and value[::-1] != value and path[0] != "applied":
                yield f"{path} is the other way round", changed(got, path, value[::-1])


def paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for name, held in value.items():
            yield from paths(held, (*path, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths(item, (*path, index))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}?"
        case list():
            return {}
        case _:
            return []


def changed(got: Answer, path: tuple[Any, ...], *value: Any) -> Answer:
    wrong = copy.deepcopy(got)
    holder = at(wrong, path[:-1])
    if value:
        holder[path[-1]] = value[0]
    else:
        del holder[path[-1]]
    return wrong


@pytest.mark.parametrize(("case", "part"), CASES)
async def test_each_thing_that_is_wrong_is_seen(case: cases.Case, part: str) -> None:
    got = compare.normalised(await ops.answer(case))
    assert compare.differences(case, got) == []
    missed = [what for what, wrong in wrong_answers(got, part) if not compare.differences(case, wrong)]
    assert missed == []


def test_every_operation_is_among_the_cases() -> None:
    assert {param.values[0].op for param in CASES} == set(ops._OPS)


@pytest.mark.parametrize("got", [{"panic": "KeyError: 'a'"}, {"allowed": True}, {"objects": []}, {}])
def test_where_upstream_broke_nothing_but_a_refusal_will_do(got: Answer) -> None:
    for op in ops._OPS:
        case = cases.Case(op, "a/b", {"panic": "nil pointer"}, {})
        assert compare.differences(case, got) != []


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("owners", {"error": None}),
        ("owners", {"error": {"stage": "metadata", "message": "?"}}),
        ("metadata", {"error": {"stage": "metadata", "message": "?"}}),
        ("reconcile", {"steps": []}),
        ("reconcile", {"steps": [{"requeue": True}]}),
        ("reconcile", {"steps": [{"writes": [{"verb": "create", "kind": "PodGroup", "name": "more"}]}]}),
        ("reconcile", {"steps": [{"events": ["Warning Other"]}]}),
        ("reconcile", {"steps": [{"error": {"stage": "metadata", "message": "?"}}]}),
    ],
    ids=str,
)
async def test_a_wrong_error_or_step_about_pods_is_seen(op: str, change: Answer) -> None:
    fails = op == "owners"
    case = next(
        case
        for case in cases.load([RECORDED / f"groups-{op}.json"])
        if case.op == op
        and bool(case.want.get("error")) is fails
        and not (case.want.get("error") or {}).get("panic")
    )
    got = await ops.answer(case)
    assert not compare.differences(case, got)
    wrong = {**got, **change}
    if change.get("steps"):
        wrong["steps"] = [{**got["steps"][0], **change["steps"][0]}, *got["steps"][1:]]
    assert compare.differences(case, wrong)


REFERS_TO_NOTHING: Answer = {
    "trainJob": {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "team-a", "uid": "11111111-2222-3333-4444-555555555555"},
        "spec": {"runtimeRef": {"name": "rt", "kind": "Foo", "apiGroup": "trainer.kubeflow.org"}},
    }
}
UNSUPPORTED = "unsupported runtime: Foo.trainer.kubeflow.org"
STORED: Answer = {
    "conditions": [{"type": "Failed", "status": "True", "reason": "TrainingRuntimeNotSupported"}]
}


@pytest.mark.parametrize(
    "want", [{"panic": "nil pointer"}, {"error": UNSUPPORTED}], ids=lambda want: next(iter(want))
)
@pytest.mark.parametrize("op", ["status", "reconcile"])
async def test_a_runtime_of_an_unknown_kind_is_an_error_of_its_own_and_no_breakage(
    op: str, want: Answer
) -> None:
    case = cases.Case(op, f"{op}/unknown-kind", want, {"op": op, "want": want, **REFERS_TO_NOTHING})
    assert compare.differences(case, await ops.answer(case)) == []
    broken = {"panic": "KeyError: 'Foo'"}
    assert compare.differences(case, broken) != []


@pytest.mark.parametrize(
    ("op", "got"),
    [
        ("status", {"status": None}),
        ("status", {"status": {"conditions": []}}),
        ("reconcile", {"error": None, "status": {}, "applied": [], "events": []}),
        ("reconcile", {"error": UNSUPPORTED, "status": {}, "applied": [], "events": []}),
        ("reconcile", {"error": None, "status": STORED, "applied": [{"kind": "JobSet"}], "events": []}),
    ],
)
@pytest.mark.parametrize(
    "want", [{"panic": "nil pointer"}, {"error": UNSUPPORTED}], ids=lambda want: next(iter(want))
)
def test_a_runtime_of_an_unknown_kind_that_is_overlooked_is_seen(op: str, got: Answer, want: Answer) -> None:
    case = cases.Case(op, f"{op}/unknown-kind", want, {"op": op, "want": want, **REFERS_TO_NOTHING})
    assert compare.differences(case, got) != []
