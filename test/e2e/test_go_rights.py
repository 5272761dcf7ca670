# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A Go manager that replaces this one needs the role of its release: ours does not permit it to list webhooks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import HOST, Binary, eventually, free_ports
from controller_runtime.machinery import GVK, Unstructured, unstructured
from trainerctl.localcluster.cluster import Cluster

from testkit import programs
from testkit.processes import running

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

RELEASE = "2.1.0"
SYSTEM = "kubeflow-system"
SECRET = "kubeflow-trainer-webhook-cert"
SERVICE = "kubeflow-trainer-controller-manager"
ROLE = "kubeflow-trainer-controller-manager"
HOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"))
CLUSTER_ROLE = unstructured(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"))


@pytest.fixture
def binary() -> Binary:
    """Return the Go manager."""
    return anyio.run(programs.locate_go_manager, RELEASE)


def role_of_the_release() -> dict[str, Any]:
    """Return the ClusterRole in the release's module."""
    file = programs.TRAINER.find() / "manifests" / "base" / "rbac" / "role.yaml"
    role: dict[str, Any] = yaml.safe_load(file.read_text())
    return role


@contextmanager
def go_manager(cluster: Cluster, binary: Binary, folder: Path) -> Iterator[Path]:
    """Run the Go manager, which issues its certificates itself, under the manager's account; yield its log."""
    port, health = free_ports(2)
    config = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "certManagement": {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
        "webhook": {"host": HOST, "port": port},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "leaderElection": {"leaderElect": False},
    }
    file, log = folder / "config.yaml", folder / "go.log"
    file.write_text(yaml.safe_dump(config))
    command = [binary.path, f"--config={file}", cluster.manager_arguments[1]]
    with running(command, log, cwd=folder, environ={"TMPDIR": str(folder)}, exit_code=None):
        yield log


async def test_webhooks_trust_a_go_manager_under_its_own_role_only(
    binary: Binary, bare: Cluster, bare_client: LiveClient, tmp_path: Path
) -> None:
    secret = {"metadata": {"namespace": SYSTEM, "name": SECRET}}
    for stored in await bare_client.list(Secret, namespace=SYSTEM):
        if stored.name == SECRET:
            await bare_client.delete(stored)
    await bare_client.create(Secret.from_dict(secret))
    for earlier in await bare_client.list(HOOKS):
        await bare_client.delete(earlier)
    (hooks,) = [each for each in binary.manifests() if each["kind"] == "ValidatingWebhookConfiguration"]
    hooks["metadata"]["name"] = "validator.trainer.kubeflow.org"  # as kustomize names it
    await bare_client.create(Unstructured.wrap(hooks))

    async def is_trusted() -> bool:
        name = hooks["metadata"]["name"]
        webhooks = (await bare_client.get(HOOKS, ("", name))).to_dict()["webhooks"]
        return all(each["clientConfig"].get("caBundle", "Cg==") != "Cg==" for each in webhooks)

    with go_manager(bare, binary, tmp_path) as log:
        refused = r"cannot list resource \"validatingwebhookconfigurations\""
        await eventually(lambda: _contains(log, refused), timeout=60, reason="the Go manager is refused")
        assert not await is_trusted()

        role = role_of_the_release()
        assert role["metadata"]["name"] == ROLE
        shipped = await bare_client.get(CLUSTER_ROLE, ("", ROLE))
        role["metadata"]["resourceVersion"] = shipped.metadata.resource_version
        await bare_client.update(Unstructured.wrap(role))

        await eventually(is_trusted, timeout=120, reason="the webhooks have the Go manager's CA")


async def _contains(log: Path, text: str) -> bool:
    return text in await anyio.Path(log).read_text()
