# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A pod of a TrainJob reports progress on a local cluster, with the function of the Kubeflow SDK."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from controller_runtime.apis.authentication.v1 import BoundObjectReference, TokenRequest, TokenRequestSpec
from controller_runtime.apis.core.v1 import ConfigMap, Container, Pod, ServiceAccount
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.manifests import TRAINER_SERVER
from trainerctl.localcluster.options import Options

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit import programs
from testkit.builders import written_train_job

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

# The SDK's own interpreter runs this, as it would in a pod.
REPORT = """
from kubeflow.trainer import update_trainjob_status
assert update_trainjob_status(progress_percent=42, estimated_remaining_seconds=7, metrics={"loss": 0.5})
"""


@pytest.fixture(scope="module")
def local_cluster(run_cluster: Any) -> Iterator[Cluster]:
    """Yield a cluster whose manager serves status updates."""
    with run_cluster(Options(nodes=1, manager_gates={"TrainJobStatus": True})) as cluster:
        yield cluster


async def mounted(client: LiveClient, pod: Pod, container: Container, folder: Path) -> dict[str, str]:
    """Write the files of a pod's projected volume to ``folder``; return the container's variables for them.

    Nodes are simulated: no kubelet does this, and no DNS resolves the name of the manager's Service.
    """
    (volume,) = [each for each in pod.spec.volumes or () if each.name == "kubeflow-trainer-token"]
    (mount,) = [each for each in container.volume_mounts or () if each.name == volume.name]
    assert volume.projected is not None
    for source in volume.projected.sources or ():
        if (wanted := source.service_account_token) is not None:
            bound = BoundObjectReference(kind="Pod", api_version="v1", name=pod.name, uid=pod.metadata.uid)
            spec = TokenRequestSpec(
                audiences=[wanted.audience or ""],
                expiration_seconds=wanted.expiration_seconds,
                bound_object_ref=bound,
            )
            metadata = ObjectMeta(name=pod.spec.service_account_name or "", namespace=pod.namespace)
            account = ServiceAccount(metadata=metadata)
            issued = await client.subresource("token").create(account, TokenRequest(spec=spec))
            (folder / (wanted.path or "")).write_text(issued.status.token or "")
        elif (copied := source.config_map) is not None:
            found = await client.get(ConfigMap, (pod.namespace, copied.name or ""))
            for item in copied.items or ():
                (folder / item.path).write_text((found.data or {})[item.key])
    env = {each.name: each.value or "" for each in container.env or ()}
    return {
        name: value.replace(mount.mount_path, str(folder)).replace(TRAINER_SERVER, "127.0.0.1")
        for name, value in env.items()
        if name.startswith("KUBEFLOW_TRAINER_SERVER_")
    }


async def test_the_sdk_in_a_pod_reports_the_progress_of_its_train_job(
    cluster_client: LiveClient,
    cluster_namespace: str,
    tmp_path: Path,
) -> None:
    job = await cluster_client.create(
        written_train_job(cluster_namespace, "torch-distributed", kind=None, trainer={"numNodes": 1})
    )

    async def started() -> Pod | None:
        pods = await cluster_client.list(Pod, namespace=cluster_namespace)
        return next((pod for pod in pods if pod.status.phase in ("Running", "Succeeded")), None)

    pod = await eventually(started, timeout=60, reason="the pod has started")
    (container,) = pod.spec.containers or []
    env = await mounted(cluster_client, pod, container, tmp_path)
    assert set(env) == {f"KUBEFLOW_TRAINER_SERVER_{each}" for each in ("URL", "CA_CERT", "TOKEN")}
    argv = [str(programs.sdk_python("0.5.0")), "-c", REPORT]

    def report() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)

    done = await anyio.to_thread.run_sync(report)

    assert done.returncode == 0, done.stderr
    reported = (await cluster_client.get(TrainJob, job.key)).status.to_dict()["trainerStatus"]
    assert reported.pop("lastUpdatedTime")
    assert reported == {
        "progressPercentage": 42,
        "estimatedRemainingSeconds": 7,
        "metrics": [{"name": "loss", "value": "0.5"}],
    }
