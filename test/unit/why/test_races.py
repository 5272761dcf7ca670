# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""States that look like a cause for a short time during a start, and the causes that look the same and last."""

from collections.abc import Callable
from typing import Any

import pytest

from pkg.why import State
from testkit.why.world import TrainJobObjects, condition, when

TOKEN = 'MountVolume.SetUp failed for volume "kube-api-access-x7" : '
ATTACHED = 'Multi-Attach error for volume "{}" Volume is already exclusively attached to one node and can\'t be attached to another'
SANDBOX = "Failed to create pod sandbox: plugin type calico failed: connection refused"


def readmitted(seconds: float) -> Callable[[TrainJobObjects], Any]:
    def build(world: TrainJobObjects) -> None:
        world.workload(
            condition("QuotaReserved", age=seconds),
            condition("Admitted", age=seconds),
            condition("Evicted", "False", "QuotaReserved", "Previously: Preempted", age=seconds),
        )

    return build


def readmitted_and_running(world: TrainJobObjects) -> None:
    world.train_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-queue"
    past = condition("Evicted", "False", "QuotaReserved", "Previously: Preempted")
    world.make("kueue.x-k8s.io/v1beta1", "Workload", "w", owner=world.train_job, spec={"queueName": "team-queue"},
               status={"conditions": [condition("QuotaReserved"), condition("Admitted"), past]})  # fmt: skip


def node_came_back(world: TrainJobObjects) -> None:
    world.nodes[0]["status"]["conditions"] = [condition("Ready", age=2)]
    world.event(world.pods[0], "NodeNotReady", "Node is not ready", age=20)
    world.pods[0]["status"]["conditions"] = [condition("PodScheduled"), condition("Ready", "False", age=20)]


def pulled_at_the_second_try(world: TrainJobObjects) -> None:
    world.waits("ContainerCreating")
    world.event(world.pods[0], "Failed", 'Failed to pull image "x": i/o timeout', age=20)
    world.event(world.pods[0], "Pulled", 'Successfully pulled image "x"', age=1, kind="Normal")


def job_set_deleted(seconds: float, *, grace: float = 0) -> Callable[[TrainJobObjects], Any]:
    def build(world: TrainJobObjects) -> None:
        for each in (world.job_set, world.job, *world.pods):
            each["metadata"]["deletionTimestamp"] = when(seconds - (grace if each in world.pods else 0))
        world.job_set["metadata"]["finalizers"] = ["foregroundDeletion"]

    return build


def job_set_restarts(seconds: float, *, grace: float | None = None) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which JobSet deletes a failed Job to recreate it. Its pods may use their grace periods."""

    def build(world: TrainJobObjects) -> None:
        world.job_set["status"] = {"restarts": 1}
        world.job["metadata"]["deletionTimestamp"] = when(seconds)
        world.job["status"] = {
            "failed": 1,
            "conditions": [condition("Failed", reason="BackoffLimitExceeded")],
        }
        world.ended(1)
        if grace is not None:
            world.pods[1]["metadata"]["deletionTimestamp"] = when(seconds - grace)

    return build


def provisioned(seconds: float, *, created: float | None = None) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which a provisioner has worked on a claim for ``seconds``.

    The claim is ``created`` seconds old, by default as old as the provisioner's first event.
    """

    def build(world: TrainJobObjects) -> None:
        claim = world.make(
            "v1",
            "PersistentVolumeClaim",
            "data",
            spec={},
            status={"phase": "Pending"},
            age=created or seconds,
        )
        event = world.event(
            claim, "ExternalProvisioning", "Waiting for a volume to be created", kind="Normal", age=seconds
        )
        event["lastTimestamp"] = when(1)
        world.unscheduled("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
        for pod in world.pods:
            pod["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]

    return build


def attached(volume: str, *failed: str) -> Callable[[TrainJobObjects], Any]:
    """Build a pod whose ``failed`` volumes could not be attached, the last one first, before ``volume`` was."""

    def build(world: TrainJobObjects) -> None:
        world.waits("ContainerCreating")
        for age, each in enumerate(failed, 15):
            world.event(world.pods[0], "FailedAttachVolume", ATTACHED.format(each), age=age)
        done = f'AttachVolume.Attach succeeded for volume "{volume}"'
        world.event(world.pods[0], "SuccessfulAttachVolume", done, age=2, kind="Normal")

    return build


def token_is_not_mounted(words: str, *, count: int = 1) -> Callable[[TrainJobObjects], Any]:
    def build(world: TrainJobObjects) -> None:
        world.waits("ContainerCreating")
        world.event(world.pods[0], "FailedMount", TOKEN + words, age=2, count=count)

    return build


def sandbox(failed: float, pulling: float) -> Callable[[TrainJobObjects], Any]:
    def build(world: TrainJobObjects) -> None:
        world.waits("ContainerCreating")
        world.event(world.pods[0], "FailedCreatePodSandBox", SANDBOX, age=failed)
        world.event(world.pods[0], "Pulling", 'Pulling image "x"', age=pulling, kind="Normal")

    return build


def deleted_by_a_taint(world: TrainJobObjects) -> None:
    """Add the failed pod of a lost node, which the running pod has replaced."""
    old = world.add_pod(0, suffix="old", age=900)
    old["status"] = {
        "phase": "Failed",
        "conditions": [condition("DisruptionTarget", reason="DeletionByTaintManager")],
    }


def bound(seconds: float) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which pods that waited for an hour were bound to their nodes ``seconds`` ago."""

    def build(world: TrainJobObjects) -> None:
        for pod in world.pods:
            pod["metadata"]["creationTimestamp"] = when(3600)
            pod["status"] = {"phase": "Pending", "conditions": [condition("PodScheduled", age=seconds)]}

    return build


def job_resumed(seconds: float, *, without_events: bool = False) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which JobSet resumed a Job ``seconds`` ago, which waited for longer than events are kept."""

    def build(world: TrainJobObjects) -> None:
        world.without_pods()
        world.job["status"].clear()
        world.job["metadata"].update(
            creationTimestamp=when(9000),
            managedFields=[
                {"manager": "jobset", "time": when(seconds), "fieldsV1": {"f:spec": {"f:suspend": {}}}}
            ],
        )
        if without_events:
            world.unread["Event"] = "forbidden"

    return build


def job_set_replaced(seconds: float) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the JobSet of an edited TrainJob is gone, ``seconds`` after its deletion began."""

    def build(world: TrainJobObjects) -> None:
        world.without_children()
        message = "JobSet team-a/llama is built again with the edited spec"
        world.event(world.train_job, "JobSetRecreating", message, kind="Normal", age=seconds)

    return build


def ungated(world: TrainJobObjects) -> None:
    world.unscheduled("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")


HEALTHY: list[Any] = [
    pytest.param(state, build, id=name)
    for name, state, build in (
        ("Kueue readmitted it a second ago", State.STARTING, readmitted(1)),
        ("evicted, readmitted and running", State.RUNNING, readmitted_and_running),
        ("the node came back", State.RUNNING, node_came_back),
        ("pulled at the second try", State.RUNNING, pulled_at_the_second_try),
        ("the JobSet is deleted to be built again", State.STARTING, job_set_deleted(3)),
        ("the JobSet restarts", State.STARTING, job_set_restarts(2)),
        ("the JobSet restarts, and pods use their grace periods", State.STARTING, job_set_restarts(40, grace=30)),
        ("the JobSet is deleted, and pods use their grace periods", State.STARTING, job_set_deleted(20, grace=30)),
        ("a claim is being provisioned", State.STARTING, provisioned(5)),
        ("a claim that waited for its first pod is being provisioned", State.STARTING, provisioned(5, created=90000)),
        ("a volume moved to another node", State.RUNNING, attached("pvc-1", "pvc-1")),
        ("the kubelet reads the token's ConfigMap", State.RUNNING, token_is_not_mounted(
            "failed to sync configmap cache: timed out waiting for the condition")),
        ("the kubelet does not know the ConfigMap yet", State.RUNNING, token_is_not_mounted(
            'object "team-a"/"kube-root-ca.crt" not registered')),
        ("the sandbox at the second try", State.RUNNING, sandbox(15, 3)),
        ("bound after an hour, two seconds ago", State.STARTING, bound(2)),
        ("the gates were removed", State.STARTING, ungated),
        ("the Job was resumed after hours", State.STARTING, job_resumed(1)),
        ("the Job was resumed, and events may not be read", State.STARTING, job_resumed(1, without_events=True)),
        ("the JobSet was deleted to be built again, slowly", State.STARTING, job_set_replaced(40)),
        ("a pod of a lost node was replaced", State.RUNNING, deleted_by_a_taint),
    )
]  # fmt: skip


@pytest.mark.parametrize(("state", "build"), HEALTHY)
def test_a_short_state_is_not_called_wrong(state: State, build: Callable[[TrainJobObjects], Any]) -> None:
    world = TrainJobObjects()
    build(world)
    verdict = world.verdict()
    assert (verdict.state, verdict.exit_code) == (state, 0), verdict.to_dict()
    assert all(each.severity == "note" for each in verdict.findings)


LASTING: list[Any] = [
    pytest.param(cause, code, build, id=name)
    for name, cause, code, build in (
        ("Kueue admitted it and does not resume it", "suspended", 3, readmitted(60)),
        ("bound after an hour, and nothing happens", "kubelet-silent", 1, bound(90)),
        ("the Job was resumed, and nothing happens", "job-controller", 1, job_resumed(60)),
        ("the JobSet was deleted, and nothing happens", "manager-silent", 1, job_set_replaced(1800)),
        ("the JobSet stays", "deletion-blocked", 3, job_set_deleted(60)),
        ("the deleted Job stays", "container-failed", 1, job_set_restarts(60)),
        ("the deleted Job stays after its pods' grace periods", "container-failed", 1, job_set_restarts(60, grace=30)),
        ("a claim is not provisioned", "claim-pending", 1, provisioned(600)),
        ("another volume was attached", "volume-in-use", 1, attached("pvc-2", "pvc-1")),
        ("one of two volumes was attached", "volume-in-use", 1, attached("pvc-1", "pvc-1", "pvc-2")),
        ("the ConfigMap stays unknown", "volume-mount", 1, token_is_not_mounted(
            'object "team-a"/"kube-root-ca.crt" not registered', count=4)),
        ("the sandbox fails after a restart", "sandbox-failed", 1, sandbox(3, 200)),
    )
]  # fmt: skip


@pytest.mark.parametrize(("cause", "code", "build"), LASTING)
def test_a_state_that_lasts_is_the_answer(
    cause: str, code: int, build: Callable[[TrainJobObjects], Any]
) -> None:
    world = TrainJobObjects()
    build(world)
    verdict = world.verdict()
    assert ([each.cause for each in verdict.findings[:1]], verdict.exit_code) == ([cause], code), (
        verdict.to_dict()
    )
