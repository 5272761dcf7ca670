# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The default priorities in a ConfigMap."""

import pytest

from pkg.podgrouper.plugins.defaults import DefaultsError, parse_defaults


def test_nothing_is_no_default() -> None:
    assert parse_defaults("null") == parse_defaults("[]")


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
