# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The limit that the API server sets: a bare loop creates each TrainJob and applies its JobSet at once.

No manager and no webhook take part. The JobSets are copies of one that the first manager applied.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from harness import api, objects
from harness.cluster import Cluster, empty
from harness.contest import Found
from harness.manager import started
from harness.plan import Entrant, Plan
from harness.steps import create

_APPLY: Final = "application/apply-patch+yaml"
_SAMPLE: Final = "sample-of-the-bench"


async def sample(plan: Plan, where: Cluster, entrant: Entrant) -> bytes:
    """Return the JobSet that a manager applies for a TrainJob, without the server's fields."""
    async with started(entrant, where) as manager:
        await create(plan, manager, [_SAMPLE])
        made: dict[str, Any] = await where.api.read(f"{objects.JOB_SETS}/{_SAMPLE}")
    kept = {key: value for key, value in made["metadata"].items() if key in ("name", "namespace", "labels")}
    made = {key: made[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": kept}
    return msgspec.json.encode(made)


async def burst(where: Cluster, counts: Sequence[int], job_set: bytes) -> Found:
    """Return the rates and latencies of bursts by the bare loop."""
    found = Found()
    await empty(where)
    for count in counts:
        jobs = objects.names(f"ceiling-{count}", count)
        created: dict[str, float] = {}

        async def put(job: str, created: dict[str, float] = created) -> None:
            await where.api.send("POST", objects.TRAIN_JOBS, objects.train_job(job))
            created[job] = time.perf_counter()
            body = job_set.replace(_SAMPLE.encode(), job.encode())
            query = {"fieldManager": "ceiling", "force": "true"}
            await where.api.send("PATCH", f"{objects.JOB_SETS}/{job}", body, content=_APPLY, query=query)

        async with where.api.watching(objects.JOB_SETS, jobs) as watch:
            begin = time.perf_counter()
            await api.each(jobs, put)
            seen = await watch.all()
        found.add(f"{objects.TORCH}.{count}.rate", count / (max(seen.values()) - begin), "TrainJobs/s")
        found.latencies(f"{objects.TORCH}.{count}", (seen[job] - created[job] for job in jobs))
    return found
