# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The default priorities in a ConfigMap."""

import pytest
from controller_runtime.machinery import GroupKind

from pkg.podgrouper.plugins.defaults import DefaultsError, WorkloadDefaults, parse_defaults


def test_nothing_is_no_default() -> None:
    assert parse_defaults("null") == parse_defaults("[]")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            '[{"typeName": "A", "priorityName": "gold", "priorityName": null}]', id="null as a value"
        ),
        pytest.param('[null, {"typeName": "A", "priorityName": "gold"}]', id="null as an entry"),
        pytest.param('[{"typeName": "A", "priorityName": "gold", "else": [1]}]', id="an unknown field"),
    ],
)
def test_nulls_and_unknown_fields_are_ignored(text: str) -> None:
    assert parse_defaults(text).get(GroupKind("", "A")) == WorkloadDefaults("gold", "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="missing"),
        pytest.param("", id="empty"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("9" * 5000, id="a number of thousands of digits"),
        pytest.param("{}", id="another type"),
        pytest.param("[[]]", id="an entry of another type"),
        pytest.param('[{"typeName": NaN}]', id="not JSON"),
        pytest.param('[{"typeName": 1}]', id="a name of another type"),
    ],
)
def test_a_text_that_is_not_a_list_of_objects_is_refused(text: str | None) -> None:
    with pytest.raises(DefaultsError):
        parse_defaults(text)
