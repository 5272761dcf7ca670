# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The host names of the pods: the headless service that JobSet makes."""

from __future__ import annotations

from collections.abc import Iterator

from pkg.why import kinds
from pkg.why.finding import Finding
from pkg.why.snapshot import PATIENCE, Snapshot, finished


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a missing headless service of pods that exist."""
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
    yield Finding(
        "service-missing",
        f"the headless service {name} of the pods does not exist, so their host names do not resolve",
        (str(job_set),),
        (f"spec.subdomain of the pods is {name}", f"Service {name} was not found"),
        "Check the events of the JobSet and its controller, which makes the service.",
    )
