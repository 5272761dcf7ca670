# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The generated kinds of Kubernetes hold what a real API server stores."""

from typing import Any

import pytest

from controller_runtime.apis.apps.v1 import StatefulSet
from controller_runtime.apis.discovery.v1 import EndpointSlice
from controller_runtime.apis.policy.v1 import PodDisruptionBudget
from controller_runtime.apis.storage.v1 import StorageClass
from controller_runtime.client import LiveClient
from controller_runtime.machinery import Object, unstructured

pytestmark = pytest.mark.integration
LABELS = {"matchLabels": {"app": "web"}}
LABELLED = {"labels": LABELS["matchLabels"]}
OBJECTS: list[tuple[type[Object], dict[str, Any]]] = [
    (
        StatefulSet,
        {
            "spec": {
                "selector": LABELS,
                "serviceName": "db",
                "template": {
                    "metadata": LABELLED,
                    "spec": {"containers": [{"name": "db", "image": "db:1"}]},
                },
                "volumeClaimTemplates": [
                    {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "metadata": {"name": "data"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                        },
                        "status": {},
                    }
                ],
            }
        },
    ),
    (
        PodDisruptionBudget,
        {"spec": {"minAvailable": "50%", "selector": LABELS, "unhealthyPodEvictionPolicy": "AlwaysAllow"}},
    ),
    (
        StorageClass,
        {
            "provisioner": "example.com/disk",
            "parameters": {"type": "ssd"},
            "allowVolumeExpansion": True,
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ),
    (
        EndpointSlice,
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    ),
]


@pytest.mark.parametrize(("kind", "content"), OBJECTS, ids=lambda each: getattr(each, "__name__", ""))
async def test_an_object_is_stored_as_its_class_writes_it(
    live_client: LiveClient, namespace: str, kind: type[Object], content: dict[str, Any]
) -> None:
    assert kind.resource is not None
    metadata = {"name": namespace} | ({"namespace": namespace} if kind.resource.namespaced else {})
    obj = kind.from_dict({"metadata": metadata, **content})
    assert {key: obj.to_dict()[key] for key in content} == content
    made = await live_client.create(obj, field_validation="Strict")
    stored = await live_client.get(unstructured(kind.gvk), made.key)
    for key, value in content.items():
        assert_contains(stored[key], value)
        assert made.to_dict()[key] == stored[key], "the class writes all fields that the server stores"
    assert not any(made.unknown_fields for made in (made, getattr(made, "spec", made)))
    await live_client.delete(made)


async def test_a_stateful_set_that_is_applied_again_does_not_change(
    live_client: LiveClient, namespace: str
) -> None:
    content = next(content for kind, content in OBJECTS if kind is StatefulSet)
    obj = StatefulSet.from_dict({"metadata": {"name": "db", "namespace": namespace}, **content})
    first = await live_client.apply(obj, field_owner="me")
    again = await live_client.apply(obj, field_owner="me")
    assert again.metadata.resource_version == first.metadata.resource_version
    (claim,) = again.spec.volume_claim_templates or []
    assert claim.spec.volume_mode == "Filesystem"


def assert_contains(stored: Any, value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            assert_contains(stored[key], each)
    elif isinstance(value, list):
        for have, want in zip(stored, value, strict=True):
            assert_contains(have, want)
    else:
        assert stored == value
