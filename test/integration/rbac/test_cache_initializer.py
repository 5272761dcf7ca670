# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The initializer of the data cache under its shipped role, where the API server demands the right to the owner's finalizers."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from controller_runtime.apis.core.v1 import Service, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually, open_crd
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError, StatusError
from controller_runtime.rest import RESTMapper, Transport

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob
from testkit.builders import written_train_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROLE: Final = Path(__file__).parents[3] / "config" / "overlays" / "data-cache" / "cluster_role.yaml"
LEADER_WORKER_SET: Final = GVK("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
FINALIZERS: Final = {
    "apiGroups": ["trainer.kubeflow.org"],
    "resources": ["trainjobs/finalizers"],
    "verbs": ["update"],
}


def children(owner: TrainJob) -> list[Any]:
    """Return the objects that the initializer of Kubeflow Trainer creates: the TrainJob controls them."""
    reference = trainjob.controller_reference(owner).to_dict()

    def meta(name: str) -> dict[str, Any]:
        return {"namespace": owner.namespace, "name": name, "ownerReferences": [reference]}

    size = {"leaderWorkerTemplate": {"size": 2}}
    ports = [{"protocol": "TCP", "port": 50051, "targetPort": 50051}]
    return [
        ServiceAccount.from_dict({"metadata": meta("cached-cache")}),
        unstructured(LEADER_WORKER_SET).from_dict({"metadata": meta("cached-cache"), "spec": size}),
        Service.from_dict({"metadata": meta("cached-cache-service"), "spec": {"ports": ports}}),
    ]


@pytest.mark.parametrize(
    "is_granted", [True, False], ids=["the shipped role", "without trainjobs/finalizers"]
)
async def test_the_caches_initializer_may_create_children_that_block_the_deletion_of_their_train_job(
    is_granted: bool, audited: Environment, live_client: LiveClient, namespace: str
) -> None:
    await audited.install_crds(open_crd(LEADER_WORKER_SET))
    rules = [rule for rule in yaml.safe_load(ROLE.read_text())["rules"] if is_granted or rule != FINALIZERS]
    config = await audited.add_service_account(namespace, "cache-initializer")
    api = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"namespace": namespace, "name": "cache"}}
    binding = role | {
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": api, "kind": "Role", "name": "cache"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "cache-initializer"}],
    }
    await apply_manifests(live_client, [role | {"rules": rules}, binding], owner="test")
    created = written_train_job(namespace, "torch-distributed-with-cache", name="cached", kind=None)
    await live_client.create(created)

    async with Transport(config) as transport:
        client = LiveClient(transport, RESTMapper(transport))

        async def granted() -> bool:
            try:
                await client.get(Service, (namespace, "none"))
            except NotFoundError:
                return True
            except StatusError:
                return False
            return False

        await eventually(granted, reason="the role is in force")
        owner = await client.get(TrainJob, (namespace, "cached"))
        for each in children(owner):
            refused = pytest.raises(ForbiddenError, match="cannot set blockOwnerDeletion")
            with nullcontext() if is_granted else refused:
                await client.create(each)
