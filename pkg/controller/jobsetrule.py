# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSetRule: the part of a JobSet that may change in place, and the state of its Jobs."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import conditions

from pkg.apis.jobset.v1alpha2 import JOB_SET_COMPLETED, JOB_SET_FAILED, JobSet

from .drift import Wire, equal, without

_POD_METADATA: Final = frozenset({"labels", "annotations"})
_POD_SPEC: Final = frozenset({"nodeSelector", "tolerations", "schedulingGates"})
_ENDS: Final = frozenset({JOB_SET_COMPLETED, JOB_SET_FAILED})
_JOB_SET_SPEC: Final = frozenset({"suspend", "coordinator", "ttlSecondsAfterFinished"})


class JobSetRule:
    """The permitted changes of a live JobSet.

    JobSet lets ``suspend``, ``coordinator``, ``ttlSecondsAfterFinished`` and the scheduling of the pods of a
    suspended JobSet change. The rest is fixed: JobSet's webhook refuses a change, and without the webhook the
    existing Jobs do not follow it.
    """

    def __init__(self, live: Wire) -> None:
        self._live = live
        self._jobs: list[Wire] = live.get("status", {}).get("replicatedJobsStatus") or []
        self.suspended: bool = bool(live.get("spec", {}).get("suspend"))
        self.observed: bool = bool(self._jobs)
        """True if JobSet's controller has reconciled it, and so may have created Jobs."""
        self.ended: bool = any(
            each.get("type") in _ENDS and each.get("status") == "True"
            for each in live.get("status", {}).get("conditions") or ()
        )
        self.active: bool = any(job.get("active") or job.get("ready") for job in self._jobs)

    def holds(self, desired: Wire) -> bool:
        """Return True if the fixed part is as desired, as far as can be seen without a request."""
        return equal(_fixed(self._live), _fixed(desired))

    def keeps(self, answer: Wire) -> bool:
        """Return True if ``answer``, the server's preview of a change, has the same fixed part."""
        return _fixed(answer) == _fixed(self._live)

    def suspended_as_it_is(self, desired: Wire) -> Wire:
        """Return the apply configuration that suspends the live JobSet and keeps the rest of its spec."""
        return {**desired, "spec": {**self._live.get("spec", {}), "suspend": True}}


def ended(job_set: JobSet) -> bool:
    """Return True if the JobSet is Completed or Failed: its controller creates no more Jobs."""
    return any(conditions.is_true(job_set.status.conditions, each) for each in _ENDS)


def _fixed(job_set: Wire) -> Wire:
    spec = without(job_set.get("spec", {}), _JOB_SET_SPEC)
    return {**spec, "replicatedJobs": [_fixed_job(job) for job in spec.get("replicatedJobs") or ()]}


def _fixed_job(job: Wire) -> Wire:
    template = job.get("template", {})
    job_spec = template.get("spec", {})
    pod = job_spec.get("template", {})
    metadata, spec = (
        without(pod.get("metadata", {}), _POD_METADATA),
        without(pod.get("spec", {}), _POD_SPEC),
    )
    return {
        **job,
        "template": {
            **template,
            "spec": {**job_spec, "template": {**pod, "metadata": metadata, "spec": spec}},
        },
    }
