# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from typing import Any

import pytest
from controller_runtime.machinery import NamespacedName
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import LOW_PRIORITY, PriorityQueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.trainjob_controller import without_job_set_first


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
