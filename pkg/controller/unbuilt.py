# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The order of work after a start: TrainJobs without a JobSet come first."""

from __future__ import annotations

from controller_runtime import cache, source
from controller_runtime.machinery import NamespacedName

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob


def unbuilt_first(informers: source.Informers) -> source.Expedited:
    """Return the source that moves TrainJobs without a JobSet to the front of the queue.

    They were created while no manager ran; most of the others need no work. No object is decoded: a JobSet has its
    TrainJob's name.
    """
    return source.Expedited(informers, TrainJob, _lacks_job_set, JobSet, name="TrainJobs without a JobSet")


def _lacks_job_set(_jobs: cache.Informer[TrainJob], sets: cache.Informer[JobSet]) -> source.NeedsWork:
    async def lacks(key: NamespacedName) -> bool:
        return not sets.has(key)

    return lacks
