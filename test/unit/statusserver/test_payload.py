# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from pkg.statusserver import payload

NOW = "2026-01-02T03:04:05Z"


def decode(status: Any) -> payload.Update:
    return payload.decode(json.dumps({"trainerStatus": status}).encode())


def test_known_fields_are_applied_and_answered() -> None:
    status = {
        "progressPercentage": 42,
        "estimatedRemainingSeconds": 7,
        "metrics": [{"name": "loss", "value": "0.1"}],
        "lastUpdatedTime": NOW,
    }

    assert decode(status) == payload.Update(status, {"trainerStatus": status})


def test_a_time_that_is_missing_is_left_to_the_server_to_refuse() -> None:
    assert decode({"progressPercentage": 1}).trainer_status == {
        "progressPercentage": 1,
        "lastUpdatedTime": None,
    }


def test_an_empty_metric_is_applied_with_its_fields_for_the_server_to_refuse() -> None:
    update = decode({"metrics": [None, {"name": "a"}], "lastUpdatedTime": NOW})

    assert update.trainer_status is not None
    assert update.trainer_status["metrics"] == [{"name": "", "value": ""}, {"name": "a", "value": ""}]
    assert update.answer["trainerStatus"]["metrics"] == [{}, {"name": "a"}]


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        pytest.param('{"TRAINERSTATUS": {"ProgressPercentage": 3}}', 3, id="names in any case"),
        pytest.param('{"trainerStatus": {"progressPercentage": 3, "x": [{}]}, "y": 1}', 3, id="unknown fields"),
        pytest.param(' \n{"trainerStatus": {"progressPercentage": 3}} and more', 3, id="text after it"),
        pytest.param('{"trainerStatus": {"progressPercentage": 1, "progressPercentage": 3}}', 3, id="the last counts"),
        pytest.param('{"trainerStatus": {"progressPercentage": null}}', None, id="null is unset"),
        pytest.param('{"trainerStatus": {"progressPercentage": -2147483648}}', -(2**31), id="the least"),
    ],
)  # fmt: skip
def test_it_reads_json_as_go_does(text: str, progress: int | None) -> None:
    status = payload.decode(text.encode()).trainer_status
    assert status is not None
    assert status.get("progressPercentage") == progress


@pytest.mark.parametrize("text", ["{}", "null", '{"trainerStatus": null}', '{"other": 1}'])
def test_without_a_status_there_is_nothing_to_apply(text: str) -> None:
    assert payload.decode(text.encode()) == payload.Update(None, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "progress=3",
        "[]",
        "3",
        "[" * 50_000,
        '{"trainerStatus": []}',
        '{"trainerStatus": {"progressPercentage": "3"}}',
        '{"trainerStatus": {"progressPercentage": true}}',
        '{"trainerStatus": {"progressPercentage": 3.0}}',
        '{"trainerStatus": {"progressPercentage": 2147483648}}',
        '{"trainerStatus": {"progressPercentage": NaN}}',
        '{"trainerStatus": {"progressPercentage": %s}}' % ("9" * 5000),
        '{"trainerStatus": {"metrics": {}}}',
        '{"trainerStatus": {"metrics": ["loss"]}}',
        '{"trainerStatus": {"metrics": [{"name": 1}]}}',
        '{"trainerStatus": {"lastUpdatedTime": ""}}',
        '{"trainerStatus": {"lastUpdatedTime": 5}}',
        '{"trainerStatus": {"lastUpdatedTime": "2026-01-02"}}',
        '{"trainerStatus": {"lastUpdatedTime": "20260102T030405Z"}}',
        '{"trainerStatus": {"lastUpdatedTime": "2026-13-02T03:04:05Z"}}',
        '{"trainerStatus": {"lastUpdatedTime": "0001-01-01T00:00:00+23:59"}}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(payload.PayloadError):
        payload.decode(text.encode())


def test_text_that_cannot_be_encoded_again_is_replaced() -> None:
    update = payload.decode(b'{"trainerStatus": {"metrics": [{"name": "\\ud800\xff", "value": "1"}]}}')

    assert update.trainer_status is not None
    assert update.trainer_status["metrics"][0]["name"] == "\ufffd\ufffd"
    json.dumps(update.answer).encode()
