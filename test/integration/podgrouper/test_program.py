# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``podgrouper`` as KAI-Scheduler's operator starts it, with KAI's permissions for its service account."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually, free_ports
from controller_runtime.machinery import GVK
from trainerctl.localcluster.access import role_binding

from pkg.apis.kai.v2alpha2 import PodGroup
from testkit.processes import ROOT, answer, is_ready, running

pytestmark = pytest.mark.integration

KAI_ROLE = ROOT / "test" / "testdata" / "kai" / "podgrouper-role.yaml"
USER = "system:serviceaccount:kai-scheduler:pod-grouper"
JOB = GVK("batch", "v1", "Job")
CONTAINERS = [{"name": "main", "image": "busybox"}]


@pytest.fixture
async def kubeconfig(grouper_control_plane: Environment, live_client: LiveClient, tmp_path: Path) -> Path:
    role = yaml.safe_load(KAI_ROLE.read_text())
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    await apply_manifests(live_client, [role, role_binding(role["metadata"]["name"], user)], owner="test")
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(grouper_control_plane.kubeconfig_for(USER, [])))
    path.chmod(0o600)
    return path


async def test_it_groups_pods_with_the_operators_arguments_and_rights(
    kubeconfig: Path,
    live_client: LiveClient,
    namespace: str,
    make: Callable[..., Any],
    grouped: Callable[..., Any],
    tmp_path: Path,
) -> None:
    metrics, health = free_ports(2)
    arguments = ["--scheduler-name", "mine", "--queue-label-key", "queue", "--nodepool-label-key", "pool"]
    arguments += ["--knative-gang-schedule=true", "--qps", "50", "--burst", "300"]
    arguments += ["--max-concurrent-reconciles", "10", "--leader-elect"]
    arguments += ["--namespace-label-selector", f"kubernetes.io/metadata.name={namespace}"]
    arguments += [f"--metrics-bind-address=127.0.0.1:{metrics}"]
    arguments += [f"--health-probe-bind-address=127.0.0.1:{health}", f"--kubeconfig={kubeconfig}"]
    spec = {"suspend": True, "template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}}
    job = await make(JOB, "j", None, spec, queue="q", pool="p")
    log = tmp_path / "log"
    with running([sys.executable, "-m", "pkg.app.podgrouper", *arguments], log, cwd=ROOT):
        await make(Pod.gvk, "p", job, {"containers": CONTAINERS, "schedulerName": "mine"}, pool="p")
        (name,) = await grouped(1)
        group = await live_client.get(PodGroup, (namespace, name))
        assert (group.spec.queue, group.labels["pool"]) == ("q", "p")
        (writer,) = {entry.manager for entry in group.metadata.managed_fields or ()}
        assert writer == "podgrouper"
        lease = await live_client.get(Lease, ("default", "54dff599.kai.scheduler"))
        assert lease.spec.holder_identity
        await eventually(lambda: is_ready(health), timeout=30, reason="it is ready")
        assert await answer(f"http://127.0.0.1:{health}/healthz") == (200, "ok")
        assert 'controller="pod"' in (await answer(f"http://127.0.0.1:{metrics}/metrics"))[1]
    text = log.read_text()
    assert "orbidden" not in text
    assert "Traceback" not in text
