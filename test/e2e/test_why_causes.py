# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The table of causes in docs/why.md on a real control plane: each cause is the first answer once it is visible.

API server, scheduler, controllers and JobSet are real, and most pods are processes. The test writes statuses that
need a container runtime or a registry as a kubelet does, for a node without a kubelet.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from controller_runtime.client import LiveClient
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

from pkg.why import State
from testkit.why import health
from testkit.why.components import (
    between_retries,
    job_controller,
    job_set_controller,
    manager,
    manager_scaled_down,
    scheduler,
    service_removed,
    unsupported,
)
from testkit.why.live import (
    ENV,
    HIGH,
    NAME,
    PYTHON,
    LiveTrainJob,
    as_reader,
    container,
    deleted,
    is_ended,
    kubelet,
    processes,
    removed,
    starts,
)
from testkit.why.live import State as Build
from testkit.why.refusals import (
    deadline,
    forbidden,
    gone,
    job_refused,
    kept,
    key_missing,
    limit_range,
    managed,
    name_taken,
    pod_security,
    policy,
    quota,
    quota_of_jobs,
    retries_exhausted,
    runtime_removed,
    suspended,
    webhook_unreachable,
)
from testkit.why.scheduling import (
    claim_lost,
    claim_pending,
    cordoned,
    full,
    node_lost,
    node_removed,
    on_one_host,
    ports_taken,
    storage_class,
    untolerated,
    volume_of_another_zone,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

NOT_PLAYED: Final = {
    "child-suspended": "a program that suspends the JobSet again each time the manager resumes it",
    "creation-failed": "an object that the API server refuses for a reason that is not recognized",
    "device-claim": "a DRA driver",
    "device-claim-missing": "a DRA driver",
    "failed": "a pod that fails for a reason that Kubernetes does not have today",
    "gang-unavailable": "PodGroups: test_workload.py",
    "image-pulling": "a note, which is not an answer",
    "no-effect": "a note, which is not an answer",
    "expiring": "a note, which is not an answer",
    "number-invalid": "a negative number of nodes: no controller has to act, so the unit tests show it",
    "kubelet-silent": "a node that reports for a minute and starts no pod",
    "no-nodes": "a cluster without nodes",
    "jobset-missing": "a control plane without JobSet",
    "kind-missing": "a control plane without a kind of PodGroups",
    "pod-grouper": "KAI-Scheduler's PodGroups, and a pod grouper that fails",
    "sidecar-running": "a container that runs for minutes after the end of another",
    "unexplained": "the absence of every other cause",
    **dict.fromkeys(
        ("volume-in-use", "volume-mount", "image-not-found", "image-unauthorized", "image-rate-limited", "image-pull", "image-name-invalid",
         "probe-failing", "evicted", "preempted", "node-rejected", "sandbox-failed"),
        "reports of a kubelet, written as in test/unit/why; one of them is played",
    ),
    **dict.fromkeys(
        ("queued", "queue-missing", "queue-inactive", "admission-check", "workload-deactivated", "workload-evicted"),
        "reports of Kueue, written as in test/unit/why",
    ),
    **dict.fromkeys(
        ("gang-too-large", "gang-unschedulable", "gang-waiting"), "reports of Volcano, written as in test/unit/why"
    ),
}  # fmt: skip
"""The causes of docs/why.md that this module does not bring about, and the components that they would need."""


@pytest.fixture(scope="module")
def local_cluster(run_cluster: Any) -> Iterator[Cluster]:
    """Yield a cluster whose pods run as processes, on nodes that have GPUs only by name."""
    options = Options(
        nodes=2,
        shape=NodeShape(gpus=8),
        run_processes=True,
        manager_gates={"FailureEvidence": True},
    )
    with run_cluster(options) as cluster:
        yield cluster


@pytest.fixture
async def live(
    cluster_client: LiveClient, cluster_namespace: str, local_cluster: Cluster
) -> AsyncIterator[LiveTrainJob]:
    """Yield a namespace for one TrainJob."""
    made = LiveTrainJob(cluster_client, local_cluster, cluster_namespace)
    async with made.undo:
        yield made


CAUSES: list[Any] = [
    pytest.param(cause, code, words, build, id=name)
    for name, cause, code, words, build in (
        ("suspended by a person", "suspended", 3, "suspended", suspended),
        ("managed by MultiKueue", "managed-by", 3, "multikueue", managed),
        ("a finalizer holds it", "deletion-blocked", 3, "example.com/backup", kept),
        ("a scheduling gate", "scheduling-gated", 3, "example.com/hold", starts(pod={"schedulingGates": [{"name": "example.com/hold"}]})),
        ("the namespace is deleted", "namespace-terminating", 1, "is being deleted", gone),
        ("quota", "quota-exceeded", 1, "compute", quota),
        ("quota of Jobs", "quota-exceeded", 1, "count/jobs.batch", quota_of_jobs),
        ("limit range", "limit-range", 1, "maximum memory", limit_range),
        ("pod security", "pod-security", 1, "restricted", pod_security),
        ("service account", "service-account-missing", 1, "nope", starts(until="FailedCreate", pod={"serviceAccountName": "nope"})),
        ("priority class", "priority-class-missing", 1, "urgent", starts(until="FailedCreate", pod={"priorityClassName": "urgent"})),
        ("RuntimeClass", "runtime-class-missing", 1, "nvidia", starts(until="FailedCreate", pod={"runtimeClassName": "nvidia"})),
        ("webhook of pods without a server", "webhook-unreachable", 1, "policy.example.com", webhook_unreachable),
        ("admission policy", "webhook-denied", 1, "images must have digests", policy),
        ("JobSet's webhook refuses", "webhook-denied", 1, "nope", starts(
            until="TrainJobResourcesCreationFailed", job_set={"successPolicy": {"operator": "All", "targetReplicatedJobs": ["nope"]}})),
        ("another JobSet has the name", "name-conflict", 1, NAME, name_taken),
        ("the manager's role is too small", "forbidden", 1, "jobsets", forbidden),
        ("the runtime was removed", "runtime-missing", 1, "plain", runtime_removed),
        ("no replica is wanted", "manager-down", 1, "scaled to 0", manager_scaled_down),
        ("the manager does not run", "manager-silent", 1, "does not react", manager),
        ("JobSet's controller does not run", "jobset-controller", 1, "does not react", job_set_controller),
        ("kube-controller-manager does not run", "job-controller", 1, "does not react", job_controller),
        ("an unknown scheduler", "scheduler-missing", 1, "nope", scheduler),
        ("Secret of a variable", "secret-missing", 1, "hf-token", processes(
            container(env=[ENV]), waiting="CreateContainerConfigError")),
        ("ConfigMap of a variable", "config-map-missing", 1, "settings", processes(
            container(envFrom=[{"configMapRef": {"name": "settings"}}]), waiting="CreateContainerConfigError")),
        ("claim that does not exist", "claim-missing", 1, "data", starts(
            pod={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]})),
        ("claim too large", "claim-pending", 1, "data", claim_pending),
        ("storage class", "storage-class-missing", 1, "fast", storage_class),
        ("volume removed", "claim-lost", 1, "data", claim_lost),
        ("command", "command-not-found", 1, "torchrunn", processes(container(command=["torchrunn"]), code=128)),
        ("exit code", "container-failed", 1, "bad learning rate", processes(
            container(command=["sh", "-c", "echo bad learning rate; exit 2"]), code=2)),
        ("crash loop", "crash-loop", 1, "diverged", processes(
            container(command=["sh", "-c", "echo diverged; exit 3"]), waiting="CrashLoopBackOff", pod={"restartPolicy": "OnFailure"})),
        ("host name", "dns-failure", 1, "host name", processes(container(
            command=[*PYTHON, "import socket; socket.getaddrinfo('job-node-0-9.nowhere.invalid', 80)"]), code=1)),
        ("init container", "container-failed", 1, "init container", processes(
            pod={"initContainers": [container("prepare", ["sh", "-c", "exit 5"])]}, code=5)),
        ("node does not report", "node-lost", 1, "does not report", node_lost),
        ("node removed", "node-lost", 1, "does not exist", node_removed),
        ("more GPUs than a node has", "never-fits", 1, "16 nvidia.com/gpu", starts(container(resources=HIGH))),
        ("more pods than the cluster holds", "job-too-large", 1, "its 24 pods, each with 8 nvidia.com/gpu",
         starts(container(resources={"limits": {"nvidia.com/gpu": "8"}}), nodes=24)),
        ("GPUs are in use", "insufficient-resources", 3, "8 nvidia.com/gpu free", full),
        ("node selector", "node-selector", 1, "zone=moon", starts(pod={"nodeSelector": {"zone": "moon"}})),
        ("taint", "taints", 1, "example.com/own", untolerated),
        ("cordoned", "nodes-cordoned", 1, "cordoned", cordoned),
        ("affinity", "affinity", 1, "affinity", starts(pod=on_one_host({"app": "nothing"}))),
        ("key of a Secret", "key-missing", 1, "token", key_missing),
        ("launcher over SSH", "container-create", 1, "mpirun", processes(container(command=["mpirun", "x"]), waiting="ProcessesUnsupported")),
        ("out of memory, and the pod is removed", "out-of-memory", 1, "limit of 100Mi", deleted(kubelet(
            is_ended(137, "OOMKilled"), containers=[container(resources={"limits": {"memory": "100Mi"}})]))),
        ("a command that a shell does not find, and the pod is removed", "command-not-found", 1, "exit code 127", removed(
            container(command=["sh", "-c", "torchrunn train.py"]))),
        ("exit code, and the pod is removed", "container-failed", 1, "bad learning rate", removed(container(
            command=["sh", "-c", "echo bad learning rate; exit 1"], terminationMessagePolicy="FallbackToLogsOnError"))),
        ("the Job failed, and its pods and their events are deleted", "retries-exhausted", 1, "BackoffLimitExceeded", retries_exhausted),
        ("host port", "unschedulable", 3, "host ports", ports_taken),
        ("volume of another zone", "volume-node", 1, "no node can use the volumes", volume_of_another_zone),
        ("headless service removed", "service-missing", 1, "does not exist", service_removed),
        ("unknown kind of runtime", "runtime-unsupported", 1, "not supported", unsupported),
        ("Job refused as invalid", "object-invalid", 1, "a dry run of the Job", job_refused),
        ("pods may not be read", "not-ready", 3, "step node", as_reader(
            starts(pod={"nodeSelector": {"zone": "moon"}}), "trainjobs", "jobsets", "jobs")),
        ("neither pods nor events may be read", "pods-missing", 3, "step node", as_reader(
            starts(until="FailedCreate", pod={"serviceAccountName": "nope"}), "trainjobs", "jobsets", "jobs")),
        ("between retries", "pods-failing", 1, "waits before it creates the next", between_retries),
        ("deadline", "deadline-exceeded", 1, "deadline", deadline),
    )
]  # fmt: skip


def test_the_table_of_the_documentation_is_played() -> None:
    documented = re.findall(
        r"^\| `([\w-]+)` \| ", (Path(__file__).parents[2] / "docs" / "why.md").read_text(), re.MULTILINE
    )
    played = {each.values[0] for each in CAUSES}
    assert played | NOT_PLAYED.keys() == set(documented)
    assert not played & NOT_PLAYED.keys()


@pytest.mark.parametrize(("cause", "code", "words", "build"), CAUSES)
async def test_the_first_answer_names_a_visible_cause(
    cause: str, code: int, words: str, build: Build, live: LiveTrainJob
) -> None:
    await build(live)

    verdict = await live.verdict()

    assert [each.cause for each in verdict.findings[:1]] == [cause], verdict.to_dict()
    assert verdict.exit_code == code, verdict.to_dict()
    assert words in str(verdict.findings[0].to_dict()), verdict.to_dict()


HEALTHY: list[Any] = [
    pytest.param(state, build, id=name)
    for name, state, build in (
        ("created just now", State.STARTING, health.just_created),
        ("runs", State.RUNNING, health.runs()),
        ("complete after a retry", State.COMPLETE, health.after_a_retry),
        ("a failed pod was replaced", State.RUNNING, health.replaced),
        ("a container restarted once", State.RUNNING, health.restarted),
        ("suspended and resumed", State.RUNNING, health.suspended_and_resumed),
        ("the second step runs", State.RUNNING, health.second_step),
        ("an earlier TrainJob of the name failed", State.RUNNING, health.after(health.failed_before, health.runs())),
        ("a quota refused the pods before", State.RUNNING, health.refused_before),
        ("the JobSet restarted", State.RUNNING, health.job_set_restarts),
        ("only TrainJob, JobSet, Jobs and pods may be read", State.RUNNING, as_reader(health.runs(), *health.READER)),
    )
]  # fmt: skip


@pytest.mark.parametrize(("state", "build"), HEALTHY)
async def test_a_healthy_state_is_not_called_wrong(state: State, build: Build, live: LiveTrainJob) -> None:
    await build(live)

    verdict = await live.verdict()

    # By the time the objects are read, pods that were starting may run.
    states = {state, State.RUNNING} if state is State.STARTING else {state}
    assert verdict.state in states, verdict.to_dict()
    assert verdict.exit_code == 0
    assert all(each.severity == "note" for each in verdict.findings), verdict.to_dict()
