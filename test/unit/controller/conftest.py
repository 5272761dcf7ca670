# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the controllers' tests: a TrainJob, its wanted JobSet, and a stub of a runtime that returns it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from controller_runtime.client import Reader
from controller_runtime.machinery import Object
from controller_runtime.machinery.field import ErrorList

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.runtime.interface import Runtime
from testkit.trainjobs import Bench, MakeBench


@dataclass
class StubRuntime(Runtime):
    """A stub that builds one JobSet from the test's values, and copies the conditions of the stored JobSet."""

    client: Reader
    pod: dict[str, Any] = field(default_factory=dict)
    image: str = "one"
    error: Exception | None = None
    status_error: Exception | None = None
    asked: int = 0

    async def new_objects(self, train_job: TrainJob) -> list[Object]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [make_job_set(train_job, self.image, self.pod)]

    async def require(self, train_job: TrainJob) -> None:
        del train_job

    async def train_job_status(self, train_job: TrainJob) -> TrainJobStatus | None:
        if self.status_error is not None:
            raise self.status_error
        job_set = await self.client.get(JobSet, train_job.key)
        status = train_job.status.deep_copy()
        for found in job_set.status.conditions or ():
            renamed = found.model_copy(update={"type": {"Completed": "Complete"}.get(found.type, found.type)})
            kept = [each for each in status.conditions or [] if each.type != renamed.type]
            status.conditions = [*kept, renamed]
        return status

    def runtime_info(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError

    def event_handler_registrars(self) -> list[Any]:
        return []

    async def validate_objects(self, old: TrainJob | None, new: TrainJob) -> tuple[list[str], ErrorList]:
        del old, new
        return [], ErrorList()


def make_job_set(train_job: TrainJob, image: str, pod: dict[str, Any]) -> JobSet:
    template = {"spec": {"containers": [{"name": "node", "image": image}], **pod}}
    return JobSet.from_dict(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {
                "name": train_job.name,
                "namespace": train_job.namespace,
                "ownerReferences": [
                    {
                        "apiVersion": "trainer.kubeflow.org/v1alpha1",
                        "kind": "TrainJob",
                        "name": train_job.name,
                        "uid": train_job.metadata.uid,
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {
                "suspend": bool(train_job.spec.suspend),
                "replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}],
            },
        }
    )


@dataclass
class StubRecorder:
    """Records the events."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        del obj
        self.events.append((event_type, reason, message))


@pytest.fixture
def make_runtime() -> type[StubRuntime]:
    return StubRuntime


@pytest.fixture
def recorder() -> StubRecorder:
    return StubRecorder()


@pytest.fixture
def new_train_job() -> Callable[..., TrainJob]:
    def make(*, name: str = "job", conditions: list[dict[str, str]] | None = None, **spec: Any) -> TrainJob:
        data: dict[str, Any] = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "ClusterTrainingRuntime",
                    "name": "torch",
                },
                **spec,
            },
        }
        if conditions:
            data["status"] = {"conditions": conditions}
        return TrainJob.from_dict(data)

    return make


@pytest.fixture
def bench(make_runtime: Callable[..., Any], recorder: Any) -> MakeBench:
    return lambda *objects, **runtime: Bench(make_runtime, recorder, *objects, **runtime)
