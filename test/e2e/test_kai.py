# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Everything around KAI-Scheduler's programs in a local cluster; stand-ins for the programs only answer probes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import Unstructured
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.kai import BINDER, PARENT_QUEUE, SCHEDULER, Programs
from trainerctl.localcluster.options import Options

from pkg.apis.kai.v2 import Queue
from pkg.apis.kai.v2alpha2 import PodGroup

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAND_IN = f"""#!{sys.executable}
import http.server, sys
flags = dict(flag[2:].split("=", 1) for flag in sys.argv[1:])
host, port = (flags.get("listen-address") or flags["metrics-bind-address"]).rsplit(":", 1)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer((host, int(port)), Healthy).serve_forever()
"""


RunCluster = Callable[[Options], AbstractContextManager[Cluster]]


@pytest.fixture(scope="module")
def cluster(run_cluster: RunCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("kai")
    program = directory / "program"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    options = Options(nodes=1, kai=Programs(program, program))
    with run_cluster(options) as running:
        yield running


async def test_the_programs_run_and_the_default_queue_has_its_parent(
    cluster: Cluster, cluster_client: LiveClient
) -> None:
    assert {SCHEDULER, BINDER} <= set((await cluster.health()).keys())
    assert await cluster.is_up()
    assert (await cluster_client.get(Queue, ("", "default-queue"))).spec.parent_queue == PARENT_QUEUE


async def test_initializers_have_a_subgroup_that_the_group_can_start_with(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    pod = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [{"name": "a", "image": "a"}],
    }
    job = {"spec": {"template": {"spec": pod}}}
    node = {"name": "node", "template": job, "dependsOn": [{"name": "init", "status": "Complete"}]}
    spec = {"replicatedJobs": [{"name": "init", "template": job}, node]}
    metadata = {"name": "llm", "namespace": cluster_namespace}
    await cluster_client.create(
        Unstructured.wrap(
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
        )
    )

    async def grouped() -> list[Pod]:
        found = await cluster_client.list(Pod, namespace=cluster_namespace)
        return [each for each in found if "pod-group-name" in each.annotations]

    (pod_of_init,) = await eventually(grouped, timeout=60, reason="the initializer is grouped")
    group = await cluster_client.get(PodGroup, (cluster_namespace, pod_of_init.annotations["pod-group-name"]))

    assert group.spec.min_sub_group == 1
    assert pod_of_init.labels["kai.scheduler/subgroup-name"] == "init-replica-0"
