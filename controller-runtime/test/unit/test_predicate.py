# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from controller_runtime import predicate
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.event import CreateEvent, DeleteEvent, GenericEvent, UpdateEvent
from controller_runtime.machinery import Object


def pod(**metadata: object) -> Pod:
    return Pod(metadata=ObjectMeta(name="a", **metadata))  # type: ignore[arg-type]  # any argument of the case


def answers(judge: predicate.Predicate[Pod], *, old: Pod, new: Pod) -> list[bool]:
    return [
        judge.create(CreateEvent(new)),
        judge.update(UpdateEvent(old, new)),
        judge.delete(DeleteEvent(new)),
        judge.generic(GenericEvent(new)),
    ]


@pytest.mark.parametrize(
    ("judge", "old", "new", "passes"),
    [
        pytest.param(
            predicate.GenerationChanged(), {"generation": 1}, {"generation": 2}, True, id="new spec"
        ),
        pytest.param(
            predicate.GenerationChanged(),
            {"generation": 1, "resource_version": "1"},
            {"generation": 1, "resource_version": "2"},
            False,
            id="new status",
        ),
        pytest.param(
            predicate.ResourceVersionChanged(),
            {"resource_version": "1"},
            {"resource_version": "2"},
            True,
            id="write",
        ),
        pytest.param(
            predicate.ResourceVersionChanged(),
            {"resource_version": "1"},
            {"resource_version": "1"},
            False,
            id="resync",
        ),
        pytest.param(
            predicate.LabelChanged(), {"labels": {"a": "1"}}, {"labels": {"a": "2"}}, True, id="label"
        ),
        pytest.param(predicate.LabelChanged(), {"labels": None}, {"labels": {}}, False, id="no labels"),
        pytest.param(
            predicate.AnnotationChanged(),
            {"annotations": {}},
            {"annotations": {"a": "2"}},
            True,
            id="annotation",
        ),
        pytest.param(
            predicate.AnnotationChanged(),
            {"labels": {"a": "1"}},
            {"labels": {"a": "2"}},
            False,
            id="label, not annotation",
        ),
    ],
)
def test_a_change_passes_if_it_changed_what_is_asked_for(
    judge: predicate.Predicate[Object], old: dict[str, object], new: dict[str, object], passes: bool
) -> None:
    assert answers(judge, old=pod(**old), new=pod(**new)) == [True, passes, True, True]


def test_functions_judge_the_events_they_are_given_for_and_others_pass() -> None:
    judge = predicate.Funcs[Pod](create=lambda evt: evt.is_in_initial_list, delete=lambda _: False)
    assert answers(judge, old=pod(), new=pod()) == [False, True, False, True]
    assert judge.create(CreateEvent(pod(), is_in_initial_list=True))


def test_a_question_about_objects_is_asked_about_the_new_one_of_a_change() -> None:
    judge: predicate.Predicate[Pod] = predicate.from_object(lambda obj: obj.labels.get("watch") == "yes")
    yes, no = pod(labels={"watch": "yes"}), pod()
    assert answers(judge, old=no, new=yes) == [True] * 4
    assert answers(judge, old=yes, new=no) == [False] * 4


def test_a_label_selector_picks_objects() -> None:
    judge = predicate.label_selector("app in (a, b),!old")
    picked, other = pod(labels={"app": "a"}), pod(labels={"app": "a", "old": ""})
    assert answers(judge, old=other, new=picked) == [True] * 4
    assert answers(judge, old=picked, new=other) == [False] * 4
    with pytest.raises(ValueError, match="unable to parse requirement"):
        predicate.label_selector("app in")


YES: predicate.Predicate[Object] = predicate.from_object(lambda _: True)
NO: predicate.Predicate[Object] = predicate.from_object(lambda _: False)


@pytest.mark.parametrize(
    ("judge", "passes"),
    [
        pytest.param(predicate.and_(YES, YES), True, id="and: all"),
        pytest.param(predicate.and_(YES, NO), False, id="and: not all"),
        pytest.param(predicate.and_(), True, id="and: nobody asked"),
        pytest.param(predicate.or_(NO, YES), True, id="or: one"),
        pytest.param(predicate.or_(NO, NO), False, id="or: none"),
        pytest.param(predicate.not_(YES), False, id="not yes"),
        pytest.param(predicate.not_(NO), True, id="not no"),
    ],
)
def test_predicates_combine(judge: predicate.Predicate[Object], passes: bool) -> None:
    assert answers(judge, old=pod(), new=pod()) == [passes] * 4


def test_the_first_no_ends_the_asking() -> None:
    def never(_: Object) -> bool:
        raise AssertionError("asked")

    assert answers(predicate.and_(NO, predicate.from_object(never)), old=pod(), new=pod()) == [False] * 4
    assert answers(predicate.or_(YES, predicate.from_object(never)), old=pod(), new=pod()) == [True] * 4


def test_not_own_write_passes_objects_that_no_cache_tells_of() -> None:
    assert answers(predicate.NotOwnWrite(), old=pod(), new=pod()) == [True, True, True, True]
