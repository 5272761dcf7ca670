# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any


async def test_pods_of_a_runai_job_share_a_group_by_name_without_the_last_part(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("run.ai/v1", "RunaiJob", "j")

    names = [(await group(make_pod(name, job), job)).name for name in ("j-0-a", "j-0-b", "j")]

    assert names == ["pg-j-0-uid-j", "pg-j-0-uid-j", "pg-j-uid-j"]
