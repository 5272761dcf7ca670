# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that JobSet cannot create, and pods that Jobs cannot create, because the API server refuses them.

While there is an event with the API server's text, :mod:`admission` reads it. Otherwise the text comes from a dry run.
If no dry run of the Jobs is possible, the pod templates are checked for common mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pydantic_core
from controller_runtime.machinery import JSON

from pkg.apis.jobset.labels import JOB_SET_NAME_KEY
from pkg.why import kinds
from pkg.why.causes import admission, refusals
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, at, maps, text
from pkg.why.snapshot import COMPLETION_INDEX, PATIENCE, Snapshot, finished


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each reason why the API server refuses Jobs or pods."""
    job_set = snapshot.job_set
    for job in podless(snapshot):
        pod = text(pod_of(job), "metadata", "name")
        if message := (snapshot.refused or {}).get(pod):
            count = snapshot.missing_pods(job)
            lacks = f"{job} lacks {count} pod{'s' if count > 1 else ''}"
            yield admission.with_rules(
                snapshot, job, message, lacks, f"a dry run of the Pod {pod}: {message}"
            )
    if job_set is None or not lacks_jobs(snapshot):
        return
    if snapshot.refused is not None:
        for name, message in snapshot.refused.items():
            tried = f"a dry run of the Job {name}: {message}"
            yield refusals.refused(message, job_set, f"{job_set} has no Jobs", tried)
        return
    from pkg.util import podtemplate  # slow to load

    for each in podtemplate.violations(_typed(job_set)):
        yield found("object-invalid", job_set, f"{job_set} has no Jobs", words=each.sentence)


def lacks_jobs(snapshot: Snapshot) -> bool:
    """Return True if the JobSet should have Jobs, has none, and no event of JobSet gives the reason."""
    job_set = snapshot.job_set
    if job_set is None or finished(job_set) or job_set.deleted is not None:
        return False
    if job_set.at("spec", "suspend") is True or snapshot.events(job_set, "JobCreationFailed"):
        return False
    return admission.lacks_jobs(snapshot)


def podless(snapshot: Snapshot) -> list[LiveObject]:
    """Return the Jobs that have lacked pods for some time, although no recent event gives the reason."""
    if kinds.POD in snapshot.unread:
        return []
    return [
        job
        for job in snapshot.jobs
        if snapshot.missing_pods(job)
        and job.older_than(PATIENCE, snapshot.now)
        and snapshot.spec_is_settled(job)
        and not admission.refused_pods(snapshot, job)
    ]


def pod_of(job: LiveObject) -> dict[str, JSON]:
    """Return a pod of a Job for a dry run. It has the first completion index, so that no leader has to exist before."""
    template = job.at("spec", "template")
    metadata = {
        "name": f"{job.name}-0-00000",
        "namespace": job.namespace,
        "labels": at(template, "metadata", "labels") or {},
        "annotations": {**(at(template, "metadata", "annotations") or {}), COMPLETION_INDEX: "0"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": at(template, "spec") or {}}


def jobs_of(job_set: LiveObject) -> Iterator[dict[str, JSON]]:
    """Yield the first Job of each replicated job, as JobSet would create it."""
    for replicated in maps(_typed(job_set), "spec", "replicatedJobs"):
        template = at(replicated, "template") or {}
        spec = dict(at(template, "spec") or {})
        pod = {"restartPolicy": "OnFailure", **(at(spec, "template", "spec") or {})}  # JobSet's default
        if job_set.at("spec", "network", "enableDNSHostnames") is not False:
            pod["subdomain"] = job_set.text("spec", "network", "subdomain") or job_set.name
        spec.setdefault("completionMode", "Indexed")  # JobSet's default
        spec["template"] = {**(at(spec, "template") or {}), "spec": pod}
        labels = {**(at(template, "metadata", "labels") or {}), JOB_SET_NAME_KEY: job_set.name}
        metadata = {
            "name": f"{job_set.name}-{text(replicated, 'name')}-0",
            "namespace": job_set.namespace,
            "labels": labels,
            "annotations": at(template, "metadata", "annotations") or {},
        }
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _typed(job_set: LiveObject) -> dict[str, JSON]:
    """Return the JobSet's JSON, or nothing if a field has a type that the API server does not store."""
    from pkg.apis.jobset.v1alpha2 import JobSet  # slow to load

    try:
        return JobSet.from_dict(dict(job_set.data)).to_dict()
    except pydantic_core.ValidationError:
        return {}
