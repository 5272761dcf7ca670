# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Responses to writes are decoded only as far as they are read."""

import json
from typing import Any

import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient, apply_lazily, merge_from, patch_lazily, with_field_owner
from controller_runtime.client.live import ResponseObject
from controller_runtime.fake import FakeClient
from controller_runtime.rest import FakeResponse, FakeTransport

META = {"name": "c", "namespace": "n", "uid": "u", "managedFields": [{"manager": "m"}]}


def text(**fields: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": META, **fields}).encode()


def test_metadata_are_read_without_the_rest() -> None:
    stored = ResponseObject(ConfigMap, text(data="of another shape"))
    assert (stored.metadata.uid, stored.metadata.managed_fields) == ("u", None)
    assert stored.known is None
    with pytest.raises(rest.AnswerError, match="data: Input should be an object"):
        stored.object  # noqa: B018  # reading it decodes it


async def test_a_client_that_knows_no_other_way_decodes() -> None:
    client = with_field_owner(FakeClient(), "me")
    made = await apply_lazily(
        client, ConfigMap.from_dict({"metadata": META | {"uid": None}}), field_owner="me"
    )
    assert made.text is None
    changed = made.object.deep_copy()
    changed.data = {"a": "1"}
    assert (await patch_lazily(client, changed, merge_from(made.object))).object.data == {"a": "1"}


async def test_a_response_keeps_the_body_of_its_request() -> None:
    client = LiveClient(FakeTransport(lambda _: FakeResponse(body=text(data={"a": "1"}))))
    obj = ConfigMap.from_dict({"metadata": {"name": "c", "namespace": "n"}, "data": {"a": "1"}})
    assert (await apply_lazily(client, obj, field_owner="me")).sent == obj.to_json()
    assert (await apply_lazily(FakeClient(), obj, field_owner="me")).sent is None


async def test_a_live_client_decodes_nothing_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LiveClient(FakeTransport(lambda _: FakeResponse(body=text(data={"a": "1"}))))
    obj = ConfigMap.from_dict({"metadata": {"name": "c", "namespace": "n"}})
    monkeypatch.setattr(ConfigMap, "from_json", None)
    for stored in (
        await apply_lazily(client, obj, field_owner="me"),
        await patch_lazily(client, obj, merge_from(obj)),
        await patch_lazily(client.status, obj, merge_from(obj)),
    ):
        assert stored.metadata.uid == "u"
