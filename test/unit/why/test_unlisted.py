# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""States with two causes, with traces of a past cause, and with causes similar to those of the catalog."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from trainerctl.cli.live import ServerClock

from pkg.why import LiveObject, Reference, State, diagnose
from testkit.why.states import (
    NO_GPU,
    failed,
    manager_scaled_down,
    no_gpus_at_all,
    no_node_for,
)
from testkit.why.world import NOW, TrainJobObjects, condition, when

REFUSED = "pull access denied, repository does not exist or may require authorization"


def two_causes(world: TrainJobObjects) -> None:
    world.waits("CreateContainerConfigError", 'secret "hf-token" not found', pod=0)
    world.waits("ErrImagePull", "manifest unknown", pod=1)


def job_set_of_another(world: TrainJobObjects) -> None:
    world.job_set["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    world.remove(world.service, world.job, *world.pods)


def job_of_another(world: TrainJobObjects) -> None:
    world.job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    world.without_pods()
    world.job["status"].clear()


def pod_stays(world: TrainJobObjects) -> None:
    world.pods[0]["metadata"].update(deletionTimestamp=when(600), finalizers=["example.com/backup"])


def pod_ends(world: TrainJobObjects) -> None:
    world.pods[0]["metadata"]["deletionTimestamp"] = when(-20)


def pull_secret(world: TrainJobObjects) -> None:
    world.waits("ImagePullBackOff", "Back-off pulling image")
    world.event(world.pods[0], "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (regcred); "
                "attempting to pull the image may not succeed.")  # fmt: skip
    world.event(world.pods[0], "Failed", f'Failed to pull image "registry.example/train:1": {REFUSED}')


def public_image_without_its_secret(world: TrainJobObjects) -> None:
    world.event(
        world.pods[0],
        "FailedToRetrieveImagePullSecret",
        "Unable to retrieve some image pull secrets (regcred)",
    )


def initializer_fails(world: TrainJobObjects) -> None:
    world.pods[0]["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "dataset-initializer"
    world.ended(1, message="403 Client Error")


def suspended_by_both(world: TrainJobObjects) -> None:
    world.workload(
        condition("QuotaReserved", "False", "Pending", "insufficient quota"), spec={"active": False}
    )


def failed_twice(world: TrainJobObjects) -> None:
    """Make the newest pod fail for a different reason than the pod that it replaced."""
    older = world.add_pod(0, suffix="older", age=900)
    older["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    world.ended(2)


def other_pool(world: TrainJobObjects) -> None:
    world.unscheduled("0/2 nodes are available: 2 node(s) were unschedulable.")
    for node in world.nodes:
        node["spec"] = {"unschedulable": True}


def drained(world: TrainJobObjects) -> None:
    disrupted = condition(
        "DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting"
    )
    world.pods[0]["status"] = {"phase": "Failed", "conditions": [disrupted]}


def ttl(world: TrainJobObjects) -> None:
    """Complete the TrainJob, and remove its JobSet and pods as the JobSet's TTL does."""
    world.train_job["status"]["conditions"] = [condition("Complete")]
    world.without_children()


def pulls_for_an_hour(world: TrainJobObjects) -> None:
    world.waits("ContainerCreating")
    world.waits("ContainerCreating", pod=1)
    for pod in world.pods:
        world.event(pod, "Pulling", 'Pulling image "registry.example/40gb:1"', kind="Normal", age=3000)


def starts_for_an_hour(world: TrainJobObjects) -> None:
    world.waits("ContainerCreating")
    world.waits("ContainerCreating", pod=1)


def ran_out_of_memory_in_a_sidecar(world: TrainJobObjects) -> None:
    world.ended(137, "OOMKilled", init=True)


def manager_ended_with_the_job(world: TrainJobObjects) -> None:
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    world.ended(3)
    world.lease["spec"]["renewTime"] = when(900)


def of_an_earlier_train_job(world: TrainJobObjects, **metadata: Any) -> None:
    world.remove(world.service, world.job, *world.pods[1:])
    world.job_set["metadata"]["ownerReferences"][0]["uid"] = "uid-of-an-earlier-train-job"
    world.job_set["metadata"].update(metadata)


def earlier_job_set_ends(world: TrainJobObjects) -> None:
    of_an_earlier_train_job(world, deletionTimestamp=when(400), finalizers=["foregroundDeletion"])


def suspended_before_an_earlier_job_set_ended(world: TrainJobObjects) -> None:
    earlier_job_set_ends(world)
    world.train_job["spec"]["suspend"] = True


def awaits(kind: str, *, exists: bool = True) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the manager waits for the deletion of an object."""

    def state(world: TrainJobObjects) -> None:
        world.without_children()
        world.event(
            world.train_job,
            "WaitingForDeletion",
            f"Waiting for the deletion of {kind} team-a/llama; its finalizers: example.com/backup",
        )
        if kind == "PodGroup" and exists:
            world.make("scheduling.volcano.sh/v1beta1", kind, "llama", spec={}, status={})
        elif not exists:
            world.absent.add(Reference(kind, "team-a", "llama"))

    return state


def tried_before_the_manager_was_scaled_down(age: float) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        manager_scaled_down(world)
        world.event(
            world.train_job, "TrainJobResourcesCreationFailed", "etcdserver: request timed out", age=age
        )

    return state


def tried_once(world: TrainJobObjects) -> None:
    world.without_children()
    world.event(world.train_job, "TrainJobResourcesCreationFailed", "etcdserver: request timed out", age=1800)


def without_events(state: Callable[[TrainJobObjects], Any]) -> Callable[[TrainJobObjects], Any]:
    def changed(world: TrainJobObjects) -> None:
        state(world)
        world.unread["Event"] = "events is forbidden"

    return changed


def all_succeeded(world: TrainJobObjects, *, age: float) -> None:
    for pod in world.pods:
        pod["status"]["phase"] = "Succeeded"
        pod["status"]["containerStatuses"][0]["state"] = {
            "terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": when(age)}
        }


def pods_ended(age: float) -> Callable[[TrainJobObjects], Any]:
    return lambda world: all_succeeded(world, age=age)


def jobs_ended(age: float, kind: str = "Complete") -> Callable[[TrainJobObjects], Any]:
    """Return the state in which JobSet's controller has not observed the end of the only Job."""

    def state(world: TrainJobObjects) -> None:
        all_succeeded(world, age=age)
        world.job["status"] = {"succeeded": 2, "conditions": [condition(kind, age=age)]}

    return state


def job_ended_before_the_other(world: TrainJobObjects) -> None:
    jobs_ended(600)(world)
    world.make("batch/v1", "Job", "llama-node-1", owner=world.job_set,
               spec={"parallelism": 1, "completions": 1}, status={"startTime": when(5)}, age=5)  # fmt: skip


def resumed_just_now(world: TrainJobObjects) -> None:
    world.without_children()
    world.train_job["status"]["conditions"] = [condition("Suspended", "False", "Resumed", age=5)]
    world.train_job["metadata"]["managedFields"] = [
        {"manager": "kubectl-patch", "time": when(6), "fieldsV1": {"f:spec": {"f:suspend": {}}}}
    ]


def restarted_just_now(world: TrainJobObjects) -> None:
    world.without_pods()
    world.job["metadata"]["creationTimestamp"] = when(5)


def deleted_with_its_pods(age: float, *, lost: bool = False) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.train_job["metadata"].update(
            deletionTimestamp=when(age + 30), finalizers=["foregroundDeletion"]
        )
        for each in world.pods:
            each["metadata"].update(
                deletionTimestamp=when(age), finalizers=["batch.kubernetes.io/job-tracking"]
            )
        if lost:
            world.nodes[1]["status"]["conditions"] = [condition("Ready", "Unknown", "NodeStatusUnknown")]

    return state


def scaled_up(
    state: Callable[[TrainJobObjects], Any], reason: str, age: float = 5
) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which an autoscaler has reported on the pods."""

    def changed(world: TrainJobObjects) -> None:
        state(world)
        for pod in world.pods:
            world.event(pod, "NotTriggerScaleUp", "pod didn't trigger scale-up", kind="Normal", age=age + 60)
            world.event(pod, reason, "pod triggered scale-up: [{gpu 0->1 (max: 4)}]", kind="Normal", age=age)

    return changed


NO_POOL = no_node_for(
    {"pool": "gpu"}, "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
)


def runtime_deleted_later(world: TrainJobObjects) -> None:
    """Delete the runtime of a TrainJob whose JobSet exists, but has no Jobs yet."""
    world.absent.add(Reference("ClusterTrainingRuntime.trainer.kubeflow.org", "", "torch-distributed"))
    world.remove(world.job, *world.pods)


def forbidden(*hidden: str, ready: int) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which kinds between the TrainJob and its pods may not be read."""

    def state(world: TrainJobObjects) -> None:
        world.train_job["status"]["jobsStatus"] = [{"name": "node", "ready": ready}]
        world.job_set["status"]["replicatedJobsStatus"] = [{"name": "node", "ready": ready, "active": 1}]
        world.unread |= dict.fromkeys(hidden, "forbidden")
        world.objects = [each for each in world.objects if LiveObject(each).group_kind not in hidden]

    return state


def refused_once(*hidden: str) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the first attempts failed, and the kinds in ``hidden`` may not be read."""

    def state(world: TrainJobObjects) -> None:
        world.event(
            world.train_job, "TrainJobResourcesCreationFailed", "etcdserver: request timed out", age=280
        )
        world.event(world.job_set, "JobCreationFailed", "etcdserver: request timed out", age=270)
        forbidden(*hidden, ready=1)(world)

    return state


def deleted_group(world: TrainJobObjects) -> None:
    world.without_children()
    group = world.group("scheduling.volcano.sh/v1beta1", status={})
    group["metadata"].update(deletionTimestamp=when(60), finalizers=["example.com/backup"])
    world.unread["Event"] = "forbidden"


def bound_late(world: TrainJobObjects) -> None:
    """Let the pods, which fit on no node, use a claim that is bound only when a pod is scheduled."""
    world.unscheduled(NO_GPU)
    world.make("v1", "PersistentVolumeClaim", "data", spec={}, status={"phase": "Pending"})
    for pod in world.pods:
        pod["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]


CASES: list[Any] = [
    pytest.param(age, state, cause, words, build, id=name)
    for name, age, state, cause, words, build in (
        ("two causes", 300, State.WRONG, "secret-missing", "hf-token", two_causes),
        ("the JobSet is another controller's", 300, State.WAITING, "managed-by", "the JobSet, not", job_set_of_another),
        ("the Job is another controller's", 300, State.WAITING, "managed-by", "the Job, not", job_of_another),
        ("a finalizer keeps a pod", 900, State.WAITING, "deletion-blocked", "example.com/backup", pod_stays),
        ("a pod ends in its grace period", 900, State.RUNNING, None, "", pod_ends),
        ("the pull secret does not exist", 300, State.WRONG, "secret-missing", "regcred", pull_secret),
        ("a pull secret that is not needed", 300, State.RUNNING, None, "", public_image_without_its_secret),
        ("the initializer fails", 300, State.WRONG, "container-failed", "dataset-initializer", initializer_fails),
        ("suspended, and its Workload deactivated", 300, State.WAITING, "workload-deactivated", "deactivated", suspended_by_both),
        ("the newest failure counts", 300, State.WRONG, "container-failed", "exit code 2", failed_twice),
        ("all nodes are cordoned", 300, State.WRONG, "nodes-cordoned", "cordoned", other_pool),
        ("drained", 300, State.WRONG, "evicted", "drain", drained),
        ("complete, and its JobSet deleted by its TTL", 9000, State.COMPLETE, None, "", ttl),
        ("pulls for an hour", 3600, State.STARTING, "image-pulling", "registry.example/40gb:1", pulls_for_an_hour),
        ("starts for an hour", 3600, State.WAITING, "unexplained", "no cause is visible", starts_for_an_hour),
        ("memory of an init container", 300, State.WRONG, "out-of-memory", "init container", ran_out_of_memory_in_a_sidecar),
        ("the manager ended too", 300, State.WRONG, "container-failed", "exit code 3", manager_ended_with_the_job),
        ("an earlier JobSet of this name is being deleted", 300, State.WAITING, "deletion-blocked",
         "the JobSet llama of an earlier TrainJob", earlier_job_set_ends),
        ("an earlier JobSet of this name is not being deleted", 300, State.WAITING, "deletion-blocked",
         "its deletion was not requested yet", of_an_earlier_train_job),
        ("a pod of an earlier JobSet of this name", 300, State.WAITING, "deletion-blocked",
         "Pod llama-node-0-0-abcde still exists, on the node worker-0", earlier_job_set_ends),
        ("suspended, and an earlier JobSet exists", 300, State.WAITING, "deletion-blocked",
         "of an earlier TrainJob", suspended_before_an_earlier_job_set_ended),
        ("a PodGroup must be deleted first", 300, State.WAITING, "deletion-blocked", "PodGroup llama", awaits("PodGroup")),
        ("a PodGroup is being deleted, and events may not be read", 300, State.WAITING, "deletion-blocked",
         "its finalizers are example.com/backup", deleted_group),
        ("a ConfigMap must be deleted first", 300, State.WAITING, "deletion-blocked", "example.com/backup", awaits("ConfigMap")),
        ("a PodGroup was deleted since", 300, State.WRONG, "manager-silent", "does not react", awaits("PodGroup", exists=False)),
        ("a Secret was deleted since", 300, State.WRONG, "manager-silent", "does not react", awaits("Secret", exists=False)),
        ("an earlier JobSet of a new TrainJob", 5, State.STARTING, None, "", of_an_earlier_train_job),
        ("failed long ago, and the manager is down since", 3000, State.WRONG, "manager-down", "scaled to 0",
         tried_before_the_manager_was_scaled_down(1800)),
        ("failed just now, and the manager is down", 3000, State.WRONG, "creation-failed", "scaled to 0",
         tried_before_the_manager_was_scaled_down(100)),
        ("failed long ago, and not tried again", 3000, State.WRONG, "manager-silent", "does not react", tried_once),
        ("events of a new Job may not be read", 5, State.STARTING, None, "", without_events(TrainJobObjects.without_pods)),
        ("events of a Job that runs may not be read", 300, State.RUNNING, None, "", without_events(lambda w: None)),
        ("the Jobs ended, and their JobSet did not", 9000, State.WRONG, "jobset-controller", "to the end of the Jobs", jobs_ended(600)),
        ("a Job failed, and its JobSet does nothing", 9000, State.WRONG, "failed", "to the end of the Jobs", jobs_ended(600, "Failed")),
        ("the Jobs just ended", 9000, State.STARTING, None, "", jobs_ended(3)),
        ("one Job ended, and another has just begun", 300, State.STARTING, None, "", job_ended_before_the_other),
        ("the pods ended, and their Job did not", 9000, State.WRONG, "job-controller", "the Job is not complete", pods_ended(600)),
        ("the pods just ended", 300, State.STARTING, None, "", pods_ended(3)),
        ("resumed just now, hours after its creation", 9000, State.STARTING, None, "", resumed_just_now),
        ("restarted just now, hours after its creation", 9000, State.STARTING, None, "", restarted_just_now),
        ("deleted, and pods are on a lost node", 9000, State.WAITING, "deletion-blocked",
         "on the node worker-1, which is not ready", deleted_with_its_pods(3600, lost=True)),
        ("deleted, and pods do not end", 9000, State.WAITING, "deletion-blocked",
         "has not ended in its grace period", deleted_with_its_pods(3600)),
        ("deleted, and pods end", 9000, State.WAITING, "deletion-blocked",
         "its children are deleted first", deleted_with_its_pods(5, lost=True)),
        ("the pool of GPUs is scaled up from zero", 300, State.WAITING, "never-fits",
         "an autoscaler is adding a node", scaled_up(no_gpus_at_all, "TriggeredScaleUp")),
        ("Karpenter adds a node with the labels", 300, State.WAITING, "node-selector",
         "an autoscaler is adding a node", scaled_up(NO_POOL, "Nominated")),
        ("the autoscaler adds no node", 300, State.WRONG, "node-selector", "pool=gpu", scaled_up(NO_POOL, "NotTriggerScaleUp")),
        ("the added node did not come", 9000, State.WRONG, "never-fits", "no node has nvidia.com/gpu",
         scaled_up(no_gpus_at_all, "TriggeredScaleUp", 1800)),
        ("the runtime was deleted after the JobSet was built", 300, State.WRONG, "creation-failed",
         "jobset-controller-manager", runtime_deleted_later),
        ("pods of a ready Job may not be read", 9000, State.RUNNING, None, "1 Job ready", forbidden("Pod", ready=1)),
        ("pods of two ready Jobs may not be read", 9000, State.RUNNING, None, "2 Jobs ready", forbidden("Pod", ready=2)),
        ("ready Jobs may not be read", 9000, State.RUNNING, None, "1 Job ready", forbidden("Job.batch", ready=1)),
        ("the JobSet of ready Jobs may not be read", 9000, State.RUNNING, None, "1 Job ready",
         forbidden("JobSet.jobset.x-k8s.io", ready=1)),
        ("Jobs that are not ready may not be read", 9000, State.WAITING, "unexplained", "no Job is ready, and the pods cannot be read",
         forbidden("Job.batch", ready=0)),
        ("refused before, and Jobs may not be read", 300, State.RUNNING, None, "", refused_once("Job.batch")),
        ("refused before, and JobSets may not be read", 300, State.RUNNING, None, "", refused_once("JobSet.jobset.x-k8s.io")),
        ("refused before, and pods may not be read", 300, State.RUNNING, None, "", refused_once("Pod")),
        ("refused before, and Services may not be read", 300, State.RUNNING, None, "", refused_once("Service")),
        ("events of a claim may not be read", 300, State.WAITING, "insufficient-resources", "free", without_events(bound_late)),
    )
]  # fmt: skip


@pytest.mark.parametrize(("age", "state", "cause", "words", "build"), CASES)
def test_the_answer_to_an_unlisted_state(
    age: float, state: State, cause: str | None, words: str, build: Callable[[TrainJobObjects], Any]
) -> None:
    world = TrainJobObjects(age=age)
    build(world)

    verdict = world.verdict()

    assert (verdict.state, next((each.cause for each in verdict.findings), None)) == (state, cause), (
        verdict.to_dict()
    )
    assert words in str(verdict.to_dict()), verdict.to_dict()


def test_the_deletion_of_a_pod_was_requested_before_its_grace_period() -> None:
    world = TrainJobObjects(age=900)
    world.pods[0]["metadata"].update(deletionTimestamp=when(300), deletionGracePeriodSeconds=300)

    evidence = world.verdict().findings[0].evidence

    assert evidence[0] == "deletion of Pod llama-node-0-0-abcde was requested 10m ago"


def test_both_causes_are_listed() -> None:
    world = TrainJobObjects()
    two_causes(world)

    assert [each.cause for each in world.verdict().findings] == ["secret-missing", "image-not-found"]


def test_workloads_that_may_not_be_read_are_no_reason_to_look_for_kueue() -> None:
    world = TrainJobObjects()
    workload = world.workload(condition("QuotaReserved", "False", "Pending", "insufficient quota"))
    world.remove(workload)
    world.unread["Workload.kueue.x-k8s.io"] = "workloads is forbidden"

    first = world.verdict().findings[0]

    assert (first.cause, first.advice.partition(" in ")[0]) == (
        "queued",
        "Get permission to list Workloads",
    )


class CountedList(list[LiveObject]):
    """A list that counts how often it is iterated over."""

    def __init__(self, objects: Sequence[LiveObject]) -> None:
        super().__init__(objects)
        self.reads = 0

    def __iter__(self) -> Iterator[LiveObject]:
        self.reads += 1
        return super().__iter__()


def test_the_events_of_a_namespace_are_read_once_for_all_pods() -> None:
    world = TrainJobObjects(nodes=40)
    world.unscheduled(NO_GPU)
    for pod in world.pods:
        world.event(pod, "FailedScheduling", NO_GPU)
    snapshot = world.snapshot()
    events = CountedList(snapshot.all("Event"))
    counted = replace(snapshot, objects={**snapshot.objects, "Event": events})

    assert [each.cause for each in diagnose(counted).findings] == ["insufficient-resources"]
    assert events.reads <= 2


def test_a_scheduler_that_writes_no_condition_is_quoted_from_its_newest_event() -> None:
    world = TrainJobObjects(nodes=1)
    world.unscheduled("")
    world.event(world.pods[0], "FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu.", age=50)
    world.event(world.pods[0], "FailedScheduling", NO_GPU, age=5)
    (finding,) = world.verdict().findings
    assert finding.cause == "insufficient-resources"
    assert NO_GPU in " ".join(finding.evidence)


async def test_a_date_that_is_not_readable_corrects_nothing() -> None:
    class Inner:
        async def send(self, request: Any) -> Any:
            return SimpleNamespace(headers={"Date": "Wed, 01 Jan 99999999999999999999 00:00:30 GMT"})

    clock = ServerClock(Inner(), lambda: NOW)
    await clock.send(None)  # type: ignore[arg-type]  # it is only passed on
    assert clock.corrected(NOW) == NOW
