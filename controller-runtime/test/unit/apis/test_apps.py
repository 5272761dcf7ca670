# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of apps/v1."""

import pytest

from controller_runtime.apis.apps.v1 import ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet
from controller_runtime.apis.core.v1 import Container, PodSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import strategic_merge_from
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object


def test_a_deployment_writes_what_is_set() -> None:
    made = Deployment(metadata=ObjectMeta(name="d", namespace="n"))
    made.spec.replicas = 0
    made.spec.template.spec = PodSpec(containers=[Container(name="web", image="nginx")])
    assert made.to_dict()["spec"] == {
        "replicas": 0,
        "template": {"spec": {"containers": [{"name": "web", "image": "nginx"}]}},
    }


@pytest.mark.parametrize("kind", [ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet])
async def test_a_kind_is_stored_and_patched_strategically(kind: type[Object]) -> None:
    client = FakeClient()
    body = {"template": {"spec": {"containers": [{"name": "web", "image": "a"}]}}}
    data = {"data": body, "revision": 2} if kind is ControllerRevision else {"spec": body}
    made = await client.create(kind.from_dict({"metadata": {"name": "x", "namespace": "n"}, **data}))
    changed = made.deep_copy()
    changed.metadata.labels = {"a": "b"}
    after = await client.patch(changed, strategic_merge_from(made))
    assert after.labels == {"a": "b"}
    assert kind.resource is not None
    assert kind.resource.group_resource == f"{kind.gvk.kind.lower()}s.apps"
