# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Healthy states, some of which look like causes."""

from collections.abc import Callable
from typing import Any

import pytest

from pkg.why import Reference, State
from testkit.why.states import job_set_suspended, sidecar
from testkit.why.world import TrainJobObjects, condition, when

NO_GPU = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def complete(world: TrainJobObjects) -> None:
    world.train_job["status"]["conditions"] = [condition("Complete", reason="AllJobsCompleted")]
    world.job_set["status"]["conditions"] = [condition("Completed", reason="AllJobsCompleted")]


def complete_without_children(world: TrainJobObjects) -> None:
    complete(world)
    world.without_children()


def complete_on_lost_nodes(world: TrainJobObjects) -> None:
    complete(world)
    world.remove(*world.nodes)


def complete_after_failures(world: TrainJobObjects) -> None:
    complete(world)
    world.ended(1, pod=0)


def job_set_without_jobs(world: TrainJobObjects) -> None:
    world.remove(world.job, *world.pods, world.service)


def job_set_just_suspended(world: TrainJobObjects) -> None:
    job_set_suspended(world)
    world.job_set["metadata"]["creationTimestamp"] = world.job["metadata"]["creationTimestamp"] = when(1)


def job_without_pods(world: TrainJobObjects) -> None:
    world.without_pods()
    world.job["status"] = {}


def pulling(world: TrainJobObjects) -> None:
    for pod in world.pods:
        pod["status"]["phase"] = "Pending"
        pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
        world.event(pod, "Pulling", 'Pulling image "registry.example/train:1"', kind="Normal")


def initializing(world: TrainJobObjects) -> None:
    for number in range(2):
        world.container(pod=number, init=True, running={"startedAt": when(10)})


def replaced_pod(world: TrainJobObjects) -> None:
    failed = world.add_pod(0, suffix="older", age=900)
    failed["status"] = {"phase": "Failed", "containerStatuses": [
        {"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}  # fmt: skip
    world.event(failed, "BackOff", "Back-off restarting failed container")


def events_of_an_earlier_job(world: TrainJobObjects) -> None:
    quota = (
        "Error creating: pods is forbidden: exceeded quota: a, requested: cpu=1, used: cpu=1, limited: cpu=1"
    )
    world.event(world.job, "FailedCreate", quota, uid="uid-of-an-earlier-job")
    world.event(world.pods[0], "FailedMount", 'secret "x" not found', uid="uid-of-an-earlier-pod")
    world.event(world.train_job, "TrainJobResourcesCreationFailed", "x", uid="uid-of-an-earlier-train-job")


def refused_before(world: TrainJobObjects) -> None:
    quota = (
        "Error creating: pods is forbidden: exceeded quota: a, requested: cpu=1, used: cpu=1, limited: cpu=1"
    )
    world.event(world.job, "FailedCreate", quota, age=280)
    world.event(world.train_job, "TrainJobResourcesCreationFailed", "conflict", age=290)
    world.event(world.pods[0], "FailedScheduling", NO_GPU, age=200)
    world.event(world.pods[0], "FailedMount", 'MountVolume.SetUp failed: secret "x" not found', age=200)


def restarted_once_long_ago(world: TrainJobObjects) -> None:
    status = world.pods[0]["status"]["containerStatuses"][0]
    status.update(restartCount=1, lastState={"terminated": {"exitCode": 1, "reason": "Error"}})
    status["state"] = {"running": {"startedAt": when(7200)}}


def restarted_once_just_now(world: TrainJobObjects) -> None:
    status = world.pods[0]["status"]["containerStatuses"][0]
    status.update(restartCount=1, lastState={"terminated": {"exitCode": 1, "reason": "Error"}})
    status["state"] = {"running": {"startedAt": when(10)}}


def not_ready_yet(world: TrainJobObjects) -> None:
    pod = world.pods[0]
    pod["status"]["conditions"] = [condition("PodScheduled"), condition("Ready", "False", age=20)]
    world.event(pod, "Unhealthy", "Readiness probe failed: connection refused")


def one_done(world: TrainJobObjects) -> None:
    world.pods[0]["status"]["phase"] = "Succeeded"
    world.pods[0]["status"]["containerStatuses"][0]["state"] = {
        "terminated": {"exitCode": 0, "reason": "Completed"}
    }
    world.job["status"]["succeeded"] = 1


def one_done_with_a_killed_sidecar(world: TrainJobObjects) -> None:
    one_done(world)
    ended = {"terminated": {"exitCode": 143, "reason": "Error", "finishedAt": when(5)}}
    world.pods[0]["status"]["initContainerStatuses"] = [
        {"name": "proxy", "restartCount": 0, "state": ended, "ready": False}
    ]


def one_done_and_deleted(world: TrainJobObjects) -> None:
    world.remove(world.pods[0])
    world.job["status"]["succeeded"] = 1


def steps(world: TrainJobObjects) -> None:
    """Declare a dataset initializer in the JobSet, for which the step node waits."""
    world.job_set["spec"]["replicatedJobs"] = [
        {"name": "dataset-initializer"}, {"name": "node", "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}
    ]  # fmt: skip


def in_order(world: TrainJobObjects) -> None:
    world.job_set["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    world.make("batch/v1", "Job", "llama-later-0", owner=world.job_set,
               spec={"parallelism": 1, "suspend": True, "template": {"spec": {}}}, status={})  # fmt: skip


def between_steps(world: TrainJobObjects) -> None:
    steps(world)
    world.job["status"] = {"succeeded": 2, "conditions": [condition("Complete", age=1)]}
    for pod in world.pods:
        pod["status"]["phase"] = "Succeeded"


def deleted_secret(world: TrainJobObjects) -> None:
    for pod in world.pods:
        pod["spec"]["volumes"] = [{"name": "t", "secret": {"secretName": "token"}}]
    world.absent.add(Reference("Secret", "team-a", "token"))


def optional(kind: str, volume: str, field: str) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the pods start although an optional object of a volume does not exist."""

    def state(world: TrainJobObjects) -> None:
        pulling(world)
        for pod in world.pods:
            pod["spec"]["volumes"] = [{"name": "t", volume: {field: "token", "optional": True}}]
        world.absent.add(Reference(kind, "team-a", "token"))

    return state


def late_claim(world: TrainJobObjects) -> None:
    claim = world.make("v1", "PersistentVolumeClaim", "data", spec={}, status={"phase": "Pending"})
    world.event(
        claim,
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
        kind="Normal",
    )
    pulling(world)
    for pod in world.pods:
        pod["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]


def gang_runs(world: TrainJobObjects) -> None:
    world.group(
        "scheduling.volcano.sh/v1beta1", status={"phase": "Running", "conditions": [
            condition("Unschedulable", message="2/2 tasks in gang unschedulable", age=250), condition("Scheduled", age=200)]},
    )  # fmt: skip


def admitted(world: TrainJobObjects) -> None:
    world.train_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-queue"
    conditions = [condition("QuotaReserved"), condition("Admitted")]
    world.make("kueue.x-k8s.io/v1beta1", "Workload", "w", owner=world.train_job,
               spec={"queueName": "team-queue"}, status={"conditions": conditions})  # fmt: skip


def resumed(world: TrainJobObjects) -> None:
    world.train_job["status"]["conditions"] = [
        condition("Suspended", "False", "Resumed", "TrainJob is resumed")
    ]


def just_resumed(world: TrainJobObjects) -> None:
    world.suspend()
    world.train_job["spec"]["suspend"] = False
    world.train_job["metadata"]["managedFields"][1]["time"] = when(1)
    world.job_set["metadata"]["managedFields"] = [
        {
            "manager": "trainer",
            "operation": "Apply",
            "time": when(300),
            "fieldsV1": {"f:spec": {"f:suspend": {}}},
        }
    ]


def new_leader(world: TrainJobObjects) -> None:
    world.without_children()
    world.lease["spec"].update(holderIdentity="", renewTime=when(3))


def manager_restarts(world: TrainJobObjects) -> None:
    world.manager["status"] = {"unavailableReplicas": 1}
    world.lease["spec"]["renewTime"] = when(600)


def nothing_else_is_readable(world: TrainJobObjects) -> None:
    for kind in ("Node", "Event", "Deployment.apps", "Lease.coordination.k8s.io", "ResourceQuota", "Service"):
        world.unread[kind] = "forbidden"
    kept = ("TrainJob", "JobSet", "Job", "Pod")
    world.objects = [each for each in world.objects if each["kind"] in kept]


def no_dns_host_names(world: TrainJobObjects) -> None:
    world.job_set["spec"]["network"] = {"enableDNSHostnames": False}
    world.remove(world.service)


def other_trouble_of_the_namespace(world: TrainJobObjects) -> None:
    other = world.make("v1", "Pod", "web", spec={}, status={"phase": "Pending", "conditions": [
        condition("PodScheduled", "False", "Unschedulable", NO_GPU)]})  # fmt: skip
    world.event(other, "FailedScheduling", NO_GPU)
    world.make(
        "scheduling.volcano.sh/v1beta1", "PodGroup", "web", spec={"minMember": 9}, status={"phase": "Pending"}
    )


def job_set_just_finished(world: TrainJobObjects) -> None:
    world.job_set["status"]["conditions"] = [condition("Completed", age=1)]
    world.job["status"] = {"succeeded": 2, "conditions": [condition("Complete", age=1)]}
    for pod in world.pods:
        pod["status"]["phase"] = "Succeeded"


def other_node_down(world: TrainJobObjects) -> None:
    world.add_node("worker-9")["status"]["conditions"] = [condition("Ready", "Unknown")]


def other_node_cordoned(world: TrainJobObjects) -> None:
    world.add_node("worker-9")["spec"] = {"unschedulable": True}


def deletion_of_a_replaced_pod(world: TrainJobObjects) -> None:
    old = world.add_pod(0, suffix="older", age=900)
    old["metadata"]["deletionTimestamp"] = when(30)
    old["spec"]["nodeName"] = "gone"


def with_all_that_pods_refer_to(world: TrainJobObjects) -> None:
    """Let the pods use all of a quota, have a bound claim and both kinds of classes, and get limits of a LimitRange."""
    amounts = {"pods": "2"}
    world.make(
        "v1", "ResourceQuota", "compute", spec={"hard": amounts}, status={"hard": amounts, "used": amounts}
    )
    limits = [{"type": "Container", "default": {"memory": "1Gi"}}]
    world.make("v1", "LimitRange", "defaults", spec={"limits": limits})
    world.make("v1", "PersistentVolumeClaim", "data", spec={}, status={"phase": "Bound"})
    world.make("scheduling.k8s.io/v1", "PriorityClass", "own", namespace="")
    world.make("node.k8s.io/v1", "RuntimeClass", "own", namespace="")
    for pod in world.pods:
        volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}
        pod["spec"].update(priorityClassName="own", runtimeClassName="own", volumes=[volume])


def gang_starts(*, members: int = 2, **status: Any) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the pods of a gang pull their image.

    With more ``members`` than pods, they are those of the gang's first step.
    """

    def state(world: TrainJobObjects) -> None:
        pulling(world)
        world.group("scheduling.volcano.sh/v1beta1", status={"phase": "Inqueue", **status}, minMember=members)

    return state


REPORTED = condition("Unschedulable", message="2/2 tasks in gang unschedulable", age=30)

CASES: list[Any] = [
    pytest.param(age, state, build, id=name)
    for name, age, state, build in (
        ("complete", 300, State.COMPLETE, complete),
        ("complete, children deleted", 300, State.COMPLETE, complete_without_children),
        ("complete, nodes deleted", 300, State.COMPLETE, complete_on_lost_nodes),
        ("complete after a retry", 300, State.COMPLETE, complete_after_failures),
        ("runs", 300, State.RUNNING, lambda world: None),
        ("runs for days", 300000, State.RUNNING, lambda world: None),
        ("created a second ago", 1, State.STARTING, TrainJobObjects.without_children),
        ("JobSet a second old", 1, State.STARTING, job_set_without_jobs),
        ("JobSet a second old that another program suspended", 300, State.STARTING, job_set_just_suspended),
        ("Job a second old", 1, State.STARTING, job_without_pods),
        ("pods not scheduled yet", 2, State.STARTING, lambda world: world.unscheduled()),
        ("pulls a large image", 240, State.STARTING, pulling),
        ("init containers run", 60, State.STARTING, initializing),
        ("a failed pod was replaced", 300, State.RUNNING, replaced_pod),
        ("events of earlier objects", 300, State.RUNNING, events_of_an_earlier_job),
        ("refused before, created since", 300, State.RUNNING, refused_before),
        ("restarted long ago", 9000, State.RUNNING, restarted_once_long_ago),
        ("restarted just now", 300, State.RUNNING, restarted_once_just_now),
        ("not ready yet", 30, State.RUNNING, not_ready_yet),
        ("one pod is done", 300, State.RUNNING, one_done),
        ("one pod is done, and its sidecar was killed", 300, State.RUNNING, one_done_with_a_killed_sidecar),
        ("one pod is done and deleted", 300, State.RUNNING, one_done_and_deleted),
        ("the initializer runs", 300, State.RUNNING, steps),
        ("a later Job waits for its turn", 300, State.RUNNING, in_order),
        ("between two steps", 60, State.STARTING, between_steps),
        ("a Secret deleted after the start", 300, State.RUNNING, deleted_secret),
        ("an optional Secret", 60, State.STARTING, optional("Secret", "secret", "secretName")),
        ("an optional ConfigMap", 60, State.STARTING, optional("ConfigMap", "configMap", "name")),
        (
            "a quota that is used up, a claim, classes, limits",
            300,
            State.RUNNING,
            with_all_that_pods_refer_to,
        ),
        ("a claim bound at the first pod", 60, State.STARTING, late_claim),
        ("the gang runs", 300, State.RUNNING, gang_runs),
        ("the gang starts", 60, State.STARTING, gang_starts()),
        (
            "the gang starts, and its last report is old",
            60,
            State.STARTING,
            gang_starts(conditions=[REPORTED]),
        ),
        ("the first step of a gang starts", 60, State.STARTING, gang_starts(members=4)),
        ("Kueue admitted it", 300, State.RUNNING, admitted),
        ("resumed", 300, State.RUNNING, resumed),
        ("resumed a second ago", 300, State.STARTING, just_resumed),
        ("the manager's replicas change", 2, State.STARTING, new_leader),
        ("the manager restarts", 300, State.RUNNING, manager_restarts),
        ("no other kind is readable", 300, State.RUNNING, nothing_else_is_readable),
        ("no DNS host names", 300, State.RUNNING, no_dns_host_names),
        ("other pods have trouble", 300, State.RUNNING, other_trouble_of_the_namespace),
        ("the JobSet just finished", 300, State.STARTING, job_set_just_finished),
        ("another node is down", 300, State.RUNNING, other_node_down),
        ("another node is cordoned", 300, State.RUNNING, other_node_cordoned),
        ("a sidecar has a moment to end", 300, State.RUNNING, sidecar(age=60)),
        ("an init container that restarts always ends by itself", 300, State.RUNNING, sidecar(init=True)),
        ("an old pod is deleted slowly", 300, State.RUNNING, deletion_of_a_replaced_pod),
    )
]


@pytest.mark.parametrize(("age", "state", "build"), CASES)
def test_a_healthy_state_is_not_called_wrong(
    age: float, state: State, build: Callable[[TrainJobObjects], Any]
) -> None:
    world = TrainJobObjects(age=age)
    build(world)

    verdict = world.verdict()

    assert (verdict.state, verdict.exit_code) == (state, 0), verdict.to_dict()
    assert all(each.severity == "note" for each in verdict.findings)
