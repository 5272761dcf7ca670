# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are not ready. They are found without reading pods, by the numbers of Jobs in the JobSet's status."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from controller_runtime.machinery import JSON

from pkg.why import kinds
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import LiveObject, ago, number, text
from pkg.why.snapshot import PATIENCE, Snapshot, finished


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each step whose Jobs are not ready. If pods can be read, yield nothing: pods show more."""
    job_set = snapshot.job_set
    if kinds.POD not in snapshot.unread or job_set is None or finished(job_set):
        return
    if job_set.at("spec", "suspend") is True or not job_set.older_than(PATIENCE, snapshot.now):
        return
    counts = {text(each, "name"): each for each in job_set.maps("status", "replicatedJobsStatus")}
    if not counts and kinds.JOB in snapshot.unread:
        line = f"{job_set} is {ago(job_set.created, snapshot.now)} old and has no status"
        found = silent(job_set, line)
        if kinds.EVENT in snapshot.unread:  # the API server may refuse the Jobs, which only events show
            found = dataclasses.replace(found, summary="the controller of JobSet has created no Jobs")
        yield found
        return
    for step in job_set.maps("spec", "replicatedJobs"):
        count = counts.get(text(step, "name"))
        if count is not None and not _is_ready(step, count) and not _waits_for_turn(job_set, step, count):
            yield _not_ready(job_set, step, count)


def silent(job_set: LiveObject, *evidence: str | None, to: str = "") -> Finding:
    """Return the finding that JobSet's controller does not react. ``evidence`` may contain None, which is ignored."""
    return Finding(
        "jobset-controller",
        f"the controller of JobSet does not react{to}",
        (str(job_set),),
        tuple(filter(None, evidence)),
        "Check the Deployment jobset-controller-manager in the namespace jobset-system, and its log.",
    )


def _is_ready(step: JSON, count: JSON) -> bool:
    return number(count, "ready") + number(count, "succeeded") >= _replicas(step)


def _waits_for_turn(job_set: LiveObject, step: JSON, count: JSON) -> bool:
    """Return True if JobSet lets the Jobs of a step wait for another step."""
    if isinstance(step, dict) and step.get("dependsOn") and not number(count, "active"):
        return True
    in_order = job_set.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    return in_order and number(count, "suspended") > 0


def _not_ready(job_set: LiveObject, step: JSON, count: JSON) -> Finding:
    name, ready = text(step, "name"), number(count, "ready") + number(count, "succeeded")
    states = ", ".join(f"{number(count, state)} {state}" for state in ("active", "failed", "suspended"))
    evidence = [f"{ready} of {_replicas(step)} Jobs of step {name} are ready; {states}"]
    if restarts := job_set.number("status", "restarts"):
        evidence.append(f"{job_set} was restarted {restarts} times")
    if number(count, "suspended"):
        cause, summary = "child-suspended", f"the Jobs of step {name} are suspended, and the TrainJob is not"
        advice = "Find the program that suspends the Jobs, such as a queueing system; it must resume them."
    elif number(count, "active"):
        cause, summary = (
            "not-ready",
            f"the pods of step {name} are not ready ({ready} of {_replicas(step)} Jobs)",
        )
        advice = "Get permission to list pods: their states and events show the reason."
    else:
        cause, summary = "pods-missing", f"the Jobs of step {name} have no pods"
        advice = (
            "See the events of the Jobs: the pods may be refused because of a quota, a policy or a missing service "
            "account."
        )
    return Finding(cause, summary, (str(job_set),), tuple(evidence), advice, Severity.WAITING)


def _replicas(step: JSON) -> int:
    found = step.get("replicas") if isinstance(step, dict) else None
    return found if isinstance(found, int) else 1
