# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of a running TrainJob are built again only if more than its JobSet may be built, or something changed."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from pkg.runtime.core import TrainingRuntime
from testkit.trainjobs import KEY, PLAIN, ReconcilerWorld, runtime, train_job

pytestmark = pytest.mark.timeout(20)

RUNTIME = NamespacedName("", "rt")
SNAPSHOT = NamespacedName("ns", "job-runtime-snapshot")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the TrainJobs for which the stages ran."""
    names: list[str] = []
    stages = TrainingRuntime.runtime_info

    def counting(self: TrainingRuntime, *arguments: Any) -> Any:
        names.append(arguments[0].name)
        return stages(self, *arguments)

    monkeypatch.setattr(TrainingRuntime, "runtime_info", counting)
    return names


async def running(policy: dict[str, Any] = PLAIN, version: str = "2.1") -> ReconcilerWorld:
    """Return a world whose JobSet was made and runs."""
    known = runtime(**policy)
    known.metadata.uid = "uid-rt"
    w = ReconcilerWorld(known, train_job())
    w.cfg = defaulted(version)
    await w.restart(store=w.server)
    await w.reconcile()
    return w


async def observe(w: ReconcilerWorld, active: int) -> None:
    """Reconcile after a change of the JobSet's status."""
    await w.server.observe(active=active)
    assert await w.writes() == ["patch TrainJob/status"]


@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_a_job_set_without_siblings_is_not_built_again(built: list[str], version: str) -> None:
    w = await running(version=version)
    assert len(built) == 1
    for active in (1, 2):
        await observe(w, active)
    assert len(built) == 1
    await w.restart(store=w.server)
    for active in (3, 4):
        await observe(w, active)
    assert len(built) == 2  # this process had not built it


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_metadata_of_the_train_job_is_a_change(built: list[str], field: str) -> None:
    w = await running()
    await w.train_job(lambda job: setattr(job.metadata, field, {"a": "b"}))
    await observe(w, 1)
    assert len(built) == 2
    await observe(w, 2)
    assert len(built) == 2


async def test_an_edit_of_the_runtime_is_a_change_and_a_failure_is_reported_each_time(
    built: list[str],
) -> None:
    w = await running()
    found = await w.server.get(ClusterTrainingRuntime, RUNTIME)
    found.spec.ml_policy.num_nodes = 3  # type: ignore[union-attr]
    await w.server.update(found)
    await observe(w, 1)
    assert len(built) == 2
    await w.train_job(lambda job: setattr(job.spec.trainer, "num_nodes", -1))
    for number in (1, 2):
        with pytest.raises(Exception, match="numNodes must be at least 1"):
            await w.reconcile()
        assert len(w.recorder.events) == number


async def test_an_edit_of_the_snapshot_is_a_change(built: list[str]) -> None:
    w = await running(version="2.3")
    kept = await w.server.get(ConfigMap, SNAPSHOT)
    assert kept.data is not None
    kept.data = {"runtime": kept.data["runtime"].replace("base", "other")}
    await w.server.update(kept)
    await observe(w, 1)
    assert len(built) == 2
    await observe(w, 2)
    assert len(built) == 2


async def test_a_missing_runtime_is_reported_although_nothing_is_built(built: list[str]) -> None:
    w = await running()
    found = await w.server.get(ClusterTrainingRuntime, RUNTIME)
    found.metadata.finalizers = None
    await w.server.delete(await w.server.update(found))
    with pytest.raises(NotFoundError):
        await w.server.get(ClusterTrainingRuntime, RUNTIME)
    with pytest.raises(Exception, match="not found ClusterTrainingRuntime"):
        await w.reconciler.reconcile(KEY)
    assert len(built) == 1
