# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any


async def test_each_pod_of_a_job_is_a_group_of_the_job(make_object: Any, make_pod: Any, group: Any) -> None:
    job = make_object("batch/v1", "Job", "j", spec={"parallelism": 2})

    metadata = await group(make_pod("j-a", job), job)

    assert (metadata.name, metadata.owner.name, metadata.min_available) == ("pg-j-a-uid-j", "j", 1)
