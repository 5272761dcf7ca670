# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects to which a TrainJob, its templates and its pods refer by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from controller_runtime.machinery import JSON

from pkg.why import kinds
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, at, maps, text
from pkg.why.snapshot import PATIENCE, Reference, Snapshot, finished

_MISSING: Final = {
    "Secret": "secret-missing",
    "ConfigMap": "config-map-missing",
    kinds.CLAIM: "claim-missing",
    "ResourceClaim.resource.k8s.io": "device-claim-missing",
    "ResourceClaimTemplate.resource.k8s.io": "device-claim-missing",
    "ServiceAccount": "service-account-missing",
    "PriorityClass.scheduling.k8s.io": "priority-class-missing",
    "RuntimeClass.node.k8s.io": "runtime-class-missing",
}
"""The rule for each kind to which pods refer."""
_NOT_FOUND: Final = re.compile(r'\b(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found')
_STEPS: Final = ("initContainers", "containers")


def runtime_of(train_job: LiveObject) -> Reference:
    """Return the reference of a TrainJob to its runtime."""
    ref = train_job.at("spec", "runtimeRef")
    group = text(ref, "apiGroup") or "trainer.kubeflow.org"
    kind = text(ref, "kind") or "ClusterTrainingRuntime"
    namespace = "" if kind.startswith("Cluster") else train_job.namespace
    return Reference(f"{kind}.{group}", namespace, text(ref, "name"))


def stored_runtime(snapshot: Snapshot) -> LiveObject | None:
    """Return the runtime of the TrainJob, or None if it was not found."""
    wanted = runtime_of(snapshot.train_job)
    return next((each for each in snapshot.all(wanted.kind) if each.name == wanted.name), None)


def runtime_of_other_kind(train_job: LiveObject) -> Reference:
    """Return a reference to the runtime that has the name in ``runtimeRef``, but the other kind."""
    wanted = runtime_of(train_job)
    kind = next(each for each in kinds.RUNTIMES if each != wanted.kind)
    return Reference(kind, "" if kind.startswith("Cluster") else train_job.namespace, wanted.name)


def references(snapshot: Snapshot) -> list[Reference]:
    """Return references to all objects that must exist so that the TrainJob can run."""
    job, job_set = snapshot.train_job, snapshot.job_set
    secrets = [job.text("spec", "initializer", part, "secretRef", "name") for part in ("dataset", "model")]
    referred = [runtime_of(job), *(Reference("Secret", job.namespace, name) for name in secrets if name)]
    templates = [template for _, template in _waiting(snapshot)]
    if job_set is not None and not finished(job_set):
        steps = job_set.maps("spec", "replicatedJobs")
        templates += [at(each, "template", "spec", "template", "spec") for each in steps]
    for template in templates:
        referred += _of_pod(template, job.namespace)
    return list(dict.fromkeys(referred))


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each missing object that keeps a Job or pod from starting.

    A missing headless service is also reported.
    """
    runtime = runtime_of(snapshot.train_job)
    if runtime in snapshot.absent and snapshot.manager_must_act:
        shown = [f"spec.runtimeRef names {runtime}", f"{runtime} was not found"]
        rule, other = "runtime-missing", runtime_of_other_kind(snapshot.train_job)
        if any(each.name == other.name for each in snapshot.all(other.kind)):
            rule = "runtime-missing/other-kind"
            shown.append(f"{other} exists")
        kind = other.kind.partition(".")[0]
        yield found(rule, snapshot.train_job, *shown, runtime=runtime, kind=kind)
    for subject, template in _waiting(snapshot):
        for reference in dict.fromkeys(_of_pod(template, snapshot.train_job.namespace)):
            if reference in snapshot.absent and reference.kind in _MISSING:
                refers = f"the pod template refers to {reference}"
                yield _missing(reference, subject, refers, f"{reference} was not found")
    yield from _service(snapshot)


def not_found(words: str, pod: LiveObject, *evidence: str) -> Finding | None:
    """Return a finding if the kubelet's message says that a Secret or ConfigMap of the pod does not exist."""
    if (match := _NOT_FOUND.search(words)) is None:
        return None
    kind = "Secret" if match["kind"] == "secret" else "ConfigMap"
    return _missing(Reference(kind, pod.namespace, match["name"]), pod, *evidence)


def _missing(reference: Reference, subject: LiveObject, *evidence: str) -> Finding:
    rule, name, namespace = _MISSING[reference.kind], reference.name, reference.namespace
    return found(rule, subject, *evidence, reference=reference, name=name, namespace=namespace)


def _service(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if pods exist, but the headless service for their host names does not.

    JobSet creates this service.
    """
    job_set = snapshot.job_set
    if job_set is None or finished(job_set) or not snapshot.pods or kinds.SERVICE in snapshot.unread:
        return
    if job_set.at("spec", "network", "enableDNSHostnames") is False or not job_set.older_than(
        PATIENCE, snapshot.now
    ):
        return
    name = job_set.text("spec", "network", "subdomain") or job_set.name
    if not any(pod.text("spec", "subdomain") == name for pod in snapshot.pods):
        return
    if any(service.name == name for service in snapshot.all(kinds.SERVICE)):
        return
    shown = (f"spec.subdomain of the pods is {name}", f"Service {name} was not found")
    yield found("service-missing", job_set, *shown, name=name)


def _waiting(snapshot: Snapshot) -> Iterator[tuple[LiveObject, JSON]]:
    """Yield each Job that lacks pods and each pod that has not started, together with its pod spec."""
    for job in snapshot.jobs:
        if snapshot.missing_pods(job):
            yield job, job.at("spec", "template", "spec")
    for pod in snapshot.pods:
        if pod.text("status", "phase") in ("", "Pending"):
            yield pod, pod.at("spec")


def _of_pod(spec: JSON, namespace: str) -> Iterator[Reference]:
    for field, kind in (
        ("serviceAccountName", "ServiceAccount"),
        ("priorityClassName", "PriorityClass.scheduling.k8s.io"),
        ("runtimeClassName", "RuntimeClass.node.k8s.io"),
    ):
        if name := text(spec, field):
            yield Reference(kind, namespace if "." not in kind else "", name)
    for claim in maps(spec, "resourceClaims"):
        for field, kind in (
            ("resourceClaimName", "ResourceClaim"),
            ("resourceClaimTemplateName", "ResourceClaimTemplate"),
        ):
            if name := text(claim, field):
                yield Reference(f"{kind}.resource.k8s.io", namespace, name)
    for kind, source, field in _sources(spec):
        if (name := text(source, field)) and at(source, "optional") is not True:
            yield Reference(kind, namespace, name)


def _sources(spec: JSON) -> Iterator[tuple[str, JSON, str]]:
    """Yield the places in a pod spec that may refer to a Secret, ConfigMap or claim.

    Each item is the kind, the part of the spec, and the field of the part that contains the name.
    """
    for volume in maps(spec, "volumes"):
        yield "Secret", at(volume, "secret"), "secretName"
        yield "ConfigMap", at(volume, "configMap"), "name"
        yield kinds.CLAIM, at(volume, "persistentVolumeClaim"), "claimName"
        for part in maps(volume, "projected", "sources"):
            yield "Secret", at(part, "secret"), "name"
            yield "ConfigMap", at(part, "configMap"), "name"
    for container in (each for step in _STEPS for each in maps(spec, step)):
        for part in maps(container, "envFrom"):
            yield "Secret", at(part, "secretRef"), "name"
            yield "ConfigMap", at(part, "configMapRef"), "name"
        for variable in maps(container, "env"):
            yield "Secret", at(variable, "valueFrom", "secretKeyRef"), "name"
            yield "ConfigMap", at(variable, "valueFrom", "configMapKeyRef"), "name"
