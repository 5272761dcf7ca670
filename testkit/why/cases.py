# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The states that a TrainJob may be in, and the cause that ``why`` names in each.

The objects and messages are those that components of Kubernetes write.
"""

from collections.abc import Callable
from typing import Any

import pytest

from testkit.why.states import (
    NO_GPU,
    beside_a_refused_image,
    between_retries,
    bound_and_ignored,
    claimed,
    coscheduling,
    crash_loop,
    crowd,
    deleting,
    device_claim,
    disrupted,
    elastic_crowd,
    fail_by,
    failed,
    gang_of_1_35,
    gated,
    group_unread,
    growing_crowd,
    huge,
    huge_and_short_of_cpu,
    huge_gang,
    huge_with_a_sidecar,
    incomplete_gang,
    job_set_stays,
    job_set_suspended,
    jobs_refused,
    kai,
    kai_queue_missing,
    kueue_check,
    kueue_evicted,
    managed,
    manager_crashing,
    manager_scaled_down,
    missing,
    mount,
    native_gang,
    no_gang_api,
    no_gpus_at_all,
    no_job_set_kind,
    no_leader,
    no_leader_since,
    no_node_for,
    no_runtime,
    no_scheduler_leads,
    no_service,
    no_such_number,
    node_unknown,
    nothing_made,
    nothing_visible,
    only_a_claim,
    parted,
    pending_quota,
    pinned_to_no_node,
    pod_failed,
    pod_unknown,
    preempted_and_deleted,
    refused,
    resumed_and_ignored,
    runtime_of_other_kind,
    selected_but,
    several_mounts,
    sidecar,
    tainted,
    thousand_cpus,
    unbound_claim,
    uncreated,
    ungrouped,
    unknown_devices,
    unreachable_403,
    unread_beside_job_set,
    unready,
    unstartable,
    unsupported,
    volcano,
    without_group,
)
from testkit.why.world import TrainJobObjects, condition, when

State = Callable[[TrainJobObjects], Any]
FLAVORS = "couldn't assign flavors to pod set node:"
TOO_SMALL = (
    "insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets requests (0) + "
    "current podset request (64) > maximum capacity (32)"
)
QUOTA = (
    'Error creating: pods "llama-node-0-0-abcde" is forbidden: exceeded quota: compute, requested: '
    "requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=6, limited: requests.nvidia.com/gpu=8"
)
C10D = (
    "[W1126 12:00:00.000000000 socket.cpp:697] [c10d] The IPv6 network addresses of (llama-node-0-0.llama, 29500) cannot "
    "be retrieved (gai error: -2 - Name or service not known)."
)
FORBIDDEN = 'Error creating: pods "llama-node-0-0-abcde" is forbidden: '
CREATE = "failed to create containerd task: OCI runtime create failed: runc create failed: "
UNSTARTABLE = {
    "driver": (
        (
            f"{CREATE}error running prestart hook #0: exit status 1, stderr: Auto-detected mode as 'legacy' "
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object "
            "file: no such file or directory: unknown"
        ),
        "libnvidia-ml.so.1",
    ),
    "toolkit": (f'{CREATE}exec: "nvidia-container-runtime": executable file not found in $PATH', "runtime"),
    "mount": (
        f'{CREATE}error mounting "/var/lib/kubelet/pods/7f/volume-subpaths/data" to rootfs at "/data": permission denied',
        "/data",
    ),
    "directory": (
        f'{CREATE}chdir to cwd ("/workspace") set in config.json failed: no such file or directory',
        "/workspace",
    ),
}

CASES: list[Any] = [
    pytest.param(cause, code, words, state, id=name)
    for name, cause, code, words, state in (
        ("suspended by a person", "suspended", 3, "suspended by kubectl-patch", lambda w: w.suspend()),
        ("managed by MultiKueue", "managed-by", 3, "kueue.x-k8s.io/multikueue", managed),
        ("a finalizer holds it", "deletion-blocked", 3, "example.com/backup", deleting),
        ("unsupported runtime", "runtime-unsupported", 1, "Nothing.trainer", unsupported),
        ("a negative number of nodes", "number-invalid", 1, "spec.trainer.numNodes: -1", no_such_number),
        ("runtime deleted", "runtime-missing", 1, "torch-distributed", no_runtime),
        ("runtime of the other kind", "runtime-missing", 1, "the ClusterTrainingRuntime torch-distributed does not exist", runtime_of_other_kind),
        ("JobSet not installed", "jobset-missing", 1, "not installed", no_job_set_kind),
        ("manager scaled to 0", "manager-down", 1, "scaled to 0", manager_scaled_down),
        ("manager crash loop", "manager-down", 1, "CrashLoopBackOff", manager_crashing),
        ("no replica leads", "manager-down", 1, "no replica leads", no_leader),
        ("no replica leads since seconds", "manager-down", 1, "last renewed 25s ago", no_leader_since(25)),
        ("the lease was released", "manager-down", 1, "released 8s ago", no_leader_since(8, holder="")),
        ("resumed, and the manager does nothing", "manager-silent", 1, "does not react", resumed_and_ignored),
        ("no scheduler leads", "scheduler-missing", 1, "default-scheduler", no_scheduler_leads),
        ("manager does nothing", "manager-silent", 1, "does not react", lambda w: w.without_children()),
        ("JobSet's controller does nothing", "jobset-controller", 1, "JobSet", nothing_made),
        ("JobSet's controller cannot create Jobs", "creation-failed", 1, "but no Jobs", jobs_refused()),
        ("quota of Jobs", "quota-exceeded", 1, "count/jobs.batch 2 of 2",
         jobs_refused(hard={"count/jobs.batch": "2"}, used={"count/jobs.batch": "2"})),
        ("quota of Jobs with room", "creation-failed", 1, "but no Jobs",
         jobs_refused(hard={"count/jobs.batch": "2"}, used={"count/jobs.batch": "1"})),
        ("ResourceClaimTemplate", "device-claim-missing", 1, "ResourceClaimTemplate gpus",
         device_claim("ResourceClaimTemplate", resourceClaimTemplateName="gpus")),
        ("ResourceClaim", "device-claim-missing", 1, "ResourceClaim gpus",
         device_claim("ResourceClaim", resourceClaimName="gpus")),
        ("nodeName of no node", "node-lost", 1, "worker-77", pinned_to_no_node),
        ("a Job waits between retries", "pods-failing", 1, "4 pods of the Job llama-node-0", between_retries),
        ("Job controller does nothing", "job-controller", 1, "Jobs", lambda w: (w.without_pods(), w.job["status"].clear())),
        ("pods unread and not ready", "not-ready", 3, "step node", unread_beside_job_set(active=1)),
        ("pods unread and missing", "pods-missing", 3, "step node", unread_beside_job_set(active=0)),
        ("pods unread and Jobs suspended", "child-suspended", 3, "step node", unread_beside_job_set(suspended=1)),
        ("JobSet's controller writes no status", "jobset-controller", 1, "JobSet", unread_beside_job_set()),
        ("quota", "quota-exceeded", 1, "compute", refused(QUOTA)),
        ("quota below the request of one pod", "quota-exceeded", 1, "one pod requests more than the ResourceQuota compute permits: requests.nvidia.com/gpu 16 of 8",
         refused(QUOTA.replace("gpu=4", "gpu=16"))),
        ("quota wants limits", "quota-exceeded", 1, "limits.memory",
         refused(FORBIDDEN + "failed quota: compute: must specify limits.memory for: node")),
        ("limit range", "limit-range", 1, "maximum memory usage",
         refused(FORBIDDEN + "maximum memory usage per Container is 8Gi, but limit is 16Gi")),
        ("limit range without a limit", "limit-range", 1, "No limit is specified",
         refused(FORBIDDEN + "[maximum cpu usage per Container is 2.  No limit is specified, maximum memory usage per "
                 "Container is 8Gi, but limit is 16Gi]")),
        ("pod security", "pod-security", 1, "restricted:latest",
         refused(FORBIDDEN + 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false')),
        ("service account", "service-account-missing", 1, "trainer",
         refused(FORBIDDEN + 'error looking up service account team-a/trainer: serviceaccount "trainer" not found')),
        ("priority class", "priority-class-missing", 1, "urgent",
         refused(FORBIDDEN + "no PriorityClass with name urgent was found")),
        ("RuntimeClass", "runtime-class-missing", 1, "nvidia",
         refused(FORBIDDEN + 'pod rejected: RuntimeClass "nvidia" not found')),
        ("security context constraints", "pod-security", 1, "not usable by user",
         refused(FORBIDDEN + 'unable to validate against any security context constraint: [provider "anyuid": '
                 "Forbidden: not usable by user or serviceaccount]")),
        ("webhook of another product denies pods", "webhook-denied", 1, "policy.example.com",
         refused('Error creating: admission webhook "policy.example.com" denied the request: images must be signed')),
        ("admission policy", "webhook-denied", 1, "images",
         refused(FORBIDDEN + "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: no tag")),
        ("webhook has no endpoints", "webhook-unreachable", 1, "no endpoints",
         uncreated('Internal error occurred: failed calling webhook "mjobset.kb.io": failed to call webhook: Post '
                   '"https://jobset-webhook-service.jobset-system.svc:443/mutate?timeout=10s": no endpoints available '
                   'for service "jobset-webhook-service"')),
        ("the manager's role is too small", "forbidden", 1, "system:serviceaccount:kubeflow-system:trainer may not patch jobsets",
         uncreated('jobsets.jobset.x-k8s.io "llama" is forbidden: User "system:serviceaccount:kubeflow-system:trainer" '
                   'cannot patch resource "jobsets" in API group "jobset.x-k8s.io" in the namespace "team-a"')),
        ("a stranger's JobSet", "name-conflict", 1, "jobset team-a/llama",
         uncreated("jobset team-a/llama: exists and has no controller")),
        ("invalid JobSet", "object-invalid", 1, "spec.replicatedJobs",
         uncreated('JobSet.jobset.x-k8s.io "llama" is invalid: spec.replicatedJobs[0].template.spec.completions: Invalid value: 0')),
        ("namespace is terminating", "namespace-terminating", 1, "team-a",
         uncreated('jobsets.jobset.x-k8s.io "llama" is forbidden: unable to create new content in namespace team-a '
                   "because it is being terminated")),
        ("namespace is being deleted", "namespace-terminating", 1, "team-a",
         lambda w: w.make("v1", "Namespace", "team-a", namespace="", status={"phase": "Terminating"})),
        ("runtime that the manager does not find", "runtime-missing", 1, "the runtime torch-distributed does not exist",
         uncreated('clustertrainingruntimes.trainer.kubeflow.org "torch-distributed" not found')),
        ("unknown error", "creation-failed", 1, "etcdserver: request timed out", uncreated("etcdserver: request timed out")),
        ("image does not exist", "image-not-found", 1, "registry.example/train:1", lambda w: w.waits(
            "ImagePullBackOff", 'Back-off pulling image "registry.example/train:1": ErrImagePull: rpc error: code = NotFound '
            'desc = failed to pull and unpack image: failed to resolve reference: registry.example/train:1: not found')),
        ("image needs credentials", "image-unauthorized", 1, "refuses access", lambda w: w.waits(
            "ErrImagePull", "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized")),
        ("image needs credentials, by status", "image-unauthorized", 1, "refuses access", lambda w: w.waits(
            "ErrImagePull", "unexpected status from HEAD request: 401 Unauthorized")),
        ("registry limits pulls", "image-rate-limited", 1, "rate", lambda w: w.waits(
            "ErrImagePull", "toomanyrequests: You have reached your pull rate limit")),
        ("no disk space for an image", "image-pull", 1, "no space left", lambda w: w.waits(
            "ErrImagePull", "failed to extract layer sha256:1: write /var/lib/containerd/x: no space left on device")),
        ("a tag that looks like a status", "image-pull", 1, "train:403 cannot be pulled", unreachable_403),
        ("another container's image is refused", "image-pull", 1, "cannot be pulled", beside_a_refused_image),
        ("registry is not reached", "image-pull", 1, "cannot be pulled", lambda w: w.waits(
            "ErrImagePull", "dial tcp 10.0.0.9:443: i/o timeout")),
        ("image name", "image-name-invalid", 1, "not valid", lambda w: w.waits(
            "InvalidImageName", 'Failed to apply default image tag "Bad:::": couldn\'t parse image name')),
        ("image never pulled", "image-not-found", 1, "Never", lambda w: w.waits("ErrImageNeverPull", "Container image is not present")),
        ("Secret of a variable", "secret-missing", 1, "hf-token", lambda w: w.waits(
            "CreateContainerConfigError", 'secret "hf-token" not found')),
        ("ConfigMap of a variable", "config-map-missing", 1, "settings", lambda w: w.waits(
            "CreateContainerConfigError", 'configmap "settings" not found')),
        ("key of a Secret", "key-missing", 1, "HF_TOKEN", lambda w: w.waits(
            "CreateContainerConfigError", "couldn't find key HF_TOKEN in Secret team-a/hf-token")),
        ("root is not allowed", "container-create", 1, "runAsNonRoot", lambda w: w.waits(
            "CreateContainerConfigError", "container has runAsNonRoot and image will run as root")),
        ("launcher over SSH in a local cluster", "container-create", 1, "mpirun", lambda w: w.waits(
            "ProcessesUnsupported", "container node runs mpirun: launchers over SSH are not supported")),
        ("Secret seen by its absence", "secret-missing", 1, "hf-token", missing(
            "Secret", "hf-token", volumes=[{"name": "t", "secret": {"secretName": "hf-token"}}])),
        ("claim seen by its absence", "claim-missing", 1, "data", missing(
            "PersistentVolumeClaim", "data", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])),
        ("Secret of a volume", "secret-missing", 1, "mpi-ssh", mount(
            'MountVolume.SetUp failed for volume "ssh" : secret "mpi-ssh" not found')),
        ("Secret of a volume, then a time limit", "secret-missing", 1, "mpi-ssh", several_mounts),
        ("JobSet does not go", "deletion-blocked", 3, "JobSet llama", job_set_stays),
        ("PodGroup not installed", "kind-missing", 1, "PodGroup",
         uncreated('PodGroup.scheduling.x-k8s.io: no matches for kind "PodGroup" in version "scheduling.x-k8s.io/v1alpha1"')),
        ("kind of another project not installed", "kind-missing", 1, "Queue", uncreated(
            'Queue.scheduling.volcano.sh: no matches for kind "Queue" in version "scheduling.volcano.sh/v1beta1"')),
        ("deadline of a pod", "deadline-exceeded", 1, "deadline", pod_failed(
            "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")),
        ("pod failed for a new reason", "failed", 1, "Preempting", pod_failed("Preempting", "Preempted in order to admit critical pod")),
        ("volume elsewhere", "volume-in-use", 1, "another node", mount(
            'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other', "FailedAttachVolume")),
        ("NFS", "volume-mount", 1, "nfs", mount('MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32')),
        ("claim missing for the scheduler", "claim-missing", 1, "data", lambda w: w.unscheduled(
            '0/2 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/2 nodes are available')),
        ("storage class", "storage-class-missing", 1, "fast", claimed(
            "Pending", ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'))),
        ("the provisioner refuses", "claim-pending", 1, "InvalidParameterValue", claimed(
            "Pending", ("ProvisioningFailed", "failed to provision volume: InvalidParameterValue: gp9 is not a volume type"))),
        ("lost volume", "claim-lost", 1, "data", claimed("Lost")),
        ("command", "command-not-found", 1, "torchrunn", lambda w: w.ended(128, "StartError", message=(
            'failed to create containerd task: OCI runtime create failed: exec: "torchrunn": executable file not found in $PATH'))),
        ("command without permission", "command-not-found", 1, "/app/run.sh", unstartable(
            'unable to start container process: exec: "/app/run.sh": permission denied')),
        ("command that a node injects", "command-not-found", 1, "nvidia-smi", unstartable(
            'exec: "nvidia-smi": executable file not found in $PATH')),
        ("command in CRI-O", "command-not-found", 1, "torchrunn", unstartable(
            'level=error msg="runc create failed: exec: \\"torchrunn\\": executable file not found in $PATH"')),
        ("command in crun", "command-not-found", 1, "torchrunn", unstartable(
            "crun: executable file `torchrunn` not found in $PATH: No such file or directory")),
        ("command of another architecture", "command-not-found", 1, "exec format error", unstartable(
            "exec /usr/bin/train: exec format error")),
        *((f"{name} on creation", "container-create", 1, words, unstartable(message))
          for name, (message, words) in UNSTARTABLE.items()),
        ("killed", "container-failed", 1, "exit code 137, SIGKILL", fail_by(137, "Error")),
        ("out of memory", "out-of-memory", 1, "16Gi", fail_by(137, "OOMKilled")),
        ("exit code", "container-failed", 1, "exit code 2", fail_by(2, log="ValueError: bad learning rate")),
        ("DNS", "dns-failure", 1, "host name", fail_by(1, log="socket.gaierror: [Errno -2] Name or service not known")),
        ("DNS for PyTorch", "dns-failure", 1, "host name", fail_by(1, log=C10D, then="torch.distributed.DistNetworkError: "
            "The client socket has timed out after 60000ms while trying to connect to (llama-node-0-0.llama, 29500).")),
        ("a name that PyTorch resolved at the second try", "container-failed", 1, "exit code 1",
         fail_by(1, log=C10D, then="ValueError: bad learning rate")),
        ("crash loop", "crash-loop", 1, "exit code 1", crash_loop),
        ("init container", "container-failed", 1, "init container", lambda w: w.container(
            init=True, terminated={"exitCode": 3, "reason": "Error"})),
        ("deadline", "deadline-exceeded", 1, "deadline", lambda w: (
            w.without_pods(), failed(w, "DeadlineExceeded", "Job was active longer than specified deadline"))),
        ("deadline of a Job", "deadline-exceeded", 1, "the deadline of 600 s of the Job", lambda w: (
            w.without_pods(), w.job["spec"].update(activeDeadlineSeconds=600), failed(w, "DeadlineExceeded", "Job was active"))),
        ("backoff limit without pods", "retries-exhausted", 1, "BackoffLimitExceeded", lambda w: (
            w.without_pods(), failed(w, "BackoffLimitExceeded", "Job has reached the specified backoff limit"))),
        ("node lost", "node-lost", 1, "worker-0", node_unknown),
        ("a pod of unknown state", "node-lost", 1, "the node worker-0 does not report on", pod_unknown),
        ("node deleted", "node-lost", 1, "worker-0", lambda w: w.remove(w.nodes[0])),
        ("evicted", "evicted", 1, "low on resource", pod_failed(
            "Evicted", "The node was low on resource: ephemeral-storage.")),
        ("preempted, and the pods are deleted", "preempted", 1, "higher priority", preempted_and_deleted),
        ("preempted before the Job was made again", "retries-exhausted", 1, "BackoffLimitExceeded",
         lambda w: preempted_and_deleted(w, age=400)),
        ("preempted", "preempted", 1, "preempted", pod_failed("", "", conditions=[
            condition("DisruptionTarget", reason="PreemptionByScheduler", message="default-scheduler: preempting")])),
        ("device plugin", "node-rejected", 1, "UnexpectedAdmissionError", pod_failed(
            "UnexpectedAdmissionError", "Pod Allocate failed due to no healthy devices present; cannot allocate unhealthy devices")),
        ("GPUs that another pod has", "node-rejected", 1, "OutOfnvidia.com/gpu", pod_failed(
            "OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu, requested: 4, used: 8, capacity: 8")),
        ("disk that other pods use", "node-rejected", 1, "OutOfephemeral-storage", pod_failed(
            "OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage, requested: 4, used: 8, capacity: 8")),
        ("volumes beyond the node's limit", "node-rejected", 1, "VolumeAttachmentLimitExceeded", pod_failed(
            "VolumeAttachmentLimitExceeded", "Node has insufficient volume attachment capacity")),
        ("network plugin", "sandbox-failed", 1, "sandbox", mount(
            "Failed to create pod sandbox: rpc error: plugin type=\"calico\" failed (add)", "FailedCreatePodSandBox")),
        ("kubelet does nothing", "kubelet-silent", 1, "worker-0", bound_and_ignored),
        ("no GPUs free", "insufficient-resources", 3, "4 nvidia.com/gpu free", lambda w: w.unscheduled(NO_GPU)),
        ("no GPUs free, in KAI's words", "insufficient-resources", 3, "4 nvidia.com/gpu free", lambda w: w.unscheduled(
            "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs.")),
        ("more GPUs than any node has", "never-fits", 1, "16 nvidia.com/gpu, and no node has more than 8", huge),
        ("more GPUs than any node has, with a sidecar", "never-fits", 1, "16 nvidia.com/gpu, and no node has more than 8", huge_with_a_sidecar),
        ("more GPUs than any node has, and short of CPU", "never-fits", 1, "no node has more than 8", huge_and_short_of_cpu),
        ("a job larger than the cluster", "job-too-large", 1, "its 2 pods, each with 16Gi memory, 4 nvidia.com/gpu, do not fit", crowd),
        ("a job larger than the cluster, of which two pods are still to be created", "job-too-large", 1, "its 4 pods, each with", growing_crowd),
        ("an elastic job starts with fewer pods", "insufficient-resources", 3, "4 nvidia.com/gpu free", elastic_crowd),
        ("a thousand CPUs in two containers", "never-fits", 1, "1000 cpu, and no node has more than 64", thousand_cpus),
        ("GPUs and memory are on different nodes", "never-fits", 1, "4 nvidia.com/gpu, and no node has all", parted),
        ("most nodes lack GPUs", "insufficient-resources", 3, "4 nvidia.com/gpu free", lambda w: w.unscheduled(
            "0/9 nodes are available: 1 Insufficient memory, 8 Insufficient nvidia.com/gpu. preemption: none")),
        ("no GPU node", "never-fits", 1, "no node has nvidia.com/gpu", no_gpus_at_all),
        ("devices that no node has", "never-fits", 1, "no node has example.com/vgpu or example.com/vgpu-memory", unknown_devices),
        ("node selector", "node-selector", 1, "zone=moon", no_node_for({"zone": "moon"}, (
            "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "2 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available"))),
        ("the selected node has a taint", "taints", 1, "gpu-only", selected_but(
            "2 node(s) had untolerated taint(s), 1 node(s) didn't match Pod's node affinity/selector.", taint="gpu-only")),
        ("the selected node is cordoned", "nodes-cordoned", 1, "cordoned", selected_but(
            "1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector.")),
        ("volume of another zone, newer scheduler", "volume-node", 1, "volumes", lambda w: w.unscheduled(
            "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity. preemption: none")),
        ("a claim for the scheduler", "claim-pending", 1, "the claim data", unbound_claim),
        ("taints", "taints", 1, "nvidia.com/gpu: present", lambda w: w.unscheduled(
            "0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: present}. preemption: none")),
        ("taints beside that of the control plane", "taints", 1, "taints {nvidia.com/gpu: present} of", lambda w: w.unscheduled(
            "0/5 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "4 node(s) had untolerated taint {nvidia.com/gpu: present}. preemption: 0/5 nodes are available")),
        ("several taints", "taints", 1, "{nvidia.com/gpu: present}, {team: b} of", lambda w: w.unscheduled(
            "0/2 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, "
            "1 node(s) had untolerated taint {team: b}. preemption: none")),
        ("the control plane alone", "taints", 1, "control-plane", lambda w: w.unscheduled(
            "0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }. preemption: none")),
        ("cordoned beside the control plane", "nodes-cordoned", 1, "cordoned", lambda w: w.unscheduled(
            "0/5 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "4 node(s) were unschedulable. preemption: none")),
        ("nodes that are not ready", "taints", 1, "not ready to run pods", lambda w: w.unscheduled(
            "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, "
            "1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }. preemption: none")),
        ("taints that the message does not name", "taints", 1, "{gpu-only=true:NoSchedule}", tainted),
        ("selector leaves a full node", "insufficient-resources", 3, "nvidia.com/gpu", lambda w: w.unscheduled(
            "0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 4 node(s) didn't match Pod's node affinity/selector.")),
        ("cordoned", "nodes-cordoned", 1, "cordoned", lambda w: w.unscheduled("0/2 nodes are available: 2 node(s) were unschedulable.")),
        ("anti-affinity", "affinity", 3, "anti-affinity", lambda w: w.unscheduled(
            "0/2 nodes are available: 1 node(s) didn't match pod affinity rules, "
            "1 node(s) didn't match pod anti-affinity rules.")),
        ("affinity", "affinity", 1, "affinity", lambda w: w.unscheduled(
            "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.")),
        ("volume zone", "volume-node", 1, "volumes", lambda w: w.unscheduled(
            "0/2 nodes are available: 2 node(s) had volume node affinity conflict.")),
        ("no nodes", "no-nodes", 3, "no nodes", lambda w: w.unscheduled("no nodes available to schedule pods")),
        ("the pod grouper fails", "pod-grouper", 1, "queue label is missing", ungrouped("queue label is missing")),
        ("the pod grouper does nothing", "pod-grouper", 1, "given the pods no group", ungrouped()),
        ("KAI-Scheduler is not installed", "scheduler-missing", 1, "kai-scheduler", ungrouped(served=False)),
        ("grouped, and KAI-Scheduler does nothing", "scheduler-missing", 1, "kai-scheduler", ungrouped("x", group="pg")),
        ("the PodGroup was deleted", "gang-unavailable", 1, "PodGroup was deleted", without_group),
        ("Volcano's PodGroups may not be read", "unschedulable", 3, "volcano has not placed the pods, and its reason",
         group_unread(volcano, "PodGroup.scheduling.volcano.sh", "volcano")),
        ("the PodGroups of Kubernetes may not be read", "unschedulable", 3, "its reason cannot be read",
         group_unread(native_gang, "PodGroup.scheduling.k8s.io", "default-scheduler", schedulingGroup={"podGroupName": "llama"})),
        ("events of another scheduler may not be read", "unschedulable", 3, "its reason cannot be read",
         group_unread(TrainJobObjects.unscheduled, "Event", "yunikorn")),
        ("PodGroups that plain pods do not need", "scheduler-missing", 1, "default-scheduler",
         group_unread(native_gang, "PodGroup.scheduling.k8s.io", "default-scheduler")),
        ("no scheduler", "scheduler-missing", 1, "default-scheduler", lambda w: w.unscheduled()),
        ("resource claim", "device-claim", 3, "ResourceClaim", lambda w: w.unscheduled(
            "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable")),
        ("host ports", "unschedulable", 3, "host ports", lambda w: w.unscheduled(
            "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.")),
        ("container runtime", "container-create", 1, "context deadline exceeded", lambda w: w.waits(
            "CreateContainerError", "context deadline exceeded")),
        ("claim without a class", "claim-pending", 3, "data", lambda w: (claimed("Pending")(w), only_a_claim(w))),
        ("nothing is visible", "unexplained", 3, "no cause is visible", nothing_visible),
        ("gates", "scheduling-gated", 3, "example.com/quota", gated),
        ("coscheduling", "gang-waiting", 3, "gang", coscheduling),
        ("Volcano", "gang-unschedulable", 3, "2 pods", volcano),
        ("KAI", "gang-unschedulable", 3, "GPUs", kai),
        ("Kubernetes' own gang", "gang-unschedulable", 3, "gang of 2 pods does not fit: 0/2 nodes", native_gang),
        ("a gang that is larger than the cluster", "gang-too-large", 3, "all nodes together have room for 2", huge_gang),
        ("a larger gang of Kubernetes 1.35", "gang-too-large", 3, "gang of 4 pods", gang_of_1_35),
        ("a gang whose pods are not all created", "gang-waiting", 3, "needs 2 pods, and 1 exist", incomplete_gang),
        ("no API of gangs", "gang-unavailable", 1, "serves no gangs", no_gang_api),
        ("KAI's queue", "queue-missing", 1, "nowhere", kai_queue_missing),
        ("Kueue waits for quota", "queued", 3, "insufficient unused quota", pending_quota(
            "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more needed")),
        ("Kueue's quota is smaller than the job", "queued", 1, "maximum capacity (32)", pending_quota(f"{FLAVORS} {TOO_SMALL}")),
        ("Kueue's quota is too small in one of two flavors", "queued", 3, "maximum capacity (32)", pending_quota(
            f"{FLAVORS} {TOO_SMALL}, insufficient unused quota for nvidia.com/gpu in flavor spot, 4 more needed")),
        ("Kueue's queue has no such resource", "queued", 1, "rdma/ib unavailable", pending_quota(
            f"{FLAVORS} insufficient unused quota for cpu in flavor spot, 4 more needed, "
            "resource rdma/ib unavailable in ClusterQueue")),
        ("Kueue's LocalQueue", "queue-missing", 1, "team-queue", pending_quota("LocalQueue team-queue doesn't exist")),
        ("MultiKueue waits for quota", "queued", 3, "more needed", lambda w: (managed(w), pending_quota(
            f"{FLAVORS} insufficient unused quota for cpu in flavor spot, 4 more needed")(w))),
        ("Kueue's queue stopped", "queue-inactive", 3, "team-queue", pending_quota("ClusterQueue team is inactive")),
        ("Kueue evicted it", "workload-evicted", 3, "Preempted", kueue_evicted),
        ("Kueue's check", "admission-check", 3, "provision", kueue_check()),
        ("Kueue's check rejects it", "admission-check", 1, "no budget", kueue_check("Rejected", "no budget")),
        ("Kueue deactivated it", "workload-deactivated", 3, "deactivated", lambda w: w.workload(spec={"active": False})),
        ("headless service", "service-missing", 1, "llama", no_service),
        ("a stranger suspends the JobSet", "child-suspended", 3, "JobSet llama", job_set_suspended),
        ("a sidecar keeps the pods", "sidecar-running", 3, "istio-proxy", sidecar()),
        ("a sidecar of a failed training", "container-failed", 1, "exit code 1", sidecar(code=1)),
        ("probe", "probe-failing", 1, "connection refused", unready),
        ("drained", "evicted", 1, "by a drain", disrupted("EvictionByEvictionAPI")),
        ("ended by the kubelet", "evicted", 1, "the kubelet ended", disrupted("TerminationByKubelet")),
        ("disrupted by another program", "evicted", 1, "was disrupted", disrupted("ByHand")),
        ("deleted for a taint", "node-lost", 1, "a taint of its node", disrupted("DeletionByTaintManager")),
        ("collected with its node", "node-lost", 1, "its node does not exist", disrupted("DeletionByPodGC")),
        ("the node was shut down", "node-lost", 1, "was shut down or lost", pod_failed("NodeShutdown", "Pod was terminated")),
        ("deleted for a taint, and the pods are gone", "node-lost", 1, "a taint of their nodes",
         lambda w: preempted_and_deleted(w, reason="TaintManagerEviction", message="Marking for deletion Pod team-a/llama")),
        ("a key of a volume", "key-missing", 1, "refers to the key token", mount("references non-existent secret key: token")),
        ("Kueue's ClusterQueue", "queue-missing", 1, "ClusterQueue gpus doesn't exist", pending_quota("ClusterQueue gpus doesn't exist")),
        ("out of memory again and again", "out-of-memory", 1, "restarted 4 times, last because it used more memory", lambda w: w.container(
            phase="Running", restarts=4, running={"startedAt": when(20)}, last={"exitCode": 137, "reason": "OOMKilled"})),
        ("a kind that is not served", "kind-missing", 1, "the kind PodGroup.scheduling.volcano.sh is not installed", refused(
            "PodGroup.scheduling.volcano.sh: the server could not find the requested resource")),
    )
]  # fmt: skip

OUTPUTS = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while",
    "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout",
    "DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
    "RuntimeError: unable to write to file </torch_19_3>: No space left on device (28)",
    "OSError: [Errno 28] No space left on device",
    "401 Client Error: Unauthorized for url: https://hub.example/api/models/x",
    "ImportError: libcudnn.so.9: cannot open shared object file",
    "ValueError: bad learning rate",
    "RuntimeError: No CUDA GPUs are available",
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
    "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.2.3]:41234",
    "E0612 10:01:02.1 7 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 42) of binary: python",
    "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed.",
    "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error.",
    "train.py: error: unrecognized arguments: --learning-rate 3",
    "There are not enough slots available in the system to satisfy the 8",
    "ssh: connect to host llama-node-0-1.llama port 22: Connection refused",
    "OSError: meta/lama-9 is not a local folder and is not a valid model identifier",
    "ConnectionError: [Errno 101] Network is unreachable",
    "SSLError: Max retries exceeded with url: / (certificate verify failed: self-signed certificate)",
    "PermissionError: [Errno 13] Permission denied: '/checkpoints/epoch-1'",
    "OSError: [Errno 30] Read-only file system: '/workspace/out'",
    "wandb.errors.UsageError: api_key not configured (no-tty).",
    "OSError: [Errno 98] Address already in use",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
    "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]",
    "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
    "botocore.errorfactory.NoSuchBucket: An error occurred when calling ListObjects",
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    "RuntimeError: Error(s) in loading state_dict for M: size mismatch for fc.weight",
    "RuntimeError: CUDA error: device-side assert triggered",
    "OSError: CUDA_HOME does not exist, unable to compile CUDA op(s)",
    "OSError: [Errno 24] Too many open files",
    "ImportError: /opt/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
    "ValueError: Error initializing torch.distributed: environment variable RANK expected, but not set",
    "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
    "fatal: could not read Username for 'https://git.example': terminal prompts disabled",
    "ClientError: An error occurred (SignatureDoesNotMatch) when calling the PutObject operation",
    "ClientError: An error occurred (404) when calling the HeadObject operation: Not Found",
    "ERROR: No matching distribution found for fancy-optim==9.9",
    "omegaconf.errors.ConfigAttributeError: Key 'modle' is not in struct",
    "root@llama-node-0-0.llama: Permission denied (publickey).",
    "ORTE was unable to reliably start one or more daemons.",
    "/usr/bin/env: 'bash\\r': No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    "MemoryError: Unable to allocate 40.0 GiB",
]  # fmt: skip
"""What a training prints before it ends."""


def fails_with(code: int = 1, *log: str, **options: Any) -> State:
    """Return the state in which the container of the first rank has ended; its log is known."""

    def state(world: TrainJobObjects) -> None:
        world.ended(code, **options)
        world.logs[world.pods[0]["metadata"]["name"], "node"] = list(log)

    return state


def removed_after(message: str = "") -> State:
    """Return the state in which the Job has failed, and an event may say how its removed pods ended."""

    def state(world: TrainJobObjects) -> None:
        world.without_pods()
        failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if message:
            world.event(world.train_job, "ContainerFailed", message)

    return state


def ends_late(*, node: bool = False, pods: bool = True) -> State:
    """Return the state in which the TrainJob is being deleted; pods may exist after their grace period."""

    def state(world: TrainJobObjects) -> None:
        for each in (world.train_job, *world.pods):
            each["metadata"].update(deletionTimestamp=when(600), deletionGracePeriodSeconds=30)
        if not pods:
            world.without_pods()
        if node:
            world.nodes[0]["status"]["conditions"] = [condition("Ready", "Unknown")]

    return state


def with_runtime(*, manager: str | None = None, **trainer: Any) -> State:
    """Return the state in which the runtime of the TrainJob is known, so that its fields can be compared."""

    def state(world: TrainJobObjects) -> None:
        template = {"metadata": {}, "spec": {"template": {"spec": world.pod_spec()}}}
        spec = {"replicatedJobs": [{"name": "node", "template": template}], "managedBy": manager}
        world.make(
            "trainer.kubeflow.org/v1alpha1",
            "ClusterTrainingRuntime",
            "torch-distributed",
            namespace="",
            spec={
                "mlPolicy": {"torch": {}},
                "template": {"spec": spec},
            },
        )
        world.train_job["spec"]["trainer"] = trainer
        if manager:
            world.remove(world.job, *world.pods)

    return state


def finished_with(ttl: int | None, *, age: float = 60, event: str = "", failed: str = "") -> State:
    """Return the state in which the TrainJob is complete and has a time to live."""

    def state(world: TrainJobObjects) -> None:
        world.train_job["status"]["conditions"] = [condition("Complete", age=age)]
        if ttl is not None:
            world.train_job["spec"]["ttlSecondsAfterFinished"] = ttl
        if event:
            world.event(world.train_job, "TrainJobExpiring", event, kind="Normal")
        if failed:
            world.event(world.train_job, "TrainJobDeletionFailed", failed)

    return state


def waits_for(reason: str, message: str, event: str = "") -> State:
    """Return the state in which the container of the first rank waits, and an event says more."""

    def state(world: TrainJobObjects) -> None:
        world.waits(reason, message)
        if event:
            world.event(world.pods[0], "Failed", event)

    return state


def pulls(world: TrainJobObjects) -> None:
    world.waits("ContainerCreating")
    world.event(world.pods[0], "Pulling", 'Pulling image "registry.example/train:1"', kind="Normal")


def initializes_for_an_hour(world: TrainJobObjects) -> None:
    for each in (world.train_job, world.job_set, world.job, *world.pods):
        each["metadata"]["creationTimestamp"] = when(3600)
    for number in range(2):
        world.container(pod=number, init=True, running={"startedAt": when(3500)})


def ignored_and_unread(world: TrainJobObjects) -> None:
    world.without_children()
    world.unread["Event"] = "events is forbidden"


def podless_and_unread(world: TrainJobObjects) -> None:
    world.without_pods()
    world.unread["Event"] = "events is forbidden"


def killed_by_a_probe(world: TrainJobObjects) -> None:
    world.ended(137)
    world.event(world.pods[0], "Killing", "Container node failed liveness probe, will be restarted", age=22)


def unseen_by_kueue(*, unread: str = "") -> State:
    def state(world: TrainJobObjects) -> None:
        world.suspend("kubectl-create")
        world.train_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-queue"
        if unread:
            world.unread["Workload.kueue.x-k8s.io"] = unread

    return state


def waited_too_long(world: TrainJobObjects) -> None:
    world.unscheduled()
    world.event(world.pods[0], "FailedScheduling", "0/2 nodes are available: 2 Insufficient cpu.", age=90)
    failed(world, "DeadlineExceeded", "Job was active longer than specified deadline")


def failed_unread(world: TrainJobObjects) -> None:
    world.unread["Pod"] = "pods is forbidden"
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def failed_otherwise(world: TrainJobObjects) -> None:
    world.without_pods()
    failed(world, "Unheard", "of")


def on_a_local_cluster(state: State) -> State:
    def local(world: TrainJobObjects) -> None:
        state(world)
        for node in world.nodes:
            node["metadata"]["annotations"] = {"trainer.kubeflow.org/local-cluster": "mine"}

    return local


def scales_up(world: TrainJobObjects) -> None:
    crowd(world)
    for pod in world.pods:
        world.event(pod, "TriggeredScaleUp", "pod triggered scale-up", kind="Normal", age=30)


def inqueue(queue: str) -> State:
    def state(world: TrainJobObjects) -> None:
        world.unscheduled()
        world.group("scheduling.volcano.sh/v1beta1", queue=queue, status={"phase": "Inqueue"})

    return state


def gave_up(reason: str) -> State:
    return lambda world: failed(world, reason, "some pods failed")


def kind_missing(version: str) -> State:
    return uncreated(f'no matches for kind "Thing" in version "{version}"')


def hook_fails(world: TrainJobObjects) -> None:
    world.waits(
        "CrashLoopBackOff", restarts=2, last={"exitCode": 137, "reason": "Error", "finishedAt": when(30)}
    )
    world.event(world.pods[0], "FailedPostStartHook", 'PostStartHook failed: command "mount" exited with 1')


def drains(world: TrainJobObjects) -> None:
    for pod in world.pods:
        pod["metadata"].update(deletionTimestamp=when(-20), deletionGracePeriodSeconds=30)
        pod["status"]["conditions"] = [condition("DisruptionTarget", reason="EvictionByEvictionAPI")]


def no_devices(world: TrainJobObjects) -> None:
    for node in world.nodes:
        node["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    world.unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


def of_a_scope(world: TrainJobObjects) -> None:
    refused(FORBIDDEN + "exceeded quota: gold, requested: pods=1, used: pods=0, limited: pods=0")(world)
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}]}
    world.make("v1", "ResourceQuota", "gold", spec={"hard": {"pods": "0"}, "scopeSelector": selector})


VARIANTS: list[tuple[str, State]] = [
    *((f"output: {line}", fails_with(1, line)) for line in OUTPUTS),
    *((f"a kind of {group}", kind_missing(f"{group}/v1")) for group in (
        "example.com", "kubeflow.org", "leaderworkerset.x-k8s.io", "ray.io", "resource.k8s.io", "scheduling.k8s.io", "trainer.kubeflow.org")),
    *((words, waits_for("CreateContainerError", words)) for words in (
        "local processes have no images", "local processes run no such container", "no command specified",
        "container init was OOM-killed (memory limit too low?)", "write /run/x: no space left on device",
        'failed to reserve container name "node": name is reserved for "abc"')),
    ("a command that local processes lack", waits_for("ProcessesUnsupported", "container node has no command: local processes have no images")),
    ("deleted, and the children follow", ends_late(pods=False)),
    ("deleted, and a pod stays", ends_late()),
    ("deleted, and the node of a pod is lost", ends_late(node=True)),
    ("no effect", with_runtime(image="mine")),
    ("a runtime that another controller manages", with_runtime(manager="example.com/other")),
    ("image pull secrets missing", waits_for("ErrImagePull", "401 Unauthorized",
        'Unable to retrieve some image pull secrets (regcred); attempting to pull the image "registry.example/train:1"')),
    ("registry of an unknown authority", waits_for("ErrImagePull", "x509: certificate signed by unknown authority")),
    ("registry without TLS", waits_for("ErrImagePull", "http: server gave HTTP response to HTTPS client")),
    ("pulls an image", pulls),
    ("a command that the shell does not find", fails_with(127, message="sh: 1: torchrunn: not found")),
    ("an image of another architecture", fails_with(255, "exec /usr/bin/python: exec format error")),
    ("an image of another architecture, for runc", fails_with(
        255, "standard_init_linux.go:228: exec user process caused: exec format error")),
    ("a container that the node lost", fails_with(137, reason="ContainerStatusUnknown")),
    ("crashed and runs again", lambda w: w.container(
        phase="Running", restarts=3, running={"startedAt": when(20)}, last={"exitCode": 1, "reason": "Error"})),
    ("killed by a probe", killed_by_a_probe),
    ("printed nothing", fails_with(3)),
    ("bus error", fails_with(135, "step 1")),
    ("segmentation fault", fails_with(139, "step 1")),
    ("an init container used too much memory", lambda w: w.container(
        init=True, waiting={"reason": "CrashLoopBackOff"}, restarts=3, last={"exitCode": 137, "reason": "OOMKilled"})),
    ("a hook after the start fails", hook_fails),
    ("drained, and the pods still end", drains),
    ("a device plugin that offers no devices", no_devices),
    ("illegal instruction", fails_with(132, "step 1")),
    ("terminated", fails_with(143, "step 1")),
    ("a quota that permits no pods of a priority", of_a_scope),
    ("removed, and an event says how it ended", removed_after(
        "Container node of Pod llama-node-0-0-abcde (step node) ended with exit code 1 (Error): ValueError: bad rate")),
    ("failed, and pods cannot be read", failed_unread),
    ("failed without retries", failed_otherwise),
    *((reason, gave_up(reason)) for reason in (
        "MaxFailedIndexesExceeded", "FailedIndexes", "PodFailurePolicy", "ReachedMaxRestarts")),
    ("the deadline passed while a pod waited", waited_too_long),
    ("an init container runs for an hour", initializes_for_an_hour),
    ("the manager does nothing, and events cannot be read", ignored_and_unread),
    ("no pods, and events cannot be read", podless_and_unread),
    ("no GPUs on a local cluster", on_a_local_cluster(no_gpus_at_all)),
    ("too large for a local cluster", on_a_local_cluster(crowd)),
    ("an autoscaler adds a node", scales_up),
    ("waits in a queue of Volcano", inqueue("team")),
    ("waits for Volcano", inqueue("")),
    ("no flavor of Kueue matches", pending_quota(f"{FLAVORS} flavor spot doesn't match node affinity")),
    ("one flavor of Kueue matches", pending_quota(
        f"{FLAVORS} flavor spot doesn't match node affinity, insufficient unused quota for cpu in flavor a100, 4 more needed")),
    ("one flavor of Kueue is too small, and one has a taint", pending_quota(
        f"{FLAVORS} {TOO_SMALL}, untolerated taint {{gpu true NoSchedule <nil>}} in flavor spot")),
    ("a resource that Kueue's queue lacks", pending_quota(f"{FLAVORS} resource rdma/ib unavailable in ClusterQueue")),
    ("Kueue has no Workload", unseen_by_kueue()),
    ("Workloads cannot be read", unseen_by_kueue(unread="workloads is forbidden")),
    ("will be deleted", finished_with(3600)),
    ("should have been deleted", finished_with(10, age=600)),
    ("cannot be deleted", finished_with(10, age=600, failed="TrainJob cannot be deleted: forbidden")),
    ("will be deleted by the manager's configuration", finished_with(None, event="it will be deleted at noon")),
]  # fmt: skip
"""States for the variants of remedies and texts that no other case shows."""
