# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The table of causes: what each means, what a person reads about it, and the remedy.

The most specific cause comes first: findings with the same severity are sorted in this order. Some causes have several
rules, because their texts differ: ``node-lost/deleted`` is a rule of the cause ``node-lost``. The modules in
:mod:`pkg.why.causes` find the evidence and name the rule.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Severity(StrEnum):
    """How severe a finding is. The most severe value comes first."""

    ERROR = "error"
    """Nothing changes until a fault is corrected."""
    WAITING = "waiting"
    """Nothing is wrong: the TrainJob waits for a person, a queue or free capacity."""
    NOTE = "note"
    """Worth knowing, but not the reason why the TrainJob does not run."""


class Rule(NamedTuple):
    """What is said about one cause. The templates name values that the finder gives, such as ``{pod.name}``."""

    meaning: str
    """What the documentation says. It is empty in all but the first rule of a cause."""
    summary: str
    """Reads well after a colon, and has no full stop at the end."""
    remedy: str
    severity: Severity = Severity.ERROR


_WAITING: Final = Severity.WAITING
_CREATE: Final = "Create the {reference} in namespace {reference.namespace}."
_FIELD: Final = (
    "Correct the field in the TrainJob or its runtime. To see where each value comes from: "
    "trainerctl explain -f FILE"
)
_FIT: Final = "Lower spec.trainer.numNodes or the requests of the pods, or {add}."
_LARGER: Final = "Lower spec.trainer.resourcesPerNode, or {add}."
_LIMITS: Final = "Change spec.trainer.resourcesPerNode, or the LimitRange of the namespace."
_LOG: Final = "Read the log of jobset-controller-manager in the namespace jobset-system: it shows the error."
_AGAIN: Final = (
    "If no retry is left, submit the TrainJob again, with a higher priority or after the disruption; the runtime can "
    "set retries."
)
_COMMAND: Final = (
    "Correct spec.trainer.command, or use an image that contains the program for the nodes' architecture."
)
# fmt: off
RULES: Final[dict[str, Rule]] = {
    "deletion-blocked": Rule(
        "the TrainJob, a child, or an earlier object with a child's name is being deleted",
        "the {awaited} must be deleted first, but it still exists",
        "Look for pods that do not end, and for finalizers: the program that set one must remove it.", _WAITING),
    "deletion-blocked/finalizer": Rule(
        "", "the TrainJob is being deleted; the finalizer {name} of {holder} delays the deletion",
        "The controller that set {name} must remove it; if that is uninstalled, remove the finalizer by hand.",
        _WAITING),
    "deletion-blocked/children": Rule(
        "", "the TrainJob is being deleted; its children are deleted first",
        "Wait until the children are deleted; pods end after their termination grace period.", _WAITING),
    "deletion-blocked/pod": Rule(
        "", "the TrainJob is being deleted; {pod} has not ended in its grace period",
        "Check the kubelet of node {node}. To delete the pod without waiting for it: kubectl delete pod {pod.name} -n "
        "{pod.namespace} --force", _WAITING),
    "deletion-blocked/node": Rule(
        "", "the TrainJob is being deleted; its pods on the node {node}, which is not ready, cannot end",
        "Repair the node {node}, or delete it, so that its pods are deleted.", _WAITING),
    "managed-by": Rule(
        "another controller manages the TrainJob",
        "the controller {manager} manages the {obj.kind}, not this cluster's {ours}",
        "Look at {manager}; with MultiKueue the {obj.kind} runs in another cluster.", _WAITING),
    "runtime-unsupported": Rule(
        "the kind of the runtime is not supported", "the runtime is not supported: {words}",
        "Correct apiGroup and kind of spec.runtimeRef; the condition clears by itself."),
    "runtime-missing": Rule(
        "the runtime does not exist", "the {runtime} does not exist",
        "Create the {runtime}, or create the TrainJob with another runtimeRef."),
    "runtime-missing/other-kind": Rule(
        "", "the {runtime} does not exist",
        "Create the TrainJob with runtimeRef.kind: {kind}, or create the {runtime}."),
    "number-invalid": Rule(
        "a number of the TrainJob or its runtime is too small. This is a note if pods can run",
        "{words}", "Correct {path}."),
    "jobset-missing": Rule("JobSet is not installed", "JobSet is not installed", "Install JobSet."),
    "kind-missing": Rule(
        "a kind that a plugin needs is not installed", "the kind {kind} ({version}) is not installed",
        "Install {project}, or use a runtime that does not need {kind}."),
    "kind-missing/unversioned": Rule(
        "", "the kind {kind} is not installed", "Install {project}, or use a runtime that does not need {kind}."),
    "namespace-terminating": Rule(
        "the namespace is being deleted", "the namespace {name} is being deleted",
        "Create the TrainJob in another namespace."),
    "quota-exceeded": Rule(
        "a ResourceQuota refuses the pods or objects",
        "the ResourceQuota {name} is exceeded: requested {requested}, used {used}, limit {max}",
        "Wait until other workloads of the namespace end, or delete some; or lower numNodes or resourcesPerNode of "
        "spec.trainer; or ask the administrator to raise the ResourceQuota {name}."),
    "quota-exceeded/never": Rule(
        "", "one pod requests more than the ResourceQuota {name} permits: {never}",
        "Lower spec.trainer.resourcesPerNode, or ask the administrator to raise the ResourceQuota {name}; waiting does "
        "not help."),
    "quota-exceeded/none": Rule(
        "", "the ResourceQuota {name} permits none of: {requested}",
        "Ask the administrator to raise the ResourceQuota {name}; waiting does not help."),
    "quota-exceeded/unspecified": Rule(
        "", "the ResourceQuota {name} requires every pod to specify {words}",
        "Set {words} in spec.trainer.resourcesPerNode, or add a LimitRange with defaults."),
    "quota-exceeded/jobs": Rule(
        "", "the ResourceQuota {name} is exceeded: {words}",
        "Delete Jobs of the namespace, or raise the ResourceQuota {name}."),
    "limit-range": Rule("a LimitRange refuses the pods", "a LimitRange refuses the pods: {words}", _LIMITS),
    "pod-security": Rule(
        "Pod Security Admission, or a security context constraint of OpenShift, refuses the pods",
        "the Pod Security level {name} of the namespace refuses the pods: {words}",
        "Correct the security contexts in the runtime's template, or lower the namespace's pod-security label."),
    "pod-security/constraint": Rule(
        "", "no security context constraint of OpenShift admits the pods: {words}",
        "Correct the security contexts in the runtime's template, or let their service account use another "
        "constraint."),
    "service-account-missing": Rule(
        "the service account does not exist", "the service account {name} does not exist",
        "Create the service account {name} in namespace {namespace}, or correct serviceAccountName."),
    "priority-class-missing": Rule(
        "the priority class does not exist", "the priority class {name} does not exist",
        "Create the PriorityClass {name}, or correct priorityClassName in the runtime."),
    "runtime-class-missing": Rule(
        "the RuntimeClass does not exist", "the RuntimeClass {name} does not exist",
        "Create the RuntimeClass {name}, or correct runtimeClassName in the runtime."),
    "webhook-unreachable": Rule(
        "an admission webhook does not answer", "the admission webhook {name} does not answer: {words}",
        "Start the program that serves the webhook, or delete its webhook configuration."),
    "webhook-denied": Rule(
        "an admission webhook or policy refuses an object", "the admission {what} {name} refuses the object: {words}",
        "Change the refused setting, or ask the owner of the {what} {name}."),
    "forbidden": Rule(
        "a controller lacks a permission", "{name} may not {verb} {words}",
        "Grant the permission; the roles that the manager needs are in config/rbac."),
    "name-conflict": Rule(
        "the name of a child is used by another object", "the name of {name} is used by another object: {words}",
        "Delete that object, or create the TrainJob with another name."),
    "object-invalid": Rule("the API server refuses an object as invalid", "{words}", _FIELD),
    "object-invalid/remark": Rule("", "{words}", "Correct {path}."),
    "secret-missing": Rule("a Secret does not exist", "the {reference} does not exist", _CREATE),
    "secret-missing/image": Rule(
        "",
        "the image pull secrets {names} do not exist, and the registry refuses {status.image} (for the {status.label})",
        "Create the Secret in namespace {status.pod.namespace}, or correct imagePullSecrets."),
    "config-map-missing": Rule("a ConfigMap does not exist", "the {reference} does not exist", _CREATE),
    "key-missing": Rule(
        "a Secret or ConfigMap lacks a key", "the {kind} {name} has no key {key}, which the {status.label} needs",
        "Add the key to the {kind}."),
    "key-missing/volume": Rule(
        "",
        "a volume refers to the key {key}, which its Secret or ConfigMap lacks", "Add the key, or correct the volume."),
    "device-claim-missing": Rule(
        "a ResourceClaim or ResourceClaimTemplate does not exist", "the {reference} does not exist", _CREATE),
    "claim-missing": Rule("a PersistentVolumeClaim does not exist", "the {reference} does not exist", _CREATE),
    "storage-class-missing": Rule(
        "the storage class does not exist", "the storage class {name} of the claim {claim.name} does not exist",
        "Create the storage class, or create the claim with another one."),
    "claim-lost": Rule(
        "the volume of a PersistentVolumeClaim does not exist", "the volume of the claim {claim.name} does not exist",
        "Restore the PersistentVolume, or create the claim again."),
    "claim-pending": Rule(
        "a PersistentVolumeClaim is not bound", "the claim {claim.name} is not bound to a volume",
        "Create a PersistentVolume that matches, or set a storage class that provisions one.", _WAITING),
    "claim-pending/warning": Rule(
        "", "the claim {claim.name} cannot be provisioned: {words}", "Correct the claim or its storage class."),
    "claim-pending/scheduler": Rule("", "{claim} is not bound to a volume",
        "Create a PersistentVolume that matches, or set a storage class that provisions one."),
    "volume-in-use": Rule(
        "a volume is attached to another node", "a volume of {pod} is attached to another node",
        "Stop the pod that uses the volume, or use a volume with access mode ReadWriteMany."),
    "volume-mount": Rule(
        "a volume cannot be mounted", "a volume cannot be mounted: {words}",
        "Correct the volume, or repair its storage system."),
    "image-name-invalid": Rule(
        "the name of an image is not valid", "the image name {image!r} is not valid (for the {status.label})",
        "Correct the image's name."),
    "image-unauthorized": Rule(
        "the registry refuses access to an image",
        "the registry refuses access to the image {image} (for the {status.label})",
        "Correct the image's name, or give the pods' service account imagePullSecrets."),
    "image-not-found": Rule(
        "an image does not exist", "the image {image} does not exist (for the {status.label})",
        "Correct the image's name and tag, and check that the image is built for the nodes' architecture."),
    "image-not-found/never": Rule(
        "", "the image {image} is not on the node, and imagePullPolicy is Never (for the {status.label})",
        "Load the image on the nodes, or change imagePullPolicy from Never."),
    "image-rate-limited": Rule(
        "the registry limits the rate of pulls",
        "the registry limits the rate of pulls of {image} (for the {status.label})",
        "Pull with credentials (imagePullSecrets), or from a mirror."),
    "image-pull": Rule(
        "an image cannot be pulled", "the image {image} cannot be pulled (for the {status.label})",
        "Check that the nodes reach the registry; the kubelet tries again by itself."),
    "image-pull/untrusted": Rule(
        "", "the nodes do not trust the registry of the image {image} (for the {status.label})",
        "Let the nodes' container runtime trust the registry: add its certificate authority, or use a registry with a "
        "public certificate."),
    "image-pull/space": Rule(
        "", "the node has no space left for the image {image} (for the {status.label})",
        "Free disk space on the pod's node, or use another node; the kubelet tries again by itself."),
    "image-pulling": Rule(
        "an image is being pulled. This is a note: nothing is wrong", "the pull of the image {image} began {age} ago",
        "Wait.", Severity.NOTE),
    "command-not-found": Rule(
        "the command of a container cannot be executed",
        "the command of the {status.label} cannot be executed: {words}", _COMMAND),
    "command-not-found/shell": Rule(
        "", "the {status.label} cannot execute a command (exit code {code}){said}", "{advice}" + _COMMAND),
    "container-create": Rule(
        "a container cannot be created, for example because its configuration is not valid",
        "the {status.label} cannot be created: {words}", "{remedy}"),
    "out-of-memory": Rule(
        "a container used more memory than its limit", "the {status.label} used more memory than its limit{limit}",
        "{remedy}"),
    "out-of-memory/restarts": Rule(
        "", "the {status.label} restarted {status.restarts} times, last because it used more memory than its limit",
        "{memory} {remedy}"),
    "evicted": Rule(
        "a pod was evicted", "the kubelet evicted {pod}: {words}",
        "Raise the requests for memory and ephemeral-storage, and the limit that the message names, to the real usage "
        "of the pods."),
    "evicted/drain": Rule("", "{pod} was evicted, for example by a drain of its node", _AGAIN),
    "evicted/kubelet": Rule("", "the kubelet ended {pod}", _AGAIN),
    "evicted/disrupted": Rule("", "{pod} was disrupted", _AGAIN),
    "preempted": Rule("a pod was preempted", "the scheduler preempted {pod} for a pod of higher priority", _AGAIN),
    "preempted/deleted": Rule(
        "", "the scheduler preempted the pods for others of higher priority",
        "Submit the TrainJob again, with a higher priority or when the others have ended; the runtime can set "
        "retries."),
    "node-lost": Rule(
        "the node of a pod is not ready, does not report, or does not exist", "the node {node} {state}",
        "Repair the node, or delete it, so that its pods run elsewhere."),
    "node-lost/taint": Rule("", "{pod} was deleted because of a taint of its node", _AGAIN),
    "node-lost/taints": Rule(
        "", "the pods were deleted because of a taint of their nodes",
        "Submit the TrainJob again; the runtime can set retries."),
    "node-lost/collected": Rule("", "{pod} was deleted because its node does not exist", _AGAIN),
    "node-lost/shutdown": Rule(
        "", "the node {node} of {pod} was shut down or lost",
        "Restore the node, or remove it from the cluster. If no retry is left, submit the TrainJob again; the runtime "
        "can set retries."),
    "node-lost/container": Rule(
        "", "the node {node} lost the {status.label}, for example because it was restarted",
        "Submit the TrainJob again; the runtime can set retries. If it happens again, check the node {node}."),
    "node-lost/deleted": Rule(
        "", "the node {node} of {pod} does not exist",
        "Wait for the pod garbage collector, or delete the pod with --force."),
    "node-lost/unknown": Rule(
        "", "the node {node} does not report on {pod}, so it is not known whether the pod runs",
        "Check the kubelet of node {node} and its connection. If the node is gone, delete it (kubectl delete node "
        "{node}), so that its pods are replaced."),
    "node-lost/pinned": Rule(
        "", "the node {node} does not exist, and nodeName of the pods is {node}",
        "Remove nodeName from the runtime; nodeSelector chooses nodes by their labels."),
    "node-rejected": Rule(
        "the node refused a pod", "the node {node} refused {pod}: {reason}: {words}",
        "Check the node's devices and free resources; the Job creates the pod again while it has retries."),
    "dns-failure": Rule(
        "a container cannot resolve a host name", "the {status.label} cannot resolve a host name (exit code {code})",
        "Check the headless service of the JobSet, the cluster's DNS, and network policies that block port 53."),
    "crash-loop": Rule(
        "a container fails again and again",
        "the {status.label} fails again and again with exit code {code}{signal}{restarted}{said}",
        "{remedy}"),
    "crash-loop/restarts": Rule(
        "", "the {status.label} restarted {status.restarts} times, last after exit code {code}", "{remedy}"),
    "container-failed": Rule(
        "a container failed", "the {status.label} failed with exit code {code}{signal}{said}", "{remedy}"),
    "container-failed/killed": Rule(
        "", "the {status.label} failed with exit code {code}{signal}",
        "A process cannot log SIGKILL. Usually the memory ran out: look for an OOM kill in the kernel's log of the "
        "node {node} (dmesg), and raise the memory in spec.trainer.resourcesPerNode, or use less: a smaller batch, "
        "fewer data workers. Otherwise look for another program that sends signals, such as a launcher with a timeout. "
        "{remedy}"),
    "sidecar-running": Rule(
        "a container of a pod has succeeded, but another container keeps the pod from ending",
        "the {status.label} has succeeded, and the container {names} keeps the pod from ending",
        "Make {names} an init container with restartPolicy: Always, which ends after the other containers, or prevent "
        'its injection into these pods. For Istio, set the label sidecar.istio.io/inject: "false" in the '
        'runtime\'s pod '
        "template.", _WAITING),
    "probe-failing": Rule(
        "a probe of a container fails", "a probe of {pod} fails: {words}", "Correct the probe or its target."),
    "probe-failing/killed": Rule(
        "", "the kubelet killed the {status.label} because its {probe} probe failed",
        "Correct the probe or its target, or give it more time (failureThreshold, periodSeconds): a program that "
        "computes or loads a model may not answer in time."),
    "sandbox-failed": Rule(
        "the sandbox or network of a pod cannot be set up", "the sandbox of {pod} cannot be set up: {words}",
        "Check the network plugin (CNI) and the container runtime of the node."),
    "service-missing": Rule(
        "the headless service of the pods does not exist",
        "the headless service {name} of the pods does not exist, so their host names do not resolve",
        "Check the events of the JobSet, and its controller, which creates the service."),
    "never-fits": Rule("a pod requests more than any node has", "{words}", _LARGER),
    "job-too-large": Rule(
        "the pods of the TrainJob do not fit into the cluster together, even if no other pods run",
        "the TrainJob is larger than the cluster: its {shown} do not fit even if no other pods run", _FIT),
    "gang-too-large": Rule(
        "the pods of the gang do not fit into the cluster together, even if no other pods run",
        "the gang of {members} pods is larger than the cluster: all nodes together have room for {most} of its pods",
        _FIT, _WAITING),
    "no-nodes": Rule(
        "the cluster has no nodes", "the cluster has no nodes", "Add nodes, or wait for the autoscaler.", _WAITING),
    "volume-node": Rule(
        "no node can use the volumes of a pod", "no node can use the volumes of the pods",
        "Use volumes in the zone of the nodes, or detach volumes that are not needed."),
    "affinity": Rule(
        "no node satisfies the affinity or spread constraints of a pod",
        "no node satisfies the pod affinity or topology spread constraints", "Relax the constraints, or add nodes."),
    "affinity/apart": Rule(
        "", "the anti-affinity rules keep the pods apart from the pods on the nodes",
        "Wait until those pods end, add nodes, or relax the rules. JobSet's exclusive placement sets such rules.",
        _WAITING),
    "node-selector": Rule(
        "no node matches the node selector or affinity of a pod", "{words}",
        "Label the nodes, or correct nodeSelector and affinity in the TrainJob or its runtime."),
    "taints": Rule(
        "the pods do not tolerate the taints of the nodes", "the pods do not tolerate the taints {shown}of the nodes",
        "Add a toleration (podTemplateOverrides of the TrainJob, or the runtime), or remove the taint."),
    "taints/not-ready": Rule(
        "", "the nodes are not ready to run pods: they have the taints {shown}",
        "Repair the nodes, and look at their conditions for it (kubectl describe nodes). The taints are removed "
        "afterwards."),
    "nodes-cordoned": Rule(
        "the nodes are cordoned", "the nodes are cordoned", "Uncordon a node: kubectl uncordon NODE"),
    "device-claim": Rule(
        "a ResourceClaim cannot be allocated", "a ResourceClaim of the pods cannot be allocated",
        "Check the ResourceClaims and the DRA driver.", _WAITING),
    "insufficient-resources": Rule(
        "no node has enough free resources", "{words}",
        "Wait for other pods to end, free resources, or add nodes.", _WAITING),
    "queue-missing": Rule(
        "the queue does not exist", "the {queue} does not exist", "Create the {queue}, or name another queue."),
    "queue-missing/local": Rule(
        "", "the LocalQueue {queue} does not exist",
        "Create the LocalQueue {queue}, or correct the label kueue.x-k8s.io/queue-name."),
    "queue-missing/cluster": Rule("", "a queue does not exist: {words}", "Create the ClusterQueue."),
    "queue-inactive": Rule(
        "the queue does not admit jobs", "the queue {queue} does not admit jobs: {words}",
        "Ask the administrator of the queue.", _WAITING),
    "admission-check": Rule(
        "an admission check of Kueue has not passed", "an admission check of Kueue has not passed: {words}",
        "See the controller of the admission check.", _WAITING),
    "workload-deactivated": Rule(
        "Kueue deactivated the Workload", "Kueue deactivated the {workload}",
        "Activate it: set spec.active of the Workload to true.", _WAITING),
    "workload-evicted": Rule(
        "Kueue evicted the Workload", "Kueue evicted the Workload ({reason}): {words}",
        "Wait until Kueue admits it again{lacks}.", _WAITING),
    "queued": Rule(
        "Kueue has not admitted the Workload", "Kueue has not admitted the TrainJob in the queue {queue}{words}",
        "{remedy}", _WAITING),
    "queued/unseen": Rule("", "the TrainJob waits for the Kueue queue {queue}", "{remedy}", _WAITING),
    "pod-grouper": Rule(
        "the pod grouper does not give a pod its group", "the pod grouper cannot give the pods a group: {words}",
        "Correct the object or setting that the message names; the pod grouper tries again by itself."),
    "pod-grouper/silent": Rule(
        "", "the pod grouper has given the pods no group, and pods without a group are not scheduled",
        "Check that KAI-Scheduler's pod grouper runs and selects the namespace, and read its log."),
    "gang-unavailable": Rule(
        "the cluster does not serve the API of the gang, or the gang was deleted",
        "the cluster cannot schedule the gang: {words}",
        "The TrainJob continues when the API or the CRD is installed."),
    "gang-unavailable/deleted": Rule(
        "", "the gang {job.name} of the pods does not exist: its {kind} was deleted",
        "Suspend and resume the TrainJob: trainerctl suspend {job.name} -n {job.namespace}"),
    "gang-unschedulable": Rule(
        "the scheduler cannot place all pods of the gang at the same time",
        "the gang of {members} pods does not fit: {words}",
        "See the queue's limits and the free resources; all pods of the gang must fit at the same time.", _WAITING),
    "gang-waiting": Rule(
        "the gang waits for more pods or for free resources", "the gang waits for its other pods",
        "See the other pods and the PodGroup; all pods of the gang must fit at the same time.", _WAITING),
    "gang-waiting/pods": Rule(
        "", "the gang needs {members} pods, and {count} exist",
        "See the events of the Jobs, which show why the other pods do not exist.", _WAITING),
    "gang-waiting/queue": Rule(
        "", "the gang of {members} pods waits {where}", "Wait for free resources in the queue.", _WAITING),
    "scheduling-gated": Rule(
        "scheduling gates hold the pods", "the scheduling gates {gates} hold the pods",
        "The program that set a gate must remove it; kueue.x-k8s.io/* gates wait for Kueue's admission.", _WAITING),
    "unschedulable": Rule(
        "the scheduler cannot place a pod", "the scheduler cannot place the pods: {words}",
        "See the scheduler's message.", _WAITING),
    "unschedulable/ports": Rule(
        "", "the host ports of the pods are not free on any node", "Do not use hostPort, or free the ports.", _WAITING),
    "unschedulable/unread": Rule(
        "", "the scheduler {name} has not placed the pods, and its reason cannot be read",
        "Get permission to list {unread}, or check that the scheduler {name} runs.", _WAITING),
    "scheduler-missing": Rule(
        "the scheduler of the pods does not react", "the scheduler {name} does not react to the pods",
        "Check that the scheduler {name} is installed and runs."),
    "pods-failing": Rule(
        "the pods of a Job fail again and again",
        "{pods} of the {job} failed, and the Job waits before it creates the next",
        "See the logs of the pods as soon as they exist again. The runtime sets the number of retries in "
        "backoffLimit."),
    "deadline-exceeded": Rule(
        "a deadline has passed", "the {deadline} of the {obj} has passed: {words}",
        "Raise activeDeadlineSeconds, or make the training shorter."),
    "deadline-exceeded/waited": Rule(
        "", "the {deadline} of the {obj} passed while a pod waited to start: {words}",
        "Correct what kept the pod from starting, and create the TrainJob again. activeDeadlineSeconds also counts the "
        "time before the start."),
    "deadline-exceeded/pod": Rule(
        "", "the {deadline} of {pod} has passed",
        "Raise activeDeadlineSeconds of the pods, or make the training shorter."),
    "creation-failed": Rule(
        "an object cannot be created", "an object cannot be created: {words}",
        "Correct the setting that the message names; the controller tries again by itself."),
    "creation-failed/jobs": Rule(
        "", "the controller of JobSet has created the headless service, but no Jobs", _LOG),
    "suspended": Rule(
        "the TrainJob is suspended", "the TrainJob was suspended{by}",
        "Resume it: trainerctl resume {job.name} -n {job.namespace}", _WAITING),
    "suspended/queue": Rule(
        "", "the TrainJob was suspended{by}",
        "Kueue resumes the TrainJob when it admits it. If you resume it earlier, Kueue suspends it again.", _WAITING),
    "child-suspended": Rule(
        "the JobSet or a Job is suspended, although the TrainJob is not",
        "the {child} is suspended, and the TrainJob is not",
        "Find the program that suspends the {child.kind}, such as a queueing system; it must resume it.", _WAITING),
    "child-suspended/step": Rule(
        "", "the Jobs of step {step} are suspended, and the TrainJob is not",
        "Find the program that suspends the Jobs, such as a queueing system; it must resume them.", _WAITING),
    "retries-exhausted": Rule(
        "all retries failed", "the {obj} failed ({reason}): {words}",
        "{remedy} The runtime sets the number of retries in backoffLimit and failurePolicy."),
    "failed": Rule("the TrainJob failed", "the {obj} failed ({reason}): {words}", "{remedy}"),
    "failed/pod": Rule("", "{pod} failed: {words}", "See the events of the pod."),
    "manager-down": Rule(
        "the manager does not run", "Trainer's manager does not run: {words}",
        "Start the manager; its Deployment, pods and log say why it does not run."),
    "manager-silent": Rule(
        "the manager does not react", "Trainer's manager does not react to the TrainJob",
        "Read the log of the manager, and its /readyz?verbose, which names the kinds that it cannot read."),
    "jobset-controller": Rule(
        "the controller of JobSet does not react", "the controller of JobSet {words}",
        "Check the Deployment jobset-controller-manager in the namespace jobset-system, and its log."),
    "job-controller": Rule(
        "the controller of Jobs does not react", "the controller of Jobs does not react",
        "Check kube-controller-manager."),
    "pods-missing": Rule(
        "the Jobs have no pods, and the events of the Jobs cannot be read",
        "the {job} has no pods, and the events that would show why cannot be read",
        "Get permission to list events in namespace {job.namespace}: the pods may be refused because of a "
        "quota, a policy "
        "or a missing service account.", _WAITING),
    "pods-missing/step": Rule(
        "", "the Jobs of step {step} have no pods",
        "See the events of the Jobs: the pods may be refused because of a quota, a policy or a missing service "
        "account.",
        _WAITING),
    "not-ready": Rule(
        "some pods are not ready, but the pods cannot be read", "the pods of step {step} are not ready ({ready} Jobs)",
        "Get permission to list pods: their states and events show the reason.", _WAITING),
    "kubelet-silent": Rule(
        "the kubelet does not start a pod", "the kubelet of node {node} does not start {pod}",
        "Check the kubelet of node {node}."),
    "no-effect": Rule(
        "a field of the TrainJob or its runtime has no effect, or one that was not meant. This is a note", "{words}",
        "Remove what has no effect, or correct the runtime as described.", Severity.NOTE),
    "expiring": Rule(
        "a finished TrainJob will be deleted after its `ttlSecondsAfterFinished`. This is a note",
        "it will be deleted at {due}, because {field}{gate}",
        "To keep the TrainJob for longer, raise its spec.ttlSecondsAfterFinished.", Severity.NOTE),
    "expiring/overdue": Rule(
        "", "it should have been deleted at {due}, because {field}, and still exists",
        "Enable the manager's feature gate TTLAfterFinished, and apply config/ttl-after-finished. To delete it now: "
        "trainerctl delete {job.name} -n {job.namespace}", Severity.NOTE),
    "expiring/failed": Rule(
        "", "{words}", "To delete it now: trainerctl delete {job.name} -n {job.namespace}", Severity.NOTE),
    "expiring/configured": Rule(
        "", "{words}", "To keep the TrainJob for longer, set its spec.ttlSecondsAfterFinished.", Severity.NOTE),
    "unexplained": Rule(
        "no cause was found", "{state}, and {what}",
        "Look at the objects, starting with the pods: kubectl describe pods -n {job.namespace} -l "
        "jobset.sigs.k8s.io/jobset-name={job.name}", _WAITING),
    "unexplained/init": Rule(
        "", "the {status.label} of {status.pod} still runs, and the training starts after it",
        "Read its log: {command}", _WAITING),
    "unexplained/events": Rule(
        "", "the manager has not acted on the TrainJob, and the events that would show why cannot be read",
        "Get permission to list events in namespace {job.namespace}.", _WAITING),
}
"""The rules, by the cause or the cause and a word for the variant."""

REMEDIES: Final[dict[str, str]] = {
    # Pods that a ResourceQuota with scopes refuses.
    "scopes": "The quota counts only pods of the scope {scopes}: change what puts the pods into it, or: {other}",
    # A container that cannot be created.
    "driver": "Check the GPU driver and the NVIDIA Container Toolkit of the node {node}, or use another node.",
    "mount": "Correct the volume or the volumeMount that the message names, or check the storage of the node {node}.",
    "directory": "Correct workingDir in the runtime, or use an image that contains this directory for the container's "
        "user.",
    "no-images": "Set spec.trainer.command to the program of the image, and install what it needs on this machine, or "
        "use a local cluster without --run-processes, which simulates the pods.",
    "no-containers": "Use a cluster that runs containers, or a local cluster without --run-processes, which simulates "
        "the pods.",
    "no-command": "Set spec.trainer.command: neither the TrainJob, the runtime nor the image names a program.",
    "low-memory": "Raise the memory in spec.trainer.resourcesPerNode: with this limit, the container cannot even "
        "start.",
    "full-disk": "Free disk space on the node {node}, or use another node; the kubelet tries again by itself.",
    "slow-node": "Check the load and the disk of the node {node}: its container runtime is slow. The kubelet tries "
        "again by itself.",
    "setting": "Correct the setting that the message names, in the TrainJob or its runtime.",
    # A container that used too much memory: the container of the training, or another one.
    "memory": "Raise the memory in spec.trainer.resourcesPerNode, or use less: a smaller batch, fewer data workers.",
    "other-memory": "Raise the memory limit of the container {name} in the runtime, or in the LimitRange that sets its "
        "default: spec.trainer.resourcesPerNode is not for this container.",
    # A container that failed. The text about the signal or the output comes first.
    "read-log": "Read its log: {command}",
    "silent": "It wrote nothing. Let the command of the next attempt say what it does, such as sh -x for a shell, or "
        "PYTHONFAULTHANDLER=1 in spec.trainer.env for a crash of Python.",
    "pod-removed": "The pod is removed, and its log with it. {keep}",
    "bus-error": "Usually the shared memory is full: mount an emptyDir with medium: Memory at /dev/shm, or use fewer "
        "data workers. ",
    "instruction": "The program uses instructions that the CPU of the node {node} lacks: use an image that is built "
        "for it, or other nodes. ",
    "terminated": "SIGTERM asks a program to end: look for the program that sent it, such as a launcher with a "
        "timeout, or the shutdown of the node {node}. ",
    "segmentation-fault": "To see where a Python program crashes, set PYTHONFAULTHANDLER=1 in spec.trainer.env. ",
    # A TrainJob, JobSet or Job that failed.
    "read-logs": "Read the logs: trainerctl logs {job.name} -n {job.namespace}{step} --all.",
    "pods-removed": "The failed pods were removed, and their logs with them. {keep}",
    "pods-unread": "Get permission to list pods, and read the logs of the failed ones (kubectl logs POD -n "
        "{job.namespace}). {keep}",
    "keep": "If the platform stores the logs of containers, search this store for the namespace {namespace} and pods "
        "whose names begin with {pods}. "
        "Before the next attempt, choose what to keep: with restartPolicy: Never in the runtime's pod template, failed "
        "pods remain with their logs; with the manager's flag --feature-gates=FailureEvidence=true and its role "
        "(kubectl apply --server-side -k config/failure-evidence), an event says how a container ended, and with "
        "terminationMessagePolicy: FallbackToLogsOnError in the runtime, this event contains the end of the log.",
    # A pod without a node. The text follows "or".
    "add-nodes": "add nodes",
    "add-a-node": "add a node that is large enough",
    "devices": "check the names of the devices, and that their device plugin runs on a node",
    "local-gpus": "replace the local cluster and its objects: trainerctl cluster up --recreate --name {local} --gpus N",
    "local-nodes": "replace the local cluster and its objects: trainerctl cluster up --recreate --name {local} --nodes "
        "N",
    "scaling": "Wait for the node. If it does not come: {other}",
    # A TrainJob that waits in a queue of Kueue.
    "lower": "Lower spec.trainer.numNodes or resourcesPerNode, or ask the administrator for a larger quota{lacks}.",
    "wait": "Wait for quota of the queue, or ask its administrator{lacks}.",
    "quota-of": "Ask the administrator of the queue for a quota of {name}, or do not request it.",
    "flavors": "Correct nodeSelector, affinity and tolerations of the pods to match a flavor of the queue.",
    "kueue": "Check that Kueue runs, and that its configuration lists trainer.kubeflow.org/trainjob.",
    "workloads-unread": "Get permission to list Workloads in namespace {job.namespace}: they show the reason.",
}
"""The remedies of rules whose remedy is ``{remedy}`` or contains ``{add}``: they depend on more than the cause."""
# fmt: on


def remedy(variant: str, /, **named: object) -> str:
    """Return the text of a remedy."""
    return REMEDIES[variant].format_map(named)


def keep(namespace: str, pods: str) -> str:
    """Return what to do after a failure of which no log is left. The names of the pods begin with ``pods``.

    The text must not name a command that leads back to it.
    """
    return remedy("keep", namespace=namespace, pods=pods)


CAUSES: Final[dict[str, str]] = {cause: rule.meaning for cause, rule in RULES.items() if rule.meaning}
"""What each cause means."""
