# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Label selectors."""

from typing import Any

import pytest

from controller_runtime.apis.meta.v1 import LabelSelector, LabelSelectorRequirement
from controller_runtime.machinery import labels


def test_texts_are_parsed_written_and_refused_as_go_does(go: dict[str, list[list[Any]]]) -> None:
    for text, want in go["sel"]:
        try:
            got = str(labels.parse(text))
        except labels.SelectorError as error:
            got = f"!{error}"
        assert got == want, text


@pytest.mark.parametrize(
    ("selector", "matching", "other"),
    [
        ("a=1", {"a": "1"}, {"a": "2"}),
        ("a==1", {"a": "1", "b": ""}, {}),
        ("a!=1", {}, {"a": "1"}),
        ("a in (1,2)", {"a": "2"}, {"a": "3"}),
        ("a notin (1,2)", {"b": "1"}, {"a": "1"}),
        ("a", {"a": ""}, {"b": "1"}),
        ("!a", {"b": "1"}, {"a": ""}),
        ("a>5", {"a": "10"}, {"a": "5"}),
        ("a<5", {"a": "-1"}, {"a": "five"}),
        ("a=1,!b", {"a": "1"}, {"a": "1", "b": "2"}),
        ("a in (,1)", {"a": ""}, {}),
    ],
)
def test_matching(selector: str, matching: dict[str, str], other: dict[str, str]) -> None:
    parsed = labels.parse(selector)
    assert parsed.matches(matching)
    assert not parsed.matches(other)


def test_the_empty_selector_matches_everything_and_nothing_matches_nothing() -> None:
    assert labels.parse("").matches(None)
    assert labels.parse("") == labels.EVERYTHING
    assert not labels.NOTHING.matches({"a": "b"})
    assert labels.NOTHING != labels.EVERYTHING


def test_a_map_becomes_equality_and_membership_sorted_by_key() -> None:
    assert labels.selector_string({"b": "1", "a": ["y", "x"]}) == "a in (x,y),b=1"
    assert labels.selector_string("free,text") == "free,text"
    assert labels.selector_string(None) == ""
    assert labels.selector({"a": ["x"]}).matches({"a": "x"})


def test_a_label_selector_struct_is_the_conjunction_of_its_parts() -> None:
    struct = LabelSelector(
        match_labels={"app": "trainer"},
        match_expressions=[
            LabelSelectorRequirement(key="tier", operator="NotIn", values=["b", "a"]),
            LabelSelectorRequirement(key="gone", operator="DoesNotExist"),
        ],
    )
    assert str(labels.from_label_selector(struct)) == "app=trainer,!gone,tier notin (a,b)"


def test_an_absent_struct_selects_nothing_an_empty_one_everything() -> None:
    assert labels.from_label_selector(None) is labels.NOTHING
    assert labels.from_label_selector(LabelSelector()) == labels.EVERYTHING


def test_an_unknown_operator_of_a_struct_is_named() -> None:
    struct = LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="Like")])
    with pytest.raises(labels.SelectorError, match='"Like" is not a valid label selector operator'):
        labels.from_label_selector(struct)


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        ("in", [], "[]: for 'in', 'notin' operators, values set can't be empty"),
        ("exists", ["b"], '["b"]: values set must be empty for exists and does not exist'),
        (">", [], "[]: for 'Gt', 'Lt' operators, exactly one value is required"),
        ("<", ["1", "2"], """["1","2"]: for 'Gt', 'Lt' operators, exactly one value is required"""),
        ("!=", ["b", "c"], '["b","c"]: exact-match compatibility requires one single value'),
    ],
)
def test_a_wrong_number_of_values_is_refused_as_in_go(operator: str, values: list[str], problem: str) -> None:
    with pytest.raises(labels.SelectorError) as refused:
        labels.requirement("a", labels.Operator(operator), values)
    assert str(refused.value) == f"values: Invalid value: {problem}"


@pytest.mark.parametrize("operator", [">", "<"])
def test_a_number_of_thousands_of_digits_is_refused(operator: str) -> None:
    """Python raises ValueError for an int of more than 4,300 digits."""
    with pytest.raises(labels.SelectorError, match="must be an integer"):
        labels.parse(f"a{operator}{'1' * 5000}")


def test_a_label_with_a_number_of_thousands_of_digits_does_not_match() -> None:
    assert not labels.parse("a>1").matches({"a": "1" * 5000})


def test_a_label_selector_struct_selects_wherever_a_selector_is_accepted() -> None:
    struct = LabelSelector(
        match_labels={"app": "web"},
        match_expressions=[LabelSelectorRequirement(key="tier", operator="In", values=["a", "b"])],
    )
    assert labels.selector(struct).matches({"app": "web", "tier": "b"})
    assert labels.selector_string(struct) == "app=web,tier in (a,b)"
    assert labels.selector(LabelSelector()) == labels.EVERYTHING


def test_a_value_that_selects_nothing_readable_is_named() -> None:
    with pytest.raises(TypeError, match="a text, a map or a LabelSelector, not list"):
        labels.selector(["app"])  # type: ignore[arg-type]  # the mistake under test
