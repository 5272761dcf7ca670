# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper as a process with its shipped rights, on pods that real controllers create."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.apis.authentication.v1 import TokenRequestSpec
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import apply_manifests, eventually, install_crds, wait_established
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.crd import custom_resource_definition
from ctrl_testkit.processes import Process
from trainerctl.localcluster.access import new_token
from trainerctl.localcluster.cluster import Cluster

from pkg import shipped
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit.builders import written_runtime, written_train_job
from testkit.processes import manager_flags, running_manager

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ACCOUNT = ("kubeflow-system", "pod-grouper-under-test")
SCHEDULER = "kai-scheduler"
ANNOTATION = "pod-group-name"


@pytest.fixture
async def installed(cluster_client: LiveClient) -> None:
    """Install the PodGroup CRD, the grouper's role, and a service account with only this role."""
    names = await install_crds(cluster_client, [custom_resource_definition(PodGroup)])
    await wait_established(cluster_client, names, timeout=60)
    namespace, name = ACCOUNT
    role = shipped.manifests("podgrouper")
    (binding,) = (each for each in role if each["kind"] == "ClusterRoleBinding")
    binding["metadata"]["name"] = name
    binding["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    await apply_manifests(cluster_client, [account, *role], owner="test")


class Grouper:
    """Runs the pod grouper as a process with the files in a folder."""

    def __init__(self, folder: Path, kubeconfig: dict[str, Any]) -> None:
        self._log = folder / "grouper.log"
        election = {"leaderElect": False}
        self._flags = manager_flags(folder, kubeconfig, leaderElection=election)

    def running(self) -> AbstractContextManager[Process]:
        """Run a grouper during the block."""
        return running_manager([*self._flags, "--controllers=podgrouper"], self._log)

    def errors(self, namespace: str) -> list[str]:
        """Return the log's lines about errors, except those of other tests, which use the same cluster."""
        lines = self._log.read_text().splitlines()
        about = [line for line in lines if '"namespace":' not in line or f'"namespace":"{namespace}"' in line]
        return [line for line in about if "rror" in line]


@pytest.fixture
async def grouper(
    local_cluster: Cluster, cluster_client: LiveClient, installed: None, tmp_path: Path
) -> Grouper:
    kubeconfig = yaml.safe_load(local_cluster.kubeconfig.read_text())
    token = await new_token(cluster_client, *ACCOUNT, TokenRequestSpec(expiration_seconds=3600))
    kubeconfig["users"][0]["user"] = {"token": token}
    return Grouper(tmp_path, kubeconfig)


def template(app: str, **more: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "busybox"}]
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"schedulerName": SCHEDULER, "containers": containers, **more},
    }


def workload(api_version: str, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> Unstructured:
    metadata = {"name": name, "namespace": namespace, "labels": {"kai.scheduler/queue": "research"}}
    return Unstructured.wrap({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})


def deployment(namespace: str, name: str, replicas: int) -> Unstructured:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name)}
    return workload("apps/v1", "Deployment", namespace, name, spec)


Grouped = Callable[..., Any]


@pytest.fixture
def grouped(cluster_client: LiveClient, cluster_namespace: str) -> Grouped:
    """Return a function that waits until ``count`` pods with a prefix have groups, and returns the groups by pod."""

    async def wait(prefix: str, count: int, *, timeout: float = 60) -> dict[str, str]:
        async def all_named() -> dict[str, str] | None:
            pods = await cluster_client.list(Pod, namespace=cluster_namespace)
            found = {
                pod.name: pod.annotations.get(ANNOTATION, "") for pod in pods if pod.name.startswith(prefix)
            }
            return found if len(found) == count and all(found.values()) else None

        named: dict[str, str] = await eventually(
            all_named, timeout=timeout, reason=f"{count} pods {prefix}… are grouped"
        )
        return named

    return wait


async def test_workloads_of_every_kind_are_grouped_as_their_controllers_make_the_pods(
    cluster_client: LiveClient, cluster_namespace: str, grouper: Grouper, grouped: Grouped
) -> None:
    space = cluster_namespace
    once = template("job", restartPolicy="Never")
    job = {"parallelism": 3, "completions": 3, "template": once}
    made = {
        each.name: await cluster_client.create(each)
        for each in (
            workload(
                "batch/v1",
                "CronJob",
                space,
                "cron",
                # No scheduler places the pods: the first Job is the only one, however many minutes pass.
                {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job}},
            ),
            deployment(space, "web", 3),
            workload(
                "apps/v1",
                "StatefulSet",
                space,
                "db",
                {
                    "replicas": 3,
                    "serviceName": "db",
                    "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": {"app": "db"}},
                    "template": template("db"),
                },
            ),
            workload("batch/v1", "Job", space, "batch", job),
        )
    }
    bare = [
        Pod.from_dict({**template("bare"), "metadata": {"name": f"bare-{number}", "namespace": space}})
        for number in (1, 2)
    ]

    with grouper.running():
        uids = {pod.name: (await cluster_client.create(pod)).metadata.uid for pod in bare}

        assert await grouped("bare", 2) == {name: f"pg-{name}-{uid}" for name, uid in uids.items()}
        assert set((await grouped("db-", 3)).values()) == {f"pg-db-{made['db'].metadata.uid}"}
        assert len(set((await grouped("web-", 3)).values())) == 3
        of_job = await grouped("batch-", 3)
        assert set(of_job.values()) == {f"pg-batch-{made['batch'].metadata.uid}"}
        assert len(set((await grouped("cron-", 3, timeout=120)).values())) == 1

        groups = {group.name: group for group in await cluster_client.list(PodGroup, namespace=space)}
        assert len(groups) == 2 + 1 + 3 + 1 + 1
        stateful = groups[f"pg-db-{made['db'].metadata.uid}"]
        assert (stateful.spec.queue, stateful.spec.priority_class_name) == ("research", "train")
        assert {group.spec.priority_class_name for name, group in groups.items() if "web" in name} == {
            "inference"
        }
    assert grouper.errors(space) == []


async def test_a_train_job_is_one_group_that_needs_all_its_nodes(
    cluster_client: LiveClient, cluster_namespace: str, grouper: Grouper, grouped: Grouped
) -> None:
    original = await cluster_client.get(ClusterTrainingRuntime, ("", "torch-distributed"))
    spec = original.to_dict()["spec"]
    for replicated in spec["template"]["spec"]["replicatedJobs"]:
        replicated["template"]["spec"]["template"]["spec"]["schedulerName"] = SCHEDULER
    await cluster_client.create(written_runtime(cluster_namespace, **spec))
    labels = {"labels": {"kai.scheduler/queue": "r"}}
    job = written_train_job(
        cluster_namespace, "runtime", name="llm", metadata=labels, trainer={"numNodes": 3}
    )

    with grouper.running():
        await cluster_client.create(job)
        (name,) = set((await grouped("llm-", 3)).values())

    group = await cluster_client.get(PodGroup, (cluster_namespace, name))
    owners = group.metadata.owner_references or []
    assert [(owner.kind, owner.name) for owner in owners] == [("JobSet", "llm")]
    assert (group.spec.min_sub_group, group.spec.queue) == (1, "r")
    node, *leaves = group.spec.sub_groups or []
    assert (node.name, node.min_sub_group) == ("node", 1)
    assert [(leaf.name, leaf.parent, leaf.min_member) for leaf in leaves] == [("node-replica-0", "node", 3)]
