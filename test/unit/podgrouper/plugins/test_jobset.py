# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("depends_on", "job", "name", "needed"),
    [
        ([{"name": "init", "status": "Complete"}], "init", "pg-js-uid-js-init", 1),
        ([{"name": "init", "status": "Complete"}], "node", "pg-js-uid-js-node", 2),
        ([], "node", "pg-js-uid-js", 3),
    ],
)
async def test_a_dependency_between_replicated_jobs_makes_each_a_group(
    depends_on: list[Any], job: str, name: str, needed: int, make_object: Any, make_pod: Any, group: Any
) -> None:
    node = {"name": "node", "replicas": 2, "dependsOn": depends_on}
    spec = {"replicatedJobs": [{"name": "init"}, node], "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)

    metadata = await group(
        make_pod("p", job_set, labels={"jobset.sigs.k8s.io/replicatedjob-name": job}), job_set
    )

    assert (metadata.name, metadata.min_available) == (name, needed)
