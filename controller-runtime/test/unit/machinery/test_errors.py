# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors from a server's Status."""

import pytest

from controller_runtime.machinery import errors


@pytest.mark.parametrize(
    ("status", "http_code", "kind"),
    [
        ({"code": 404, "reason": "NotFound"}, 404, errors.NotFoundError),
        ({"code": 409, "reason": "Conflict"}, 409, errors.ConflictError),
        ({"code": 409, "reason": "AlreadyExists"}, 409, errors.AlreadyExistsError),
        ({"code": 410, "reason": "Expired"}, 200, errors.ExpiredError),
        ({"code": 410, "reason": "Gone"}, 410, errors.ExpiredError),
        ({"code": 422}, 422, errors.InvalidError),
        ({"code": 500, "reason": "ServerTimeout"}, 500, errors.ServerTimeoutError),
        ({"code": 504, "reason": "Timeout"}, 504, errors.ServerTimeoutError),
        ({}, 503, errors.ServerError),
        ({}, 401, errors.UnauthorizedError),
        ({}, 418, errors.StatusError),
    ],
)
def test_the_class_follows_reason_then_code(status: dict[str, object], http_code: int, kind: type) -> None:
    error = errors.from_status(status, http_code=http_code)
    assert type(error) is kind
    assert str(error) == f"the server answered {status.get('code', http_code)} without a message"


def test_a_status_survives_the_way_there_and_back() -> None:
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": "slow down",
        "reason": "TooManyRequests",
        "details": {"retryAfterSeconds": 3, "causes": [{"field": "a"}]},
        "code": 429,
    }
    error = errors.from_status(status, http_code=429)
    assert isinstance(error, errors.TooManyRequestsError)
    assert (error.retry_after, error.causes) == (3.0, [{"field": "a"}])
    assert errors.to_status(error) == status


def test_the_header_s_delay_goes_before_the_body_s() -> None:
    error = errors.from_status({"details": {"retryAfterSeconds": 3}}, http_code=429, retry_after=0.5)
    assert error.retry_after == 0.5


def test_a_missing_object_is_named_and_a_kind_that_is_not_served_is_not() -> None:
    missing = errors.NotFoundError("gone", code=404, reason="NotFound", details={"name": "a", "kind": "pods"})
    unserved = errors.NotFoundError("the server could not find the requested resource", code=404)

    assert (missing.names_object, unserved.names_object) == (True, False)


def test_an_error_without_a_delay_has_none() -> None:
    assert errors.ConflictError("changed").retry_after is None
