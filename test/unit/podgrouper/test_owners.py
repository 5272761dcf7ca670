# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owner references are written by users: no request is sent for one that cannot name an object."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK
from controller_runtime.reconcile import Request, TerminalError

from pkg.podgrouper.owners import kind_of
from pkg.podgrouper.plugins import GroupingError, InvalidOwnerError
from testkit.grouping import make_object, make_pod, make_reconciler

INVALID = [
    pytest.param({"apiVersion": "v1%2Fsecrets"}, id="an encoded slash"),
    pytest.param({"apiVersion": "v1?watch=true"}, id="a query"),
    pytest.param({"apiVersion": "v1#"}, id="a fragment"),
    pytest.param({"apiVersion": ".."}, id="the folder above"),
    pytest.param({"apiVersion": "../v1"}, id="the folder above as group"),
    pytest.param({"apiVersion": "example.com/.."}, id="the folder above as version"),
    pytest.param({"apiVersion": "example.com/"}, id="no version"),
    pytest.param({"apiVersion": ""}, id="nothing"),
    pytest.param({"apiVersion": "Example.com/v1"}, id="an upper case group"),
    pytest.param({"apiVersion": "v1\r\nHost: other"}, id="a header"),
    pytest.param({"apiVersion": "v1\n"}, id="a line end"),
    pytest.param({"apiVersion": "a" * 1_000_000 + "/v1"}, id="a megabyte of group"),
    pytest.param({"apiVersion": "v" * 1_000_000}, id="a megabyte of version"),
    pytest.param({"kind": ""}, id="no kind"),
    pytest.param({"kind": "Job/../Secret"}, id="a path as kind"),
    pytest.param({"kind": "K" * 1_000_000}, id="a megabyte of kind"),
    pytest.param({"name": ""}, id="no name"),
    pytest.param({"name": "."}, id="this folder as name"),
    pytest.param({"name": ".."}, id="the folder above as name"),
    pytest.param({"name": "a/b"}, id="a path as name"),
    pytest.param({"name": "a%2Fb"}, id="an encoded path as name"),
    pytest.param({"name": "n" * 1_000_000}, id="a megabyte of name"),
]
GOOD = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


@pytest.mark.parametrize("wrong", INVALID)
async def test_a_reference_that_cannot_be_met_is_one_event_and_no_request(
    wrong: dict[str, str], recorder: Any
) -> None:
    metadata = {"name": "p", "namespace": "a", "ownerReferences": [GOOD | wrong]}
    pod = Pod.from_dict({"metadata": metadata, "spec": {"schedulerName": "kai-scheduler"}})
    client = FakeClient(pod)

    with pytest.raises(TerminalError) as caught:
        await make_reconciler(client, recorder=recorder).reconcile(Request.for_object(pod))

    assert [call.kind for call in client.calls] == [Pod.gvk]
    (event,) = recorder.events
    assert event.startswith("Warning PodGrouperWarning: ")
    assert (recorder.names, " is not a valid " in event) == (["p"], True)
    assert len(str(caught.value)) < 2_000


async def test_an_invalid_reference_of_an_owner_is_tried_again() -> None:
    job = make_object("batch/v1", "Job", "j", make_object("v1", "Secret", "a/b"))
    pod = make_pod("p", job)

    with pytest.raises(GroupingError) as caught:
        await make_reconciler(FakeClient(job, pod)).reconcile(Request.for_object(pod))
    assert not isinstance(caught.value, InvalidOwnerError)


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("v1", "Pod", GVK("", "v1", "Pod")),
        ("batch/v1", "Job", GVK("batch", "v1", "Job")),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            GVK("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
        ),
        ("example.com/v1/more", "Widget", GVK("example.com", "v1", "Widget")),
        ("example.com/v1alpha1", "my-kind", GVK("example.com", "v1alpha1", "my-kind")),
    ],
)
def test_valid_references_name_their_kind(api_version: str, kind: str, expected: GVK) -> None:
    assert kind_of(OwnerReference(api_version=api_version, kind=kind, name="system:n", uid="u")) == expected
