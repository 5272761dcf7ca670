# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The leases of the controllers. They show whether a replica of a controller is the leader."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pkg.why import kinds
from pkg.why.liveobject import LiveObject, ago, moment, seconds
from pkg.why.snapshot import Snapshot

MANAGER: Final = ("trainer.kubeflow.org",)
JOB_SET: Final = ("6d4f6a47.x-k8s.io", "6d4f6a47.jobset.x-k8s.io")
SCHEDULER: Final = ("kube-scheduler",)
JOB_CONTROLLER: Final = ("kube-controller-manager",)
NAMES: Final = (*MANAGER, *JOB_SET, *SCHEDULER, *JOB_CONTROLLER)

_SKEW: Final = timedelta(seconds=5)
_DURATION: Final = timedelta(seconds=15)


def no_leader(snapshot: Snapshot, names: tuple[str, ...]) -> str | None:
    """Return why no replica leads. Return None if a replica leads, or if no lease exists (no leader election)."""
    found = [each for each in snapshot.all(kinds.LEASE) if each.name in names]
    if not found or any(_is_current(snapshot, each) for each in found):
        return None
    lease = found[0]
    age = ago(moment(lease.data, "spec", "renewTime"), snapshot.now)
    if not lease.text("spec", "holderIdentity"):
        return f"no replica leads: the lease {lease.name} was released {age} ago"
    return f"no replica leads: the lease {lease.name} was last renewed {age} ago"


def _is_current(snapshot: Snapshot, lease: LiveObject) -> bool:
    renewed = moment(lease.data, "spec", "renewTime")
    if renewed is None:
        return True
    duration = seconds(lease.data, "spec", "leaseDurationSeconds") or _DURATION
    held = duration if lease.text("spec", "holderIdentity") else timedelta()
    return snapshot.now - renewed <= _SKEW + held
