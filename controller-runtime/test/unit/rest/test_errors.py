# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Error responses: for any body, an error with code, reason and the server's requested delay."""

from datetime import UTC, datetime

import pytest

from controller_runtime.machinery import errors as api
from controller_runtime.rest import errors


def test_a_status_becomes_the_error_of_its_reason() -> None:
    body = b'{"kind":"Status","code":409,"reason":"AlreadyExists","message":"pods \\"x\\" already exists"}'
    error = errors.status_error(409, {}, body)
    assert isinstance(error, api.AlreadyExistsError)
    assert str(error) == 'pods "x" already exists'


@pytest.mark.parametrize(
    "body", [b"upstream connect error", b"", b"[1]", b'{"kind":"Pod"}', b"\xff\xfe", b'{"message":"caf\xe9"}']
)
def test_a_body_that_is_no_status_still_gives_the_code(body: bytes) -> None:
    error = errors.status_error(503, {"Retry-After": "3"}, body)
    assert isinstance(error, api.ServerError)
    assert (error.code, error.retry_after) == (503, 3)
    assert str(error)


@pytest.mark.parametrize(
    ("seconds", "wait"), [("5", 5), ("86400", 60), ("1" + "0" * 400, 60), ("-9", 0), ('"5"', None)]
)
def test_the_wait_that_a_status_names_is_a_minute_at_most(seconds: str, wait: float | None) -> None:
    body = f'{{"kind":"Status","details":{{"retryAfterSeconds":{seconds}}}}}'.encode()
    assert errors.status_error(503, {}, body).retry_after == wait


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("5", 5),
        ("-5", 0),
        ("Wed, 01 Jan 2025 00:00:30 GMT", 30),
        ("soon", None),
        ("86400", 60),
        ("9" * 400, 60),
        ("-" + "9" * 5000, 0),
        ("9" * 5000, 60),
        ("Thu, 02 Jan 2025 00:00:00 GMT", 60),
        ("Wed, 01 Jan 99999999 00:00:30 GMT", None),
        ("Wed, 01 Jan 2025 00:00:30 +9999999999", None),
        ("²", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_and_a_minute_at_most(
    value: str | None, seconds: float | None
) -> None:
    assert errors.parse_retry_after(value, datetime(2025, 1, 1, tzinfo=UTC)) == seconds
