# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import anyio
import pytest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver import DeniedError, PodOwners
from pkg.statusserver.tokens import BoundObject

POD = BoundObject("bert-node-0-0-x", "p")
CHAIN: tuple[tuple[type[Object], str, str], ...] = (
    (TrainJob, "bert", "t"),
    (JobSet, "bert", "j"),
    (Job, "bert-node-0", "b"),
    (Pod, POD.name, POD.uid),
)


def chain(**changed: Any) -> list[Object]:
    """Return a pod and its owners; ``changed`` has other owner references, by the owned object's lower-case kind."""
    found: list[Object] = []
    owner: dict[str, Any] | None = None
    for kind, name, uid in CHAIN:
        reference = changed.get(kind.gvk.kind.lower(), owner)
        references = [{**reference, "controller": True}] if reference else None
        metadata = {"namespace": "lab", "name": name, "uid": uid, "ownerReferences": references}
        found.append(kind.from_dict({"metadata": metadata}))
        owner = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "name": name, "uid": uid}
    return found


async def test_the_pod_of_a_train_job_may_update_it() -> None:
    cluster = FakeClient(*chain())
    await PodOwners(cluster, cluster).require("lab", "bert", POD)


@pytest.mark.parametrize(
    ("objects", "train_job", "pod"),
    [
        pytest.param(chain(), "bart", POD, id="of another TrainJob"),
        pytest.param([], "bert", POD, id="a pod that does not exist"),
        pytest.param(chain(), "bert", BoundObject(POD.name, "other"), id="an earlier pod of that name"),
        pytest.param(chain()[:3], "bert", POD, id="a deleted pod"),
        pytest.param(chain(pod={}), "bert", POD, id="a pod without a controller"),
        pytest.param(
            chain(pod={"apiVersion": "apps/v1", "kind": "Job", "name": "bert-node-0", "uid": "b"}),
            "bert", POD, id="a Job of another group",
        ),
        pytest.param(
            chain(pod={"apiVersion": "batch/v1", "kind": "Job", "name": "bert-node-0", "uid": "c"}),
            "bert", POD, id="an earlier Job of that name",
        ),
        pytest.param(
            chain(job={"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "bert", "uid": "k"}),
            "bert", POD, id="an earlier JobSet of that name",
        ),
        pytest.param(chain(job={}), "bert", POD, id="a Job of no JobSet"),
        pytest.param(chain(jobset={}), "bert", POD, id="a JobSet of no TrainJob"),
        pytest.param(
            chain(jobset={"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "bert", "uid": "s"}),
            "bert", POD, id="the JobSet of an earlier TrainJob",
        ),
    ],
)  # fmt: skip
async def test_no_other_pod_may(objects: list[Object], train_job: str, pod: BoundObject) -> None:
    cluster = FakeClient(*objects)
    with pytest.raises(DeniedError, match=f"does not belong to TrainJob lab/{train_job}"):
        await PodOwners(cluster, cluster).require("lab", train_job, pod)


async def test_a_pod_is_looked_up_once_a_minute_and_forgotten_when_it_is_deleted() -> None:
    cluster, cached = FakeClient(*chain()), FakeClient(*chain())
    owners = PodOwners(cluster, cached)
    for _ in range(5):
        await owners.require("lab", "bert", POD)
    assert [call.kind.kind for call in cluster.calls] == ["Pod", "Job"]

    await cluster.delete(Pod.from_dict({"metadata": {"namespace": "lab", "name": POD.name}}))
    await owners.require("lab", "bert", POD)
    await anyio.sleep(60)

    with pytest.raises(DeniedError):
        await owners.require("lab", "bert", POD)


async def test_a_pod_may_not_update_the_next_train_job_of_the_name() -> None:
    cluster = FakeClient(*chain())
    owners = PodOwners(cluster, cluster)
    await owners.require("lab", "bert", POD)

    await cluster.delete(TrainJob.from_dict({"metadata": {"namespace": "lab", "name": "bert"}}))
    with pytest.raises(DeniedError):
        await owners.require("lab", "bert", POD)
    cluster.add(TrainJob.from_dict({"metadata": {"namespace": "lab", "name": "bert", "uid": "t2"}}))
    with pytest.raises(DeniedError):
        await owners.require("lab", "bert", POD)


async def test_a_pod_that_was_not_found_is_looked_up_again_soon() -> None:
    cluster = FakeClient(*chain()[:3])
    owners = PodOwners(cluster, cluster)
    with pytest.raises(DeniedError):
        await owners.require("lab", "bert", POD)
    cluster.add(chain()[3])
    await anyio.sleep(5)

    await owners.require("lab", "bert", POD)


async def test_a_read_that_is_refused_is_not_a_denial() -> None:
    async def refuse(*_: object) -> Object:
        raise ForbiddenError("pods is forbidden")

    cluster = interceptor.wrap(FakeClient(*chain()), interceptor.Funcs(get=refuse))
    with pytest.raises(ForbiddenError):
        await PodOwners(cluster, cluster).require("lab", "bert", POD)


async def test_the_memory_of_pods_is_bounded() -> None:
    cluster = FakeClient()
    owners = PodOwners(cluster, cluster)
    for index in range(5000):
        with pytest.raises(DeniedError):
            await owners.require("lab", "bert", BoundObject(f"p{index}", "u"))
    assert len(owners._found) == 4096


async def test_the_owners_of_a_pod_are_read_once_for_many_requests_at_once() -> None:
    cluster = FakeClient(*chain())

    async def slow(inner: Any, kind: Any, key: Any) -> Any:
        await anyio.sleep(1)
        return await inner.get(kind, key)

    owners = PodOwners(interceptor.wrap(cluster, interceptor.Funcs(get=slow)), FakeClient(*chain()))
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(owners.require, "lab", "bert", POD)
    assert [call.kind.kind for call in cluster.calls] == ["Pod", "Job"]
