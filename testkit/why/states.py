# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""States of a TrainJob's world with one cause injected; the messages are those that Kubernetes' components write."""

from collections.abc import Callable
from typing import Any

from pkg.why import Reference
from testkit.why.world import TrainJobObjects, condition, when

NO_GPU = (
    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: "
    "2 No preemption victims found for incoming pod."
)


def refused(message: str) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the Job controller cannot create pods."""

    def state(world: TrainJobObjects) -> None:
        world.without_pods()
        world.event(world.job, "FailedCreate", message, count=5)

    return state


def uncreated(message: str) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the manager cannot create the TrainJob's children."""

    def state(world: TrainJobObjects) -> None:
        world.without_children()
        text = f"TrainJob resources reconciliation failed: {message}"
        world.event(world.train_job, "TrainJobResourcesCreationFailed", text, count=7)

    return state


def mount(message: str, reason: str = "FailedMount") -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.waits("ContainerCreating")
        world.event(world.pods[0], reason, message)

    return state


def unreachable_403(world: TrainJobObjects) -> None:
    """Let the registry of an image with the tag 403 not answer."""
    image = "registry.example/train:403"
    tried = (
        'failed to do request: Head "https://registry.example/v2/train/manifests/403": dial tcp: i/o timeout'
    )
    world.waits("ImagePullBackOff", f'Back-off pulling image "{image}"')["image"] = ""
    world.pods[0]["spec"]["containers"][0]["image"] = image
    world.event(
        world.pods[0],
        "Failed",
        f'Failed to pull image "{image}": failed to resolve reference "{image}": {tried}',
    )


def beside_a_refused_image(world: TrainJobObjects) -> None:
    """Let the images of a container and of its sidecar fail for different reasons."""
    world.waits("ErrImagePull", "dial tcp 10.0.0.9:443: i/o timeout")
    world.event(world.pods[0], "Failed", 'Failed to pull image "registry.example/proxy:1": 401 Unauthorized')


def claimed(phase: str, *events: tuple[str, str]) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.unscheduled("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
        claim = world.make("v1", "PersistentVolumeClaim", "data", spec={}, status={"phase": phase})
        for pod in world.pods:
            pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        for reason, message in events:
            world.event(claim, reason, message)

    return state


def missing(kind: str, name: str, **spec: Any) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.waits("ContainerCreating")
        world.pods[0]["spec"].update(spec)
        world.absent.add(Reference(kind, "team-a", name))

    return state


def failed(world: TrainJobObjects, reason: str, message: str) -> Any:
    """Make Job, JobSet and TrainJob fail."""
    world.job["status"]["conditions"] = [condition("Failed", reason=reason, message=message)]
    text = "jobset failed due to one or more job failures (first failed job: llama-node-0)"
    for each in (world.job_set, world.train_job):
        each["status"]["conditions"] = [condition("Failed", reason="FailedJobs", message=text)]


def fail_by(
    code: int, reason: str = "Error", log: str = "", then: str = "step 11"
) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.ended(code, reason)
        world.logs[world.pods[0]["metadata"]["name"], "node"] = ["step 10", log, then]
        failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")

    return state


def unstartable(message: str) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the container runtime does not start a container."""
    return lambda world: world.ended(128, "StartError", message=message)


def crash_loop(world: TrainJobObjects) -> None:
    last = {"exitCode": 1, "reason": "Error", "finishedAt": when(20)}
    message = "back-off 40s restarting failed container=node pod=llama-node-0-0-abcde_team-a(uid)"
    world.waits("CrashLoopBackOff", message, phase="Running", restarts=4, last=last)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [
        "ModuleNotFoundError: No module named 'torchvision'"
    ]


def node_unknown(world: TrainJobObjects) -> None:
    message = "Kubelet stopped posting node status."
    world.nodes[0]["status"]["conditions"] = [condition("Ready", "Unknown", "NodeStatusUnknown", message)]
    world.pods[0]["status"]["conditions"] = [condition("PodScheduled"), condition("Ready", "False")]


def pod_unknown(world: TrainJobObjects) -> None:
    world.pods[0]["status"].update(
        phase="Unknown", reason="NodeLost", message="Node worker-0 is unresponsive"
    )


def pod_failed(reason: str, message: str, **status: Any) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.pods[0]["status"] = {"phase": "Failed", "reason": reason, "message": message, **status}

    return state


def disrupted(reason: str) -> Callable[[TrainJobObjects], Any]:
    return pod_failed("", "", conditions=[condition("DisruptionTarget", reason=reason)])


def deleting(world: TrainJobObjects) -> None:
    world.train_job["metadata"].update(deletionTimestamp=when(600), finalizers=["example.com/backup"])


def managed(world: TrainJobObjects) -> Any:
    world.without_children()
    world.train_job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"


def unsupported(world: TrainJobObjects) -> None:
    world.without_children()
    message = "unsupported runtime: Nothing.trainer.kubeflow.org"
    world.train_job["status"]["conditions"] = [
        condition("Failed", reason="TrainingRuntimeNotSupported", message=message)
    ]


def no_such_number(world: TrainJobObjects) -> None:
    for each in [*world.pods, world.job]:
        world.objects.remove(each)
    world.pods.clear()
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = {"metadata": {}, "spec": {"containers": [{"name": "node", "image": "i"}]}}
    job = {
        "name": "node",
        "replicas": 1,
        "template": {"metadata": {"labels": labels}, "spec": {"template": pods}},
    }
    world.job_set["spec"]["replicatedJobs"] = [job]
    world.train_job["spec"]["trainer"] = {"numNodes": -1}
    spec = {"template": {"spec": {"replicatedJobs": [job]}}}
    world.make("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "torch-distributed", spec=spec)


def no_runtime(world: TrainJobObjects) -> None:
    world.without_children()
    world.absent.add(Reference("ClusterTrainingRuntime.trainer.kubeflow.org", "", "torch-distributed"))
    world.event(
        world.train_job,
        "TrainJobResourcesCreationFailed",
        "TrainJob resources reconciliation failed: not found",
    )


def runtime_of_other_kind(world: TrainJobObjects) -> None:
    """A TrainingRuntime has the name of the missing ClusterTrainingRuntime."""
    no_runtime(world)
    world.make("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "torch-distributed")


def no_job_set_kind(world: TrainJobObjects) -> None:
    world.without_children()
    world.unread["JobSet.jobset.x-k8s.io"] = "the kind is not installed"


def manager_scaled_down(world: TrainJobObjects) -> None:
    world.without_children()
    world.manager["spec"]["replicas"] = 0
    world.manager["status"] = {}


def manager_crashing(world: TrainJobObjects) -> None:
    world.without_children()
    world.manager["status"] = {"replicas": 1, "unavailableReplicas": 1}
    world.make(
        "v1", "Pod", "kubeflow-trainer-controller-manager-7d9-x", namespace="kubeflow-system", spec={},
        status={"phase": "Running", "containerStatuses": [{"name": "manager", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
    )  # fmt: skip


def no_leader(world: TrainJobObjects) -> None:
    world.without_children()
    world.lease["spec"]["renewTime"] = when(900)


def no_leader_since(seconds: float, holder: str = "a") -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.without_children()
        world.lease["spec"].update(renewTime=when(seconds), holderIdentity=holder)

    return state


def resumed_and_ignored(world: TrainJobObjects) -> None:
    job_set_suspended(world)
    world.job_set["metadata"]["managedFields"] = [
        {
            "manager": "trainer",
            "operation": "Apply",
            "time": when(300),
            "fieldsV1": {"f:spec": {"f:suspend": {}}},
        }
    ]


def no_scheduler_leads(world: TrainJobObjects) -> None:
    world.unscheduled()
    world.make("coordination.k8s.io/v1", "Lease", "kube-scheduler", namespace="kube-system",
               spec={"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": when(40)})  # fmt: skip


def only_a_claim(world: TrainJobObjects) -> Any:
    """Bind the pods to a node: the only cause that is left is their claim, which is not bound."""
    for pod in world.pods:
        pod["spec"]["nodeName"] = "worker-0"
        pod["status"] = {"phase": "Pending", "startTime": when(100)}


def nothing_visible(world: TrainJobObjects) -> None:
    for each in world.objects:
        each["metadata"]["creationTimestamp"] = when(3600)
    for number in range(2):
        world.waits("ContainerCreating", pod=number)


def jobs_not_made(world: TrainJobObjects) -> None:
    world.remove(world.job, *world.pods)


def nothing_made(world: TrainJobObjects) -> None:
    jobs_not_made(world)
    world.remove(world.service)


def jobs_refused(**quota: Any) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the controller of JobSet has created the service and cannot create the Jobs."""

    def state(world: TrainJobObjects) -> None:
        jobs_not_made(world)
        if quota:
            world.make("v1", "ResourceQuota", "few", spec={}, status=quota)

    return state


def device_claim(kind: str, **claim: str) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.unscheduled()
        for pod in world.pods:
            pod["spec"]["resourceClaims"] = [{"name": "gpu", **claim}]
        world.absent.add(Reference(f"{kind}.resource.k8s.io", "team-a", "gpus"))

    return state


def pinned_to_no_node(world: TrainJobObjects) -> None:
    world.without_pods()
    world.job["spec"]["template"]["spec"]["nodeName"] = "worker-77"
    world.job["status"]["failed"] = 4


def between_retries(world: TrainJobObjects) -> None:
    world.without_pods()
    world.job["status"]["failed"] = 4


def unread_beside_job_set(**counts: int) -> Callable[[TrainJobObjects], None]:
    """Return the state in which only the TrainJob and its JobSet can be read, as from the manager's cache."""

    def change(world: TrainJobObjects) -> None:
        world.remove(world.job, *world.pods)
        world.unread |= dict.fromkeys(("Pod", "Job.batch", "Event"), "not cached")
        world.job_set["status"] = {"replicatedJobsStatus": [{"name": "node", **counts}]} if counts else {}

    return change


def no_node_for(labels: dict[str, str], message: str) -> Callable[[TrainJobObjects], Any]:
    def state(world: TrainJobObjects) -> None:
        world.unscheduled(message)
        for pod in world.pods:
            pod["spec"]["nodeSelector"] = labels

    return state


def job_set_stays(world: TrainJobObjects) -> None:
    world.without_pods()
    world.remove(world.job)
    world.job_set["metadata"].update(deletionTimestamp=when(120), finalizers=["foregroundDeletion"])


def several_mounts(world: TrainJobObjects) -> None:
    mount('MountVolume.SetUp failed for volume "ssh" : secret "mpi-ssh" not found')(world)
    world.event(world.pods[0], "FailedMount", "Unable to attach or mount volumes: timed out waiting", age=1)


def tainted(world: TrainJobObjects) -> None:
    world.unscheduled(
        "0/2 nodes are available: 2 node(s) had untolerated taint(s). no new claims to deallocate"
    )
    for node in world.nodes:
        node["spec"] = {"taints": [{"key": "gpu-only", "value": "true", "effect": "NoSchedule"}]}


def selected_but(message: str, *, taint: str = "") -> Callable[[TrainJobObjects], Any]:
    """Return the state in which a node has the labels of the node selector, but is excluded for another reason."""

    def state(world: TrainJobObjects) -> None:
        world.unscheduled(f"0/3 nodes are available: {message}")
        world.nodes[0]["metadata"]["labels"] = {"pool": "gpu"}
        world.nodes[0]["spec"] = (
            {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {"unschedulable": True}
        )
        for pod in world.pods:
            pod["spec"]["nodeSelector"] = {"pool": "gpu"}

    return state


def unbound_claim(world: TrainJobObjects) -> None:
    claimed("Pending")(world)
    for pod in world.pods:
        pod["spec"]["volumes"].append({"name": "none", "emptyDir": {}})


def crowd(world: TrainJobObjects) -> None:
    """Let two pods need four GPUs each, while only one node has four."""
    for node, gpus in zip(world.nodes, ("4", "0"), strict=True):
        node["status"]["allocatable"]["nvidia.com/gpu"] = gpus
    world.unscheduled(NO_GPU)


def growing_crowd(world: TrainJobObjects) -> None:
    """As ``crowd``, while the Job has yet to create two of its pods."""
    crowd(world)
    world.job["spec"] |= {"parallelism": 4, "completions": 4}


def elastic_crowd(world: TrainJobObjects) -> None:
    crowd(world)
    for pod in world.pods:
        pod["spec"]["containers"][0]["env"] = [{"name": "PET_NNODES", "value": "1:2"}]


def thousand_cpus(world: TrainJobObjects) -> None:
    world.unscheduled("0/2 nodes are available: 2 Insufficient cpu. preemption: none")
    for pod in world.pods:
        container = {"name": "node", "resources": {"requests": {"cpu": "500"}}}
        pod["spec"]["containers"] = [container, container]


def huge(world: TrainJobObjects) -> None:
    world.unscheduled(NO_GPU)
    for pod in world.pods:
        pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "16"


def huge_with_a_sidecar(world: TrainJobObjects) -> None:
    """Let container and sidecar request more GPUs together than any node has."""
    world.unscheduled(NO_GPU)
    for pod in world.pods:
        requests = {"requests": {"nvidia.com/gpu": "8"}}
        pod["spec"]["containers"][0]["resources"] = requests
        pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always", "resources": requests}]


def huge_and_short_of_cpu(world: TrainJobObjects) -> None:
    huge(world)
    world.unscheduled(
        "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient nvidia.com/gpu. preemption: none"
    )


def parted(world: TrainJobObjects) -> None:
    """Give one node the GPUs, and the other one the memory."""
    world.unscheduled(
        "0/2 nodes are available: 1 Insufficient memory, 1 Insufficient nvidia.com/gpu. preemption: none"
    )
    world.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    world.nodes[1]["status"]["allocatable"]["memory"] = "8Gi"


def no_gpus_at_all(world: TrainJobObjects) -> None:
    world.unscheduled(NO_GPU)
    for node in world.nodes:
        del node["status"]["allocatable"]["nvidia.com/gpu"]


def unknown_devices(world: TrainJobObjects) -> None:
    names = ("example.com/vgpu", "example.com/vgpu-memory")
    short = ", ".join(f"2 Insufficient {name}" for name in names)
    world.unscheduled(f"0/2 nodes are available: {short}. preemption: none")
    for pod in world.pods:
        resources = pod["spec"]["containers"][0].setdefault("resources", {})
        resources["limits"] = {names[0]: "1", names[1]: "8192"}
        resources["requests"] = dict(resources["limits"])


def gated(world: TrainJobObjects) -> None:
    world.unscheduled("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")
    for pod in world.pods:
        pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]


def coscheduling(world: TrainJobObjects) -> None:
    world.unscheduled(
        "0/2 nodes are available: pre-filter pod llama-node-0-0-abcde cannot find enough sibling pods, "
        "current pods number: 2, minMember of group: 4."
    )
    world.group("scheduling.x-k8s.io/v1alpha1", status={"phase": "PreScheduling"}, minMember=4)


def volcano(world: TrainJobObjects) -> None:
    message = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"
    world.unscheduled()
    world.group(
        "scheduling.volcano.sh/v1beta1", queue="team",
        status={"phase": "Inqueue", "conditions": [condition("Unschedulable", reason="NotEnoughResources", message=message)]},
    )  # fmt: skip


def kai(world: TrainJobObjects) -> None:
    message = "Node-Group default: no nodes with enough resources were found: 2 node(s) didn't have enough resource: GPUs."
    world.unscheduled()
    world.group(
        "scheduling.run.ai/v2alpha2", queue="team",
        status={"schedulingConditions": [{"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable",
                                          "message": message, "nodePool": "default", "transitionID": "0"}]},
    )  # fmt: skip


def ungrouped(message: str = "", *, served: bool = True, group: str = "") -> Callable[[TrainJobObjects], Any]:
    """Return the state in which KAI-Scheduler's pod grouper has given the pods no group, or the group ``group``."""

    def state(world: TrainJobObjects) -> None:
        world.unscheduled()
        if not served:
            world.unread["PodGroup.scheduling.run.ai"] = "the kind is not installed"
        for pod in world.pods:
            pod["spec"]["schedulerName"] = "kai-scheduler"
            if group:
                pod["metadata"]["annotations"]["pod-group-name"] = group
            if message:
                world.event(pod, "PodGrouperWarning", message)

    return state


def sidecar(*, age: float = 3000, init: bool = False, code: int = 0) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which the training has ended, while a container that was injected still runs."""

    def state(world: TrainJobObjects) -> None:
        for pod in world.pods:
            ended = {"exitCode": code, "reason": "Completed", "finishedAt": when(age)}
            proxy = {"name": "istio-proxy", "state": {"running": {"startedAt": when(9000)}}}
            pod["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": ended}}]
            pod["status"].setdefault("initContainerStatuses" if init else "containerStatuses", []).append(
                proxy
            )

    return state


def preempted_and_deleted(
    world: TrainJobObjects,
    *,
    age: float = 30,
    reason: str = "Preempted",
    message: str = "Preempted by pod 7f3a on node worker-0",
) -> None:
    """Make the Job fail because its pods were preempted: they are deleted, and their events are left."""
    for pod in world.pods:
        world.event(pod, reason, message, age=age)
    world.without_pods()
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def without_group(world: TrainJobObjects) -> None:
    """Let new pods wait for a PodGroup that was deleted after its running TrainJob was edited."""
    world.unscheduled()
    for pod in world.pods:
        pod["spec"]["schedulerName"] = "volcano"
    world.event(
        world.train_job,
        "ChildNotRecreated",
        "PodGroup team-a/llama is missing. The TrainJob or its runtime has changed since JobSet team-a/llama started, "
        "so a new one would not fit it: suspend the TrainJob and resume it",
    )


def group_unread(
    group: Callable[[TrainJobObjects], Any], kind: str, scheduler: str, **spec: Any
) -> Callable[[TrainJobObjects], Any]:
    """Return the state in which a scheduler reports on a PodGroup that may not be read."""

    def state(world: TrainJobObjects) -> None:
        group(world)
        world.remove(*(each for each in world.objects if each["kind"] == "PodGroup"))
        world.unread[kind] = "podgroups is forbidden"
        for pod in world.pods:
            pod["spec"].update(schedulerName=scheduler, **spec)

    return state


def native_gang(world: TrainJobObjects) -> None:
    message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
    world.unscheduled()
    world.group(
        "scheduling.k8s.io/v1beta1",
        schedulingPolicy={"gang": {"minCount": 2}},
        status={"conditions": [condition("PodGroupInitiallyScheduled", "False", reason="Unschedulable", message=message)]},
    )  # fmt: skip


def gang_of_1_35(world: TrainJobObjects) -> None:
    """As ``huge_gang``, with the gang API of Kubernetes 1.35, in which a gang has no status."""
    huge_gang(world)
    world.remove(world.objects[-1])
    pod_group = {"name": "gang", "policy": {"gang": {"minCount": 4}}}
    world.group("scheduling.k8s.io/v1alpha1", kind="Workload", podGroups=[pod_group], status={})


def huge_gang(world: TrainJobObjects) -> None:
    """Let all pods of a gang exist; each needs a node of its own, and there are half as many nodes."""
    message = "minCount (4) cannot be satisfied: 2 scheduled, 1 remaining"
    world.job["spec"] |= {"parallelism": 4, "completions": 4}
    world.pods += [world.add_pod(number) for number in (2, 3)]
    for pod in world.pods:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    world.unscheduled(message)
    world.group(
        "scheduling.k8s.io/v1beta1",
        schedulingPolicy={"gang": {"minCount": 4}},
        status={"conditions": [condition("PodGroupInitiallyScheduled", "False", reason="Unschedulable", message=message)]},
    )  # fmt: skip


def incomplete_gang(world: TrainJobObjects) -> None:
    """Remove one pod of the gang: kube-scheduler does not consider the other pods until that pod exists."""
    world.remove(world.pods.pop())
    world.unscheduled()
    world.group("scheduling.k8s.io/v1beta1", schedulingPolicy={"gang": {"minCount": 2}}, status={})


def no_gang_api(world: TrainJobObjects) -> None:
    message = "the API server serves no gangs of scheduling.k8s.io"
    world.without_children()
    world.train_job["status"]["conditions"] = [
        condition("GangSchedulingUnavailable", reason="GangAPINotServed", message=message)
    ]


def kai_queue_missing(world: TrainJobObjects) -> None:
    world.unscheduled()
    world.group("scheduling.run.ai/v2alpha2", status={}, queue="nowhere")
    world.absent.add(Reference("Queue.scheduling.run.ai", "", "nowhere"))


def no_service(world: TrainJobObjects) -> None:
    world.remove(world.service)


def job_set_suspended(world: TrainJobObjects) -> None:
    world.job_set["spec"]["suspend"] = world.job["spec"]["suspend"] = True
    world.job_set["metadata"]["managedFields"] = [
        {
            "manager": "other",
            "operation": "Update",
            "time": when(100),
            "fieldsV1": {"f:spec": {"f:suspend": {}}},
        }
    ]
    world.without_pods()


def unready(world: TrainJobObjects) -> None:
    pod = world.pods[0]
    pod["status"]["conditions"] = [
        condition("PodScheduled"),
        condition("Ready", "False", "ContainersNotReady", age=900),
    ]
    world.event(
        pod, "Unhealthy", 'Readiness probe failed: Get "http://10.0.0.1:8080/ready": connection refused'
    )


def pending_quota(message: str) -> Callable[[TrainJobObjects], Any]:
    return lambda world: world.workload(condition("QuotaReserved", "False", "Pending", message))


def kueue_evicted(world: TrainJobObjects) -> None:
    world.workload(
        condition("QuotaReserved", "False", "Pending", "Preempted to accommodate a workload"),
        condition("Evicted", "True", "Preempted", "Preempted to accommodate a workload due to reclamation"),
        condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
    )


def kueue_check(
    state: str = "Pending", message: str = "Waiting for a node group"
) -> Callable[[TrainJobObjects], Any]:
    return lambda world: world.workload(
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue team"),
        admissionChecks=[{"name": "provision", "state": state, "message": message}],
    )


def bound_and_ignored(world: TrainJobObjects) -> None:
    world.pods[0]["status"] = {"phase": "Pending", "conditions": [condition("PodScheduled", age=100)]}
