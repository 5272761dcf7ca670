# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which TrainJobs an event or a start of the manager enqueues, and with which priority."""

from collections.abc import Iterator
from typing import Any

import pytest
from controller_runtime import event
from controller_runtime.cache import UndecodableObjectError
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import NamespacedName
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import LOW_PRIORITY, PriorityQueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.controller.trainjob_controller import enqueue_followers, enqueue_name_waiter, without_job_set_first
from pkg.runtime import indexer
from pkg.util import trainjob
from testkit.trainjobs import train_job

INDEXES: Any = {
    (TrainJob, indexer.TRAIN_JOB_RUNTIME_REF_KEY): indexer.index_train_job_training_runtime,
    (TrainJob, indexer.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY): indexer.index_train_job_cluster_training_runtime,
}


def job_set(name: str, owner: TrainJob | None = None) -> JobSet:
    made = JobSet.from_dict({"metadata": {"name": name, "namespace": "ns"}})
    if owner is not None:
        made.metadata.owner_references = [trainjob.controller_reference(owner)]
    return made


@pytest.mark.parametrize("created", [True, False], ids=["created", "changed"])
@pytest.mark.parametrize(
    ("kind", "namespace", "index"),
    [
        (TrainingRuntime, "ns", indexer.TRAIN_JOB_RUNTIME_REF_KEY),
        (ClusterTrainingRuntime, "", indexer.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY),
    ],
)
async def test_a_runtime_wakes_the_train_jobs_that_can_follow_it_and_those_that_may_wait_for_it_first(
    kind: type[Any], namespace: str, index: str, created: bool
) -> None:
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": kind.gvk.kind, "name": "rt"}
    waiting, built, resumed = (train_job(name, runtimeRef=ref) for name in ("waiting", "built", "resumed"))
    suspended = train_job("suspended", runtimeRef=ref, suspend=True)
    held = [job_set(job.name, job) for job in (resumed, suspended)]
    for each in held:
        each.spec.suspend = True
    other = train_job("other", runtimeRef={**ref, "name": "another"})
    jobs = (waiting, built, resumed, suspended, other)
    reader = FakeClient(*jobs, *held, job_set("built", built), indexes=INDEXES)
    runtime = kind.from_dict({"metadata": {"name": "rt", "namespace": namespace or None}})
    queue, followers = PriorityQueue[Request](), enqueue_followers(reader, index)
    if created:
        await followers.create(event.CreateEvent(runtime), queue)
    else:
        await followers.update(event.UpdateEvent(runtime, runtime), queue)
    woken = [await queue.get_with_priority() for _ in range(len(queue))]
    assert {request.name: priority for request, priority in woken} == {
        "waiting": 0,
        "resumed": 0,
        "suspended": LOW_PRIORITY,
    }


async def test_an_unreadable_job_set_does_not_keep_others_from_waking() -> None:
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "rt"}
    jobs = [train_job(name, runtimeRef=ref) for name in ("a", "b", "c")]

    async def get(inner: Any, kind: Any, key: Any) -> Any:
        if kind is JobSet and key[1] == "a":
            raise UndecodableObjectError(JobSet.gvk, key, "spec: too large")
        return await inner.get(kind, key)

    reader = interceptor.wrap(FakeClient(*jobs, indexes=INDEXES), interceptor.Funcs(get=get))
    runtime = ClusterTrainingRuntime.from_dict({"metadata": {"name": "rt"}})
    queue = PriorityQueue[Request]()
    wakes = enqueue_followers(reader, indexer.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY)
    await wakes.update(event.UpdateEvent(runtime, runtime), queue)
    assert len(queue) == 3


@pytest.mark.parametrize("owned", [False, True])
async def test_a_job_set_in_the_way_wakes_the_train_job_of_its_name_when_it_goes(
    owned: bool,
) -> None:
    job = train_job()
    queue = PriorityQueue[Request]()
    wakes = enqueue_name_waiter(FakeClient(job))
    await wakes.delete(event.DeleteEvent(job_set("job", job if owned else None)), queue)
    await wakes.delete(event.DeleteEvent(job_set("of-no-train-job")), queue)
    assert len(queue) == (0 if owned else 1)


class Informer:
    """An informer of names in one namespace, which is synced once a caller has waited for it."""

    def __init__(self, *names: str, problem: str | None = None) -> None:
        self.names, self.problem, self.has_synced = names, problem, False

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        assert self.problem is None or or_problem
        self.has_synced = self.problem is None

    def keys(self) -> Iterator[NamespacedName]:
        assert self.has_synced
        return (NamespacedName("ns", name) for name in self.names)

    def has(self, key: NamespacedName) -> bool:
        return key.namespace == "ns" and key.name in self.names


class Informers(dict[type[Any], Informer]):
    async def get_informer(self, kind: type[Any]) -> Any:
        return self[kind]


@pytest.fixture
def queue() -> PriorityQueue[Request]:
    return PriorityQueue[Request]()


async def test_train_jobs_without_a_job_set_pass_those_that_have_one_but_not_what_happens_now(
    queue: PriorityQueue[Request],
) -> None:
    for name in ("built-1", "built-2", "unbuilt"):
        queue.add(Request("ns", name), priority=LOW_PRIORITY)
    queue.add(Request("ns", "now"))
    informers = Informers(
        {
            TrainJob: Informer("built-1", "built-2", "unbuilt", "now"),
            JobSet: Informer("built-2", "built-1", "now", "of-nobody"),
        }
    )
    await without_job_set_first(informers).start(queue)
    assert [(await queue.get()).name for _ in range(4)] == ["now", "unbuilt", "built-1", "built-2"]
    assert not len(queue)


@pytest.mark.parametrize("missing", [TrainJob, JobSet])
async def test_nobody_is_first_where_one_of_the_kinds_is_not_served(
    queue: PriorityQueue[Request], missing: type[Any]
) -> None:
    informers = Informers({TrainJob: Informer("a"), JobSet: Informer()})
    informers[missing].problem = "forbidden"
    await without_job_set_first(informers).start(queue)
    assert not len(queue)
