# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A review is decoded without the objects in it, and a body that is not a review is refused."""

import json
from typing import Any

import pytest

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.apis.authentication.v1 import UserInfo
from controller_runtime.webhook import review as reviews

KIND = {"group": "example.com", "version": "v1", "kind": "Timer"}
RESOURCE = {"group": "example.com", "version": "v1", "resource": "timers"}
WHOLE: dict[str, Any] = {
    "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
    "kind": KIND,
    "resource": RESOURCE,
    "subResource": "status",
    "requestKind": KIND,
    "requestResource": RESOURCE,
    "requestSubResource": "status",
    "name": "a",
    "namespace": "b",
    "operation": "UPDATE",
    "userInfo": {"username": "me", "uid": "1", "groups": ["all"], "extra": {"scopes": ["x", "y"]}},
    "object": {"kind": "Timer", "spec": {"seconds": 1}},
    "oldObject": {"kind": "Timer"},
    "dryRun": True,
    "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": None},
}


def without(*names: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**WHOLE, **changes}.items() if name not in names}


def review(request: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request, **changes}
    ).encode()


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(WHOLE, id="every field"),
        pytest.param({"uid": "1"}, id="no field"),
        pytest.param(without("options", "userInfo"), id="some fields"),
        pytest.param(without(userInfo={}), id="an empty user"),
        pytest.param(without(newField=1), id="a field of a later API server"),
        pytest.param(without(kind={**KIND, "list": "TimerList"}), id="an unknown field of the kind"),
        pytest.param(without(kind={"kind": "Timer"}), id="a part of the kind"),
        pytest.param(without(userInfo={"username": "me", "shoe": 42}), id="an unknown field of the user"),
        pytest.param(without(name="ä"), id="more than ASCII"),
        pytest.param(without(object={"data": "x" * 20_000}), id="a large object"),
    ],
)
def test_a_request_is_decoded_as_its_fields_are(request_: dict[str, Any]) -> None:
    body = review(request_)
    found = reviews.read(body)
    plain = {
        name: value for name, value in request_.items() if name not in ("object", "oldObject", "newField")
    }
    wanted = AdmissionRequest.from_dict(plain)
    assert found.request == wanted
    assert found.request.model_fields_set == wanted.model_fields_set
    assert found.request.to_dict() == wanted.to_dict()
    objects = [request_.get("object"), request_.get("oldObject")]
    assert [text and json.loads(text) for text in (found.object, found.old_object)] == objects


def test_a_null_counts_as_unset() -> None:
    found = reviews.read(review(without(name=None, userInfo=None))).request
    assert found == AdmissionRequest.from_dict(without("name", "userInfo", "object", "oldObject"))


def test_nulls_inside_a_field_count_as_unset() -> None:
    user = {"username": "me", "uid": None, "extra": {"scopes": ["x"], "none": None}}
    found = reviews.read(review(without(kind={"kind": "Timer", "group": None}, userInfo=user)))
    assert found.request.user_info == UserInfo(username="me", extra={"scopes": ["x"]})
    assert (found.operation, found.fields.namespace) == ("UPDATE", "b")


def test_requests_share_nothing_that_a_handler_may_change() -> None:
    first, second = reviews.read(review(WHOLE)).request, reviews.read(review(WHOLE)).request
    assert first.user_info is not None
    assert first.kind is not None
    first.kind.kind, first.user_info.groups, first.user_info.extra = "Other", [], None
    assert second.user_info == UserInfo.from_dict(WHOLE["userInfo"])
    assert second.kind is not None
    assert second.kind.kind == "Timer"
