# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError


async def test_a_cron_jobs_run_is_a_group(make_object: Any, make_pod: Any, group: Any) -> None:
    cron_job = make_object("batch/v1", "CronJob", "nightly", labels={"from": "cron-job"})
    job = make_object("batch/v1", "Job", "nightly-1", cron_job, labels={"from": "job"})

    metadata = await group(make_pod("nightly-1-a", job), cron_job, job)

    assert (metadata.name, metadata.labels) == ("pg-nightly-1-uid-nightly-1", {"from": "job"})


async def test_a_pod_right_below_a_cron_job_is_refused(make_object: Any, make_pod: Any, group: Any) -> None:
    cron_job = make_object("batch/v1", "CronJob", "nightly")

    with pytest.raises(GroupingError, match="no owner reference of type 'Job'"):
        await group(make_pod("p", cron_job), cron_job)
