# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper import Settings


async def test_each_pod_of_a_job_is_a_group_of_the_job(make_object: Any, make_pod: Any, group: Any) -> None:
    job = make_object("batch/v1", "Job", "j", spec={"parallelism": 2})

    metadata = await group(make_pod("j-a", job), job)

    assert (metadata.name, metadata.owner.name, metadata.min_available) == ("pg-j-a-uid-j", "j", 1)


@pytest.mark.parametrize(
    ("parallelism", "legacy"),
    [(1, "pg-j-uid-j"), (2, "pg-j-a-uid-j"), ("2", "pg-j-uid-j"), (None, "pg-j-uid-j")],
)
@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [("batch/v1", "Job", "pg-j-a-uid-j"), ("run.ai/v1", "RunaiJob", "pg-j-uid-j")],
)
async def test_a_group_of_an_older_release_is_kept_where_that_is_asked(
    api_version: str,
    kind: str,
    name: str,
    parallelism: Any,
    legacy: str,
    make_object: Any,
    make_pod: Any,
    make_pod_group: Any,
    group: Any,
) -> None:
    job = make_object(api_version, kind, "j", spec={"parallelism": parallelism})
    pod = make_pod("j-a", job)

    assert (await group(pod, job, make_pod_group(legacy))).name == legacy
    options = Settings(search_legacy_pod_groups=False)
    assert (await group(pod, job, make_pod_group(legacy), options=options)).name == name
