# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that are not supposed to run: suspended, managed by another controller, or being deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.apis.jobset.v1alpha2 import REPLICATED_JOB_NAME_KEY
from pkg.constants.trainer import FIELD_OWNER, TRAIN_JOB_CONTROLLER_NAME
from pkg.why import kinds
from pkg.why.causes.queues import QUEUE_LABEL
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import LiveObject, ago, at, finalizers_of, moment, text, texts
from pkg.why.snapshot import PATIENCE, Snapshot, condition_line, finished

_OURS: Final = (
    "",
    TRAIN_JOB_CONTROLLER_NAME,
    "jobset.sigs.k8s.io/jobset-controller",
    "kubernetes.io/job-controller",
)

_LATE: Final = timedelta(seconds=60)
"""On a node that works, a pod is deleted within this time after its grace period has ended."""
_MOST_PODS: Final = 3

_CONTROLLERS: Final = {"TrainJob": "Trainer", "JobSet": "JobSet controller", "Job": "Job controller"}


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings if the TrainJob is suspended or managed by another controller.

    Also yield findings if a child is suspended, or if the deletion of a child takes long.
    """
    job = snapshot.train_job
    yield from _managed(snapshot)
    if job.at("spec", "suspend") is True:
        if _just_admitted(snapshot):
            return
        by_whom = writer(job, "f:suspend")
        by = f" by {by_whom}" if by_whom else ""
        advice = f"Resume it: trainerctl resume {job.name} -n {job.namespace}"
        if job.label(QUEUE_LABEL):
            advice = "Kueue resumes the TrainJob when it admits it. If you resume it earlier, Kueue suspends it again."
        yield Finding(
            "suspended",
            f"the TrainJob was suspended{by}",
            (str(job),),
            ("spec.suspend is true", *([f"the field manager {by_whom} set spec.suspend"] if by_whom else [])),
            advice,
            Severity.WAITING,
        )
    else:
        yield from _children(snapshot)
    yield from _deleted_child(snapshot)


def _managed(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if another controller manages the TrainJob, JobSet or a Job."""
    for obj in snapshot.owners:
        manager = obj.text("spec", "managedBy")
        if manager in _OURS or finished(obj):
            continue
        yield Finding(
            "managed-by",
            f"the controller {manager} manages the {obj.kind}, not this cluster's {_CONTROLLERS[obj.kind]}",
            (str(obj),),
            (f"spec.managedBy of {obj} is {manager}",),
            f"Look at {manager}; with MultiKueue the {obj.kind} runs in another cluster.",
            Severity.WAITING,
        )
        return


def _just_admitted(snapshot: Snapshot) -> bool:
    """Return True if Kueue has just admitted the TrainJob. It may not have had time to resume it."""
    for workload in snapshot.children(kinds.WORKLOAD, [snapshot.train_job]):
        since = moment(workload.condition("Admitted"), "lastTransitionTime")
        if workload.is_true("Admitted") and not workload.is_true("Evicted") and since is not None:
            return snapshot.now - since < PATIENCE
    return False


def find_deletion(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding on why the TrainJob still exists although it is being deleted."""
    job = snapshot.train_job
    if job.deleted is None:
        return
    chain = [*snapshot.owners, *snapshot.all_pods]
    held = [(each, texts(each.data, "metadata", "finalizers")) for each in chain]
    evidence = [f"deletion was requested {ago(job.deleted, snapshot.now)} ago"]
    evidence += [f"{each} has the finalizers {', '.join(found)}" for each, found in held if found]
    foreign = [(each, name) for each, found in held for name in found if not _is_kubernetes(name)]
    if foreign:
        each, name = foreign[0]
        summary = f"the TrainJob is being deleted; the finalizer {name} of {each} delays the deletion"
        advice = f"The controller that set {name} must remove it; if that is uninstalled, remove the finalizer by hand."
    elif stuck := [pod for pod in snapshot.all_pods if _outlives_its_grace(snapshot, pod)]:
        yield _of_pods(snapshot, stuck, evidence)
        return
    else:
        summary = "the TrainJob is being deleted; its children are deleted first"
        advice = "Wait until the children are deleted; pods end after their termination grace period."
    subjects = tuple(str(each) for each, _ in foreign) or (str(job),)
    yield Finding("deletion-blocked", summary, subjects, tuple(evidence), advice, Severity.WAITING)


def _outlives_its_grace(snapshot: Snapshot, pod: LiveObject) -> bool:
    """Return True if a pod should have ended by now. Its grace period ends at its deletion timestamp."""
    return pod.deleted is not None and snapshot.now - pod.deleted > _LATE


def _of_pods(snapshot: Snapshot, pods: list[LiveObject], evidence: list[str]) -> Finding:
    """Return the finding that pods delay the deletion.

    If nodes of these pods are not ready, the finding names such a node as the reason.
    """
    names = {pod.text("spec", "nodeName") for pod in pods}
    lost = [
        node
        for node in snapshot.all(kinds.NODE)
        if node.name in names and node.condition("Ready").get("status") != "True"
    ]
    summary = f"the TrainJob is being deleted; {pods[0]} has not ended in its grace period"
    advice = (
        f"Check the kubelet of node {pods[0].text('spec', 'nodeName')}; kubectl delete pod --force deletes a pod "
        "without waiting for it."
    )
    if lost:
        summary = f"the TrainJob is being deleted; its pods on the node {lost[0].name}, which is not ready, cannot end"
        advice = f"Repair the node {lost[0].name}, or delete it, so that its pods are deleted."
    lines = [
        *evidence,
        *(
            f"the grace period of {pod} ended {ago(pod.deleted, snapshot.now)} ago"
            for pod in pods[:_MOST_PODS]
        ),
        *(condition_line(node, "Ready") for node in lost[:_MOST_PODS]),
    ]
    subjects = tuple(map(str, pods))
    return Finding("deletion-blocked", summary, subjects, tuple(lines), advice, Severity.WAITING)


def _children(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if a JobSet or Job is still suspended although it should run.

    Controllers need some time to react. New objects are therefore ignored, and shortly after a change of the TrainJob's
    spec all objects are ignored.
    """
    for child in snapshot.owners[1:]:
        if (
            child.at("spec", "suspend") is not True
            or finished(child)
            or _awaits_turn(snapshot.job_set, child)
        ):
            continue
        by_whom = writer(child, "f:suspend")
        if by_whom in ("", FIELD_OWNER) and child is snapshot.job_set:
            return  # the manager resumes it
        if not child.older_than(PATIENCE, snapshot.now) or not snapshot.spec_is_settled(snapshot.train_job):
            continue
        by = f"; the field manager {by_whom} set it" if by_whom else ""
        yield Finding(
            "child-suspended",
            f"the {child.kind} {child.name} is suspended, and the TrainJob is not",
            (str(child),),
            (f"spec.suspend of {child} is true{by}",),
            f"Find the program that suspends the {child.kind}, such as a queueing system; it must resume it.",
            Severity.WAITING,
        )
        return


def _awaits_turn(job_set: LiveObject | None, child: LiveObject) -> bool:
    """Return True if JobSet itself keeps the Job suspended until earlier Jobs have started or ended."""
    if job_set is None or child is job_set or job_set.at("spec", "suspend") is True:
        return False
    if job_set.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder":
        return True
    steps = {text(each, "name"): each for each in job_set.maps("spec", "replicatedJobs")}
    return bool(at(steps.get(child.label(REPLICATED_JOB_NAME_KEY)), "dependsOn"))


def _deleted_child(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the deletion of a JobSet, Job or pod takes long.

    Until it is deleted, it cannot be created again.
    """
    for child in (*snapshot.owners[1:], *snapshot.pods):
        if not snapshot.is_overdue(child) or finished(snapshot.train_job):
            continue
        evidence = (
            f"deletion of {child} was requested {ago(child.deletion_requested, snapshot.now)} ago",
            finalizers_of(child),
        )
        summary = f"the {child.kind} {child.name} is being deleted and still exists"
        advice = "Look for pods that do not end and for finalizers; it is created again once it is deleted."
        yield Finding("deletion-blocked", summary, (str(child),), evidence, advice, Severity.WAITING)
        return


def writer(obj: LiveObject, field: str) -> str:
    """Return the field manager that last wrote a field of the spec, or an empty string."""
    owners = [
        each
        for each in obj.maps("metadata", "managedFields")
        if at(each, "fieldsV1", "f:spec", field) is not None
    ]
    newest = max(owners, key=lambda each: text(each, "time"), default={})
    return text(newest, "manager")


def _is_kubernetes(finalizer: str) -> bool:
    return finalizer in ("foregroundDeletion", "orphan") or finalizer.startswith("batch.kubernetes.io/")


def terminating(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the namespace is being deleted."""
    for namespace in snapshot.all(kinds.NAMESPACE):
        if (
            namespace.text("status", "phase") == "Terminating"
            and namespace.name == snapshot.train_job.namespace
        ):
            yield Finding(
                "namespace-terminating",
                f"the namespace {namespace.name} is being deleted",
                (str(namespace),),
                (f"phase of {namespace} is Terminating",),
                "Create the TrainJob in another namespace.",
            )
