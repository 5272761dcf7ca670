# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The token of a running manager is replaced."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.apis.authentication.v1 import TokenRequestSpec
from controller_runtime.apis.core.v1 import ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import apply_manifests
from controller_runtime.machinery.errors import NotFoundError
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import new_token, role_binding
from trainerctl.localcluster.cluster import Cluster

from testkit.builders import written_train_job
from testkit.clusters import job_set_at
from testkit.processes import manager_flags, running_manager

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]
ROLE = "kubeflow-trainer-controller-manager"


def files(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the Configuration and the kubeconfig of the cluster's manager."""
    paths = (argument.partition("=")[2] for argument in cluster.manager_arguments)
    return [yaml.safe_load(Path(path).read_text()) for path in paths]


async def test_a_token_rotates_under_a_running_manager(
    bare: Cluster, bare_client: LiveClient, tmp_path: Path
) -> None:
    """The old token becomes invalid, because its service account is deleted."""
    config, kubeconfig = files(bare)
    token = tmp_path / "token"
    kubeconfig["users"][0]["user"] = {"tokenFile": str(token)}

    async def issue(name: str) -> None:
        metadata = {"name": name, "namespace": manifests.TRAINER_NAMESPACE}
        account = await bare_client.create(ServiceAccount.from_dict({"metadata": metadata}))
        binding = role_binding(ROLE, {"kind": "ServiceAccount", **metadata}) | {"metadata": {"name": name}}
        await apply_manifests(bare_client, [binding])
        token.write_text(await new_token(bare_client, account.namespace, name, TokenRequestSpec()))

    async def trained(name: str) -> None:
        job = await bare_client.create(
            written_train_job("default", "torch-distributed", name=name, kind=None)
        )
        await job_set_at(bare_client, job.key, timeout=90)

    await issue("old-account")
    flags = manager_flags(
        tmp_path, kubeconfig, certManagement=config["certManagement"], webhook=config["webhook"]
    )
    with running_manager(flags, tmp_path / "manager.log"):
        await trained("before")
        await issue("new-account")
        old = await bare_client.get(ServiceAccount, (manifests.TRAINER_NAMESPACE, "old-account"))
        await bare_client.delete(old)
        with pytest.raises(NotFoundError):
            await bare_client.get(ServiceAccount, old.key)
        await trained("after")
