# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from controller_runtime import event
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import LazyObject, Object
from controller_runtime.machinery.errors import ConflictError
from controller_runtime.reconcile import Request

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.controller import ClusterTrainingRuntimeReconciler, TrainingRuntimeReconciler
from pkg.controller.trainingruntime_controller import _REFERENCES_CHANGE, RuntimeReconciler
from pkg.runtime import indexer
from testkit.builders import make_train_job

FINALIZER = "trainer.kubeflow.org/resource-in-use"
INDEXES: dict[tuple[type[Object], str], Callable[[Any], Iterable[str]]] = {
    (TrainJob, indexer.TRAIN_JOB_RUNTIME_REF_KEY): indexer.index_train_job_training_runtime,
    (TrainJob, indexer.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY): indexer.index_train_job_cluster_training_runtime,
}

Kind = tuple[type[RuntimeReconciler], type[Object], str]
BOTH: list[Any] = [
    pytest.param((TrainingRuntimeReconciler, TrainingRuntime, "ns"), id="TrainingRuntime"),
    pytest.param((ClusterTrainingRuntimeReconciler, ClusterTrainingRuntime, ""), id="ClusterTrainingRuntime"),
]


def runtime(kind: Kind, *, finalizers: list[str] | None = None, deleted: bool = False) -> Object:
    metadata: dict[str, Any] = {"name": "torch", "namespace": kind[2]} if kind[2] else {"name": "torch"}
    if finalizers:
        metadata["finalizers"] = finalizers
    if deleted:
        metadata["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    return kind[1].from_dict({"metadata": metadata})


def job_of(kind: Kind, name: str = "torch", *, namespace: str = "ns") -> TrainJob:
    return make_train_job(namespace, f"of-{name}", runtime=name, runtime_kind=kind[1].gvk.kind)


async def reconcile(kind: Kind, *objects: Object) -> FakeClient:
    client = FakeClient(*objects, indexes=INDEXES)
    await kind[0](client).reconcile(Request(kind[2], "torch"))
    return client


async def finalizers(client: FakeClient, kind: Kind) -> list[str]:
    return (await client.get(kind[1], (kind[2], "torch"))).metadata.finalizers or []


@pytest.mark.parametrize("kind", BOTH)
async def test_a_runtime_that_other_jobs_name_is_not_in_use(kind: Kind) -> None:
    other_kind = next(param.values[0] for param in BOTH if param.values[0] is not kind)
    client = await reconcile(
        kind,
        runtime(kind),
        job_of(other_kind),
        job_of(kind, "jax"),
    )
    assert client.writes == []


async def test_a_training_runtime_is_used_from_its_own_namespace_alone() -> None:
    kind: Kind = BOTH[0].values[0]
    assert (await reconcile(kind, runtime(kind), job_of(kind, namespace="elsewhere"))).writes == []


@pytest.mark.parametrize("kind", BOTH)
async def test_no_finalizer_is_added_to_a_runtime_that_is_going(kind: Kind) -> None:
    deleted = runtime(kind, finalizers=["a.b/c"], deleted=True)
    client = await reconcile(kind, deleted, job_of(kind))
    assert client.writes == []


@pytest.mark.parametrize("kind", BOTH)
async def test_an_unused_runtime_keeps_what_it_has(kind: Kind) -> None:
    assert (await reconcile(kind, runtime(kind, finalizers=[FINALIZER]))).writes == []
    assert (await reconcile(kind)).writes == []


@pytest.mark.parametrize("kind", BOTH)
async def test_another_finalizer_added_meanwhile_is_not_lost(kind: Kind) -> None:
    client = FakeClient(runtime(kind), job_of(kind), indexes=INDEXES)
    listing = client.list

    async def slow(*args: Any, **kwargs: Any) -> Any:
        found = await client.get(kind[1], (kind[2], "torch"))
        found.metadata.finalizers = ["a.b/c"]
        await client.update(found)
        return await listing(*args, **kwargs)

    client.list = slow  # type: ignore[method-assign] # slows one call of a working client down
    with pytest.raises(ConflictError):
        await kind[0](client).reconcile(Request(kind[2], "torch"))
    assert await finalizers(client, kind) == ["a.b/c"]


async def test_a_train_job_wakes_the_runtime_it_names() -> None:
    namespaced, cluster = (param.values[0] for param in BOTH)
    client = FakeClient()
    job = job_of(namespaced)
    assert await namespaced[0](client).runtime_of(job) == [Request("ns", "torch")]
    assert await cluster[0](client).runtime_of(job) == []
    job = job_of(cluster)
    assert await namespaced[0](client).runtime_of(job) == []
    assert await cluster[0](client).runtime_of(job) == [Request("", "torch")]


def test_a_change_of_metadata_is_not_decoded() -> None:
    undecodable = LazyObject(TrainJob, b'{"metadata": {"name": "j", "generation": 1}, "spec": 7}')
    evt = event.UpdateEvent(undecodable, undecodable)
    assert not _REFERENCES_CHANGE.update(evt)


def test_an_event_passes_if_a_train_job_refers_or_referred_to_a_runtime_of_the_kind() -> None:
    kinds = [param.values[0] for param in BOTH]
    for kind, other in (kinds, kinds[::-1]):
        ours, theirs = job_of(kind), job_of(other)
        references = kind[0](FakeClient()).references()
        assert references.create(event.CreateEvent(ours))
        assert not references.create(event.CreateEvent(theirs))
        assert references.update(event.UpdateEvent(ours, theirs))
        assert references.update(event.UpdateEvent(theirs, ours))
        assert not references.update(event.UpdateEvent(theirs, theirs))
        assert references.delete(event.DeleteEvent(ours))
        assert not references.delete(event.DeleteEvent(theirs))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("finalizers", "deleted", "woken"),
    [([FINALIZER], False, False), ([FINALIZER], True, True), (["a.b/c"], False, True), ([], False, True)],
)
async def test_a_train_job_wakes_no_runtime_that_is_guarded(
    kind: Kind, finalizers: list[str], deleted: bool, woken: bool
) -> None:
    client = FakeClient(runtime(kind, finalizers=finalizers, deleted=deleted))
    found = await kind[0](client).runtime_of(job_of(kind))
    assert found == ([Request(kind[2], "torch")] if woken else [])


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("deleted", [False, True])
async def test_the_second_generation_removes_the_finalizer_of_a_runtime_in_use(
    kind: Kind, deleted: bool
) -> None:
    held = runtime(kind, finalizers=[FINALIZER, "a.b/c"], deleted=deleted)
    client = FakeClient(held, job_of(kind), indexes=INDEXES)
    reconciler = kind[0](client, Configuration(compatibility_version="2.3"))

    await reconciler.reconcile(Request(kind[2], "torch"))
    await reconciler.reconcile(Request(kind[2], "torch"))

    assert await finalizers(client, kind) == ["a.b/c"]
    assert len(client.writes) == 1
