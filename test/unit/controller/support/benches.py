# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A reconciler of TrainJobs over an in-memory server."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from controller_runtime.apis.machinery.object import Object
from controller_runtime.client.fake import Call, FakeClient
from controller_runtime.reconcile import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from pkg.util.testing import make_ended_status

NOW = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
KEY = Request("ns", "job")
MakeJob = Callable[..., TrainJob]


class Bench:
    """A reconciler over an in-memory server."""

    def __init__(
        self, make_runtime: Callable[..., Any], recorder: Any, *objects: Object, **runtime: Any
    ) -> None:
        self.client = FakeClient(*objects)
        self.recorder = recorder
        self.runtime = make_runtime(client=self.client, **runtime)
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is remembered."""
        runtimes = {"ClusterTrainingRuntime.trainer.kubeflow.org": self.runtime}
        self.reconciler = TrainJobReconciler(self.client, self.recorder, runtimes, now=lambda: NOW)

    async def reconcile(self, key: Request = KEY) -> list[Call]:
        """Reconcile once; return the writes."""
        before = len(self.client.writes)
        self.result = await self.reconciler.reconcile(key)
        return self.client.writes[before:]

    async def train_job(self) -> TrainJob:
        return await self.client.get(TrainJob, KEY)

    async def job_set(self) -> JobSet:
        return await self.client.get(JobSet, KEY)

    async def conditions(self) -> dict[str, tuple[str, str]]:
        job = await self.train_job()
        return {each.type: (each.status, each.reason) for each in job.status.conditions or ()}

    async def finish(self, condition: str) -> None:
        """End the JobSet as the JobSet controller does."""
        job_set = await self.job_set()
        job_set.status = make_ended_status(condition)
        await self.client.status.update(job_set)


MakeBench = Callable[..., Bench]


def kinds(calls: list[Call]) -> list[tuple[str, str]]:
    return [(f"{call.verb}/{call.subresource}".rstrip("/"), call.kind.kind) for call in calls]
