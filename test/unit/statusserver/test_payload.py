# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from pkg.statusserver import payload


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        pytest.param('{"TRAINERSTATUS": {"ProgressPercentage": 3}}', 3, id="names in any case"),
        pytest.param('{"trainerStatus": {"progressPercentage": 3, "x": [{}]}, "y": 1}', 3, id="unknown fields"),
        pytest.param(' \n{"trainerStatus": {"progressPercentage": 3}} and more', 3, id="text after it"),
        pytest.param('{"trainerStatus": {"progressPercentage": 1, "progressPercentage": 3}}', 3, id="the last counts"),
        pytest.param('{"trainerStatus": {"progressPercentage": null}}', None, id="null is unset"),
        pytest.param('{"trainerStatus": {"metrics": [null]}}', None, id="null is an object without fields"),
        pytest.param('{"trainerStatus": {"progressPercentage": -2147483648}}', -(2**31), id="the least"),
    ],
)  # fmt: skip
def test_it_reads_json_as_go_does(text: str, progress: int | None) -> None:
    status = payload.decode(text.encode()).trainer_status
    assert status is not None
    assert status.get("progressPercentage") == progress


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
