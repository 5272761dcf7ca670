# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of runtimes: when they are created and read, and with how many requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.machinery.errors import ForbiddenError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.machinery.time import format_time
from controller_runtime.client import FakeClient

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, RuntimeRef, TrainingRuntime, TrainJob
from pkg.runtime import core, runtime_for
from pkg.runtime.core import snapshot
from pkg.runtime.core.snapshot import SnapshotError, Snapshots
from pkg.util import trainjob
from pkg.util.testing import (
    make_cluster_training_runtime,
    make_train_job,
    make_training_runtime,
    make_training_runtime_spec,
)

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def runtime() -> ClusterTrainingRuntime:
    return make_cluster_training_runtime("runtime", make_training_runtime_spec())


def changed_runtime() -> ClusterTrainingRuntime:
    """Return the runtime with other labels."""
    return make_cluster_training_runtime("runtime", make_training_runtime_spec(labels={"new": "yes"}))


def job(*, age: int | None = None, uid: str = "uid-1") -> TrainJob:
    """Return a TrainJob created ``age`` seconds before the first call, or without a time."""
    made = make_train_job("team-a", "job", uid=uid)
    if age is not None:
        made.metadata.creation_timestamp = format_time(START - timedelta(seconds=age))
    return made


def snapshots(store: FakeClient, *, creates: bool) -> Snapshots:
    return Snapshots(store, creates=creates, now=lambda: START)


def config_map(train_job: TrainJob, runtime: Object) -> ConfigMap:
    found = ConfigMap.from_dict(
        {
            "metadata": {"namespace": "team-a", "name": "job-runtime-snapshot"},
            "data": {"runtime": snapshot.encode(runtime)},
        }
    )
    found.metadata.owner_references = [trainjob.controller_reference(train_job)]
    return found


def reading(runtime: ClusterTrainingRuntime) -> Callable[[], Any]:
    async def live() -> ClusterTrainingRuntime:
        return runtime

    return live


async def verbs(
    held: Snapshots, store: FakeClient, train_job: TrainJob, live: ClusterTrainingRuntime
) -> list[str]:
    """Return the requests of one call."""
    before = len(store.calls)
    await held.runtime_of(train_job, ClusterTrainingRuntime, reading(live))
    return [call.verb for call in store.calls[before:]]


async def test_a_new_train_job_costs_one_request_and_keeps_its_runtime(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = FakeClient()
    held = snapshots(store, creates=True)
    changed = changed_runtime()

    assert await verbs(held, store, job(age=0), runtime) == ["create"]
    assert await verbs(held, store, job(age=0), changed) == []
    assert await held.runtime_of(job(age=0), ClusterTrainingRuntime, reading(changed)) is runtime

    after_a_restart = snapshots(store, creates=True)
    assert await verbs(after_a_restart, store, job(age=9), changed) == ["get"]
    found = await after_a_restart.runtime_of(job(age=9), ClusterTrainingRuntime, reading(changed))
    assert snapshot.encode(found) == snapshot.encode(runtime)


async def test_the_first_generation_sends_nothing_for_new_train_jobs_and_lists_a_namespace_once(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = FakeClient()
    held = snapshots(store, creates=False)

    assert await verbs(held, store, job(age=0), runtime) == []
    assert await verbs(held, store, job(age=9, uid="a"), runtime) == ["list"]
    assert await verbs(held, store, job(age=9, uid="b"), runtime) == []
    assert not store.writes


async def test_the_first_generation_works_without_the_permission_to_list_until_it_is_granted(
    runtime: ClusterTrainingRuntime,
) -> None:
    denied, lists, now = True, 0, START

    class Denying(FakeClient):
        async def list(self, kind: Any, **options: Any) -> Any:
            nonlocal lists
            lists += 1
            if denied:
                raise ForbiddenError("configmaps is forbidden", code=403, reason="Forbidden")
            return await super().list(kind, **options)

    held = Snapshots(Denying(config_map(job(), changed_runtime())), creates=False, now=lambda: now)
    for _ in range(3):
        assert await held.runtime_of(job(), ClusterTrainingRuntime, reading(runtime)) is runtime
    assert lists == 1

    denied, now = False, START + timedelta(seconds=60)
    found = await held.runtime_of(job(), ClusterTrainingRuntime, reading(runtime))
    assert snapshot.encode(found) == snapshot.encode(changed_runtime())


async def test_the_first_generation_finds_a_snapshot_whatever_the_clock_does_meanwhile(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = FakeClient(config_map(job(), changed_runtime()))
    for _ in range(100):
        found = await Snapshots(store, creates=False).runtime_of(
            job(), ClusterTrainingRuntime, reading(runtime)
        )
        assert found is not runtime


@pytest.mark.parametrize(
    ("age", "creates"),
    [
        pytest.param(0, True, id="another writer created it meanwhile"),
        pytest.param(9, False, id="in the first generation"),
    ],
)
async def test_a_snapshot_that_exists_is_used(
    runtime: ClusterTrainingRuntime, age: int, creates: bool
) -> None:
    train_job = job(age=age)
    store = FakeClient(config_map(train_job, runtime))
    changed = changed_runtime()

    found = await snapshots(store, creates=creates).runtime_of(
        train_job, ClusterTrainingRuntime, reading(changed)
    )

    assert snapshot.encode(found) == snapshot.encode(runtime)


async def test_the_snapshot_of_another_train_job_is_refused(runtime: ClusterTrainingRuntime) -> None:
    store = FakeClient(config_map(job(uid="other"), runtime))
    with pytest.raises(SnapshotError, match="owned by another object"):
        await snapshots(store, creates=True).runtime_of(job(), ClusterTrainingRuntime, reading(runtime))


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "1e3",
        "0o7",
        "12:30",
        "2001-01-01",
        "~",
        "",
        "y",
        ".5",
        "a: b",
        "- a",
        "x\ny",
        "=",
        "<<",
        "0x1F",
    ],
)
def test_every_string_stays_a_string(text: str, runtime: ClusterTrainingRuntime) -> None:
    runtime.metadata.annotations = {"text": text}
    written = snapshot.encode(runtime)
    assert yaml.safe_load(written)["metadata"]["annotations"] == {"text": text}
    ref = RuntimeRef(name=runtime.name)
    assert snapshot.decode(ClusterTrainingRuntime, written, ref).metadata.annotations == {"text": text}


@pytest.mark.parametrize("value", ["=", "<<"])
def test_a_text_that_go_leaves_unquoted_is_a_string(value: str) -> None:
    text = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\n"
        f"metadata:\n  annotations:\n    text: {value}\n  name: plain\n"
    )
    found = snapshot.decode(ClusterTrainingRuntime, text, RuntimeRef(name="plain"))
    assert found.metadata.annotations == {"text": value}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[", "line 2: did not find expected node content"),
        ("just text", "it is not a map"),
        ("&a [*a]", "anchor 'a' value contains itself"),
        ("a: &a [*a, *a]", "anchor 'a' value contains itself"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"{n}: &{n} [{', '.join([f'*{p}'] * 10)}]\n" for p, n in zip("abcdef", "bcdefg", strict=True)
            ),
            "document contains excessive aliasing",
        ),
        ("[" * 40_000, "nested more than 200 levels deep"),
        ("a: [" + "1, " * 100_000 + "]", "more than 100,000 values"),
        ("apiVersion: 5\nkind: [1]\nmetadata: {name: 3}", ""),
    ],
    ids=[
        "no YAML",
        "no map",
        "recursion",
        "endless",
        "a billion values",
        "deep",
        "many values",
        "other types",
    ],
)
def test_a_text_without_a_runtime_is_refused(text: str, reason: str) -> None:
    with pytest.raises(snapshot.SnapshotTextError, match=f"unable to unmarshal the snapshot: .*{reason}"):
        snapshot.decode(ClusterTrainingRuntime, text, make_train_job("a", "b").spec.runtime_ref)


@pytest.mark.parametrize("kind", [ClusterTrainingRuntime, TrainingRuntime])
@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_a_train_job_is_reviewed_by_its_snapshot_after_its_runtime_was_deleted(
    kind: type[ClusterTrainingRuntime | TrainingRuntime], version: str
) -> None:
    """Otherwise it could be neither suspended nor resumed, though its objects are built from the snapshot."""
    spec = make_training_runtime_spec()
    namespaced = kind is TrainingRuntime
    used = (
        make_training_runtime("team-a", "rt", spec)
        if namespaced
        else make_cluster_training_runtime("rt", spec)
    )
    old = make_train_job("team-a", "job", uid="u", runtime="rt", runtime_kind=kind.gvk.kind)
    new = make_train_job("team-a", "job", uid="u", runtime="rt", runtime_kind=kind.gvk.kind, suspend=True)
    store = FakeClient()
    runtimes = await core.new(store, store, cfg=defaulted(version), store=store)
    review = runtime_for(runtimes, old.spec.runtime_ref).validate_objects

    assert (await review(old, new))[1]
    store.add(config_map(old, used))
    assert (await review(None, new))[1]  # a new TrainJob needs the runtime itself
    assert await review(old, new) == ([], [])

    another = make_train_job("team-a", "job", uid="another", runtime="rt", runtime_kind=kind.gvk.kind)
    assert (await review(another, another))[1]
    assert not store.writes


async def test_a_review_waits_for_a_snapshot_for_two_seconds_at_most() -> None:
    class Hanging(FakeClient):
        async def get(self, kind: Any, key: Any, **options: Any) -> Any:
            await anyio.sleep_forever()

    began = anyio.current_time()
    assert await snapshots(Hanging(), creates=True).stored(job(), ClusterTrainingRuntime) is None
    assert anyio.current_time() - began == pytest.approx(2)


async def test_reviews_read_a_bounded_number_of_snapshots() -> None:
    store = FakeClient()
    held = snapshots(store, creates=True)
    for _ in range(60):
        assert await held.stored(job(), ClusterTrainingRuntime) is None
    assert len(store.calls) == 50
    await anyio.sleep(1)
    assert await held.stored(job(), ClusterTrainingRuntime) is None
    assert len(store.calls) == 51
