# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Adoption: a TrainJob becomes the controller of a JobSet that lost its own and that only a TrainJob can have built."""

from __future__ import annotations

from controller_runtime import client, log
from controller_runtime.machinery.errors import InvalidError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import Runtime
from pkg.util import trainjob

from . import objects, patches
from .jobsetrule import JobSetRule
from .pending import PendingError


def is_orphan_of_ours(job_set: JobSet) -> bool:
    """Return True if the JobSet has no controller and its jobs have the ancestor-step label."""
    if trainjob.controller_of(job_set) is not None:
        return False
    metadata = [job.template.metadata for job in job_set.spec.replicated_jobs or ()]
    return any(each and constants.LABEL_TRAIN_JOB_ANCESTOR in (each.labels or {}) for each in metadata)


async def adopt(
    writer: client.Writer, live_reader: client.Reader, runtime: Runtime, train_job: TrainJob, live: JobSet
) -> JobSet:
    """Become the controller of an orphan of ours. If it runs or has ended, its spec must match the TrainJob.

    Raises:
        ChildConflictError: it runs, or has ended, with another spec. Its end must not become the TrainJob's.
        PendingError: the TrainJob is being deleted, or another writer changed the JobSet's owners.
    """
    job_set, _ = await objects.desired(runtime, train_job)
    rule = JobSetRule(live.to_dict())
    follows = rule.suspended and not rule.ended
    if job_set is None or not (follows or rule.holds(job_set.to_dict())):
        trainjob.require_control(live, trainjob.controller_reference(train_job))
    # The cache may lag behind a deletion of the TrainJob, which would then delete the JobSet too.
    owner = await live_reader.get(TrainJob, train_job.key)
    if owner.metadata.uid != train_job.metadata.uid or owner.metadata.deletion_timestamp is not None:
        raise PendingError(f"trainjob {train_job.key}: it is being deleted")
    owners = [*(live.metadata.owner_references or ()), trainjob.controller_reference(train_job)]
    log.logger_from().info("Adopting the JobSet", jobSet=str(live.key))
    try:
        return await writer.patch(live, patches.replace_owners(live, owners))
    except InvalidError as error:
        if not patches.is_stale(error):
            raise
        raise PendingError("another writer changed the owners of the JobSet meanwhile") from error
