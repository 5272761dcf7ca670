# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of runtimes: when they are created and read, and with how many requests."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest
import yaml
from controller_runtime import log
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import CacheDegradedError
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, PartialObjectMetadata
from controller_runtime.machinery.errors import ForbiddenError

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    RuntimePatch,
    RuntimeRef,
    TrainingRuntime,
    TrainJob,
)
from pkg.runtime import core, runtime_for
from pkg.runtime.core import snapshot
from pkg.runtime.core.snapshot import SnapshotError, Snapshots
from pkg.util import trainjob
from testkit.builders import (
    make_cluster_training_runtime,
    make_replicated_job,
    make_train_job,
    make_training_runtime,
    make_training_runtime_spec,
    runtime_patch,
)


class Store(FakeClient):
    """A client whose reads of metadata come from a cache: they are not recorded as requests.

    They fail while ``denied`` is set, because the cache then may not watch.
    """

    denied = False

    async def get(self, kind: Any, key: Any, **options: Any) -> Any:
        if not issubclass(kind, PartialObjectMetadata):
            return await super().get(kind, key, **options)
        if self.denied:
            raise CacheDegradedError(kind.gvk, "configmaps is forbidden")
        try:
            return await super().get(kind, key, **options)
        finally:
            self.calls.pop()


@pytest.fixture
def runtime() -> ClusterTrainingRuntime:
    return make_cluster_training_runtime("runtime", make_training_runtime_spec(labels={"version": "1"}))


def changed_runtime() -> ClusterTrainingRuntime:
    return make_cluster_training_runtime("runtime", make_training_runtime_spec(labels={"version": "2"}))


def job(uid: str = "uid-1") -> TrainJob:
    return make_train_job("team-a", "job", uid=uid)


def config_map(train_job: TrainJob, runtime: Object) -> ConfigMap:
    """Return the snapshot of ``runtime`` for the TrainJob."""
    metadata = trainjob.child_metadata(train_job, "-runtime-snapshot")
    return ConfigMap(metadata=metadata, data={"runtime": snapshot.encode(runtime)})


async def change(store: FakeClient, data: dict[str, str]) -> None:
    """Change the snapshot as a user does."""
    stored = await store.get(ConfigMap, ("team-a", "job-runtime-snapshot"))
    stored.data = data
    await store.update(stored)


def reading(runtime: ClusterTrainingRuntime) -> Callable[[], Any]:
    async def live() -> ClusterTrainingRuntime:
        return runtime

    return live


async def used(held: Snapshots, store: FakeClient, live: ClusterTrainingRuntime) -> tuple[list[str], str]:
    """Get the TrainJob's runtime; return the verbs of the requests for it, and its version."""
    before = len(store.calls)
    found = await held.runtime_of(job(), ClusterTrainingRuntime, reading(live))
    return [call.verb for call in store.calls[before:]], _version(found)


def _version(runtime: ClusterTrainingRuntime) -> str:
    metadata = runtime.spec.template.metadata
    return ((metadata and metadata.labels) or {})["version"]


async def text(store: FakeClient) -> str:
    """Return the text of the snapshot."""
    found = await store.get(ConfigMap, ("team-a", "job-runtime-snapshot"))
    return (found.data or {})["runtime"]


async def test_a_new_train_job_costs_one_request_and_keeps_its_runtime(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store()
    held = Snapshots(store, creates=True)

    assert await used(held, store, runtime) == (["create"], "1")
    assert await used(held, store, changed_runtime()) == ([], "1")

    after_a_restart = Snapshots(store, creates=True)
    assert await used(after_a_restart, store, changed_runtime()) == (["get"], "1")
    assert await used(after_a_restart, store, changed_runtime()) == ([], "1")


async def test_the_first_generation_sends_nothing_without_snapshots(runtime: ClusterTrainingRuntime) -> None:
    store = Store()
    held = Snapshots(store, creates=False)
    assert await used(held, store, runtime) == ([], "1")
    assert await used(held, store, changed_runtime()) == ([], "2")


async def test_the_first_generation_works_without_the_permission_to_watch_until_it_is_granted(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store(config_map(job(), changed_runtime()))
    store.denied = True
    held = Snapshots(store, creates=False)
    assert await used(held, store, runtime) == ([], "1")
    store.denied = False
    assert await used(held, store, runtime) == (["get"], "2")


async def test_the_second_generation_reads_a_snapshot_once_without_the_permission_to_watch(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store()
    store.denied = True
    held = Snapshots(store, creates=True)
    assert await used(held, store, runtime) == (["get", "create"], "1")
    assert await used(held, store, changed_runtime()) == ([], "1")
    assert await used(Snapshots(store, creates=True), store, changed_runtime()) == (["get"], "1")


@pytest.mark.parametrize("creates", [True, False])
async def test_snapshots_are_watched_from_the_first_train_job_on(
    runtime: ClusterTrainingRuntime, creates: bool
) -> None:
    begins: list[Callable[[], Any]] = []

    class Notes:
        def watches(self, *_: Any, when: Callable[[], Any], **options: Any) -> Notes:
            begins.append(when)
            return self

    store = Store()
    held = Snapshots(store, creates=creates)
    held.watch(cast("Any", Notes()), store, cast("Any", None))
    (begin,) = begins
    with anyio.move_on_after(60) as waited:
        await begin()
    assert waited.cancelled_caught
    await used(held, store, runtime)
    with anyio.fail_after(1):
        await begin()


@pytest.mark.parametrize("creates", [True, False])
async def test_a_snapshot_that_exists_is_used(runtime: ClusterTrainingRuntime, creates: bool) -> None:
    store = Store(config_map(job(), changed_runtime()))
    assert await used(Snapshots(store, creates=creates), store, runtime) == (["get"], "2")


async def test_a_snapshot_that_the_cache_does_not_have_yet_is_used(runtime: ClusterTrainingRuntime) -> None:
    server = Store(config_map(job(), changed_runtime()))

    class Late(Store):
        async def create(self, obj: Any, **options: Any) -> Any:
            return await server.create(obj, **options)

    held = Snapshots(Late(), server, creates=True)
    assert await used(held, server, runtime) == (["create", "get"], "2")


@pytest.mark.parametrize("creates", [True, False])
async def test_an_edited_snapshot_is_used_and_read_once(
    runtime: ClusterTrainingRuntime, creates: bool
) -> None:
    store = Store(config_map(job(), runtime))
    held = Snapshots(store, creates=creates)
    assert await used(held, store, runtime) == (["get"], "1")
    await change(store, {"runtime": snapshot.encode(changed_runtime())})
    assert await used(held, store, runtime) == (["get"], "2")
    assert await used(held, store, runtime) == ([], "2")


async def test_a_deleted_snapshot_is_written_again_as_it_was(runtime: ClusterTrainingRuntime) -> None:
    store = Store()
    held = Snapshots(store, creates=True)
    await used(held, store, runtime)
    written = await text(store)

    await store.delete(config_map(job(), runtime))
    assert await used(held, store, changed_runtime()) == (["create"], "1")
    assert await text(store) == written


async def test_a_snapshot_deleted_before_a_restart_is_written_of_the_live_runtime(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store()
    await used(Snapshots(store, creates=True), store, runtime)
    await store.delete(config_map(job(), runtime))
    assert await used(Snapshots(store, creates=True), store, changed_runtime()) == (["create"], "2")
    assert await text(store) == snapshot.encode(changed_runtime())


async def test_the_first_generation_writes_no_snapshot_in_place_of_a_deleted_one(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store(config_map(job(), runtime))
    held = Snapshots(store, creates=False)
    await used(held, store, runtime)
    await store.delete(config_map(job(), runtime))
    assert await used(held, store, changed_runtime()) == ([], "2")


async def test_a_snapshot_that_was_spoiled_and_deleted_is_written_again_as_it_was(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store()
    held = Snapshots(store, creates=True)
    await used(held, store, runtime)
    written = await text(store)

    await change(store, {"runtime": "["})
    for _ in range(2):
        with pytest.raises(SnapshotError, match="unable to unmarshal"):
            await used(held, store, runtime)
    await store.delete(config_map(job(), runtime))
    assert await used(held, store, changed_runtime()) == (["create"], "1")
    assert await text(store) == written


async def test_the_snapshot_of_another_train_job_is_refused(runtime: ClusterTrainingRuntime) -> None:
    store = Store(config_map(job("other"), runtime))
    with pytest.raises(SnapshotError, match="owned by another object"):
        await used(Snapshots(store, creates=True), store, runtime)


async def test_the_first_generation_passes_over_the_snapshot_of_another_train_job(
    runtime: ClusterTrainingRuntime,
) -> None:
    store = Store(config_map(job("other"), changed_runtime()))
    assert await used(Snapshots(store, creates=False), store, runtime) == ([], "1")


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
        ("a: [" + "1, " * 100_000 + "]", "more than 60,000 values"),
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
    """Without the snapshot it could be neither suspended nor resumed, although its objects are built from it."""
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


async def test_an_update_that_fits_the_snapshot_but_not_the_edited_runtime_is_accepted() -> None:
    """Another writer, such as Kueue, changes the patches; the user's patch names a job that the runtime has lost."""

    def patch(manager: str) -> RuntimePatch:
        return RuntimePatch.from_dict(runtime_patch(manager, {"nodeSelector": {"a": "b"}}))

    patches = [patch("acme.io/tool")]
    old = make_train_job("team-a", "job", uid="u", runtime="rt", suspend=True, runtime_patches=patches)
    both = [*patches, patch("kueue.x-k8s.io/manager")]
    new = make_train_job("team-a", "job", uid="u", runtime="rt", suspend=True, runtime_patches=both)
    renamed = make_training_runtime_spec(make_replicated_job("renamed", ancestor="trainer", container="node"))
    store = FakeClient(make_cluster_training_runtime("rt", renamed))
    runtimes = await core.new(store, store, cfg=defaulted("2.3"), store=store)
    review = runtime_for(runtimes, old.spec.runtime_ref).validate_objects

    assert (await review(old, new))[1]
    store.add(config_map(old, make_cluster_training_runtime("rt", make_training_runtime_spec())))
    assert (await review(old, new))[1] == []
    assert (await review(None, new))[1]


async def test_of_large_snapshots_only_the_newest_stays_decoded() -> None:
    def large(version: str) -> ClusterTrainingRuntime:
        labels = {"version": version, "long": "x" * 200_000}
        made = make_cluster_training_runtime("runtime", make_training_runtime_spec(labels=labels))
        return ClusterTrainingRuntime.from_json(made.to_json())

    store = Store(config_map(job(), large("1")))
    held = Snapshots(store, creates=True)
    for version in "23":
        await held.runtime_of(
            make_train_job("team-a", version, uid=version), ClusterTrainingRuntime, reading(large(version))
        )
        assert await used(held, store, large("4")) == (["get"], "1")
        assert await used(held, store, large("4")) == ([], "1")


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize("exists", [False, True])
async def test_a_refused_snapshot_is_an_error_of_the_runtime_unless_its_namespace_ends(
    runtime: ClusterTrainingRuntime, terminating: bool, exists: bool
) -> None:
    refusal = ForbiddenError(
        "not for you", details={"causes": [{"reason": "NamespaceTerminating"}] if terminating else []}
    )

    class Refusing(FakeClient):
        async def get(self, kind: Any, key: Any, **options: Any) -> Any:
            if kind is ConfigMap and exists:
                raise refusal
            return await super().get(kind, key, **options)

        async def create(self, obj: Any, **options: Any) -> Any:
            raise refusal

    train_job = make_train_job("team-a", "job", uid="uid-1", runtime="runtime")
    store = Refusing(runtime, *[config_map(train_job, runtime)] * exists)
    runtimes = await core.new(store, store, cfg=defaulted("2.3"), store=store)

    with pytest.raises(ForbiddenError if terminating else core.RuntimeNotFoundError) as error:
        await runtime_for(runtimes, train_job.spec.runtime_ref).new_objects(train_job)

    what = "getting" if exists else "creating runtime snapshot: applying"
    what += " runtime snapshot" if exists else " runtime snapshot ConfigMap"
    assert terminating or str(error.value) == f"{what}: not for you"


LONG = "k" * 9000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"metadata: {{annotations: {{{LONG}: 1, b: 2}}}}", id="values of a wrong type"),
        pytest.param(f"metadata: {{name: {LONG}}}", id="another runtime"),
        pytest.param(f"{LONG}: {{{LONG}: .nan}}", id="no JSON"),
        pytest.param(f"{{{', '.join(f'{LONG}{n}: ' for n in range(3))} [}}", id="no YAML"),
    ],
)
async def test_an_invalid_snapshot_is_logged_in_a_short_line(
    runtime: ClusterTrainingRuntime, text: str
) -> None:
    train_job = make_train_job("team-a", "job", uid="uid-1", runtime="runtime")
    invalid = config_map(train_job, runtime)
    invalid.data = {"runtime": text}
    store = FakeClient(runtime, invalid)
    runtimes = await core.new(store, store, cfg=defaulted("2.3"), store=store)
    with pytest.raises(core.RuntimeNotFoundError) as refusal:
        await runtime_for(runtimes, train_job.spec.runtime_ref).new_objects(train_job)

    stream = io.StringIO()
    log.configure(stream=stream)
    log.logger_from().error("Reconciler error", error=refusal.value)
    (line,) = stream.getvalue().splitlines()
    assert len(line) < 1000


async def test_a_review_waits_for_a_snapshot_for_two_seconds_at_most() -> None:
    class Hanging(FakeClient):
        async def get(self, kind: Any, key: Any, **options: Any) -> Any:
            await anyio.sleep_forever()

    began = anyio.current_time()
    assert await Snapshots(Hanging(), creates=True).existing(job(), ClusterTrainingRuntime) is None
    assert anyio.current_time() - began == pytest.approx(2)


async def test_the_reviews_of_a_namespace_read_a_bounded_number_of_snapshots(
    runtime: ClusterTrainingRuntime,
) -> None:
    other = make_train_job("team-b", "job", uid="uid-2")
    store = Store(config_map(job(), runtime), config_map(other, runtime))
    held = Snapshots(store, creates=True)

    async def reads(reviews: int) -> int:
        """Return how many of that many reviews read the snapshot, which changes before each review."""
        counted = 0
        for number in range(reviews):
            await change(store, {"runtime": f"[ # {number}"})
            before = len(store.calls)
            assert await held.existing(job(), ClusterTrainingRuntime) is None
            counted += len(store.calls) - before
        return counted

    assert await reads(60) == 50
    assert await held.existing(other, ClusterTrainingRuntime), "another namespace is not counted with it"
    await anyio.sleep(1)
    assert await reads(11) == 10


async def test_a_refused_snapshot_is_decoded_once(
    runtime: ClusterTrainingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    decode = snapshot.decode

    def counted(kind: Any, text: Any, ref: RuntimeRef) -> Any:
        decoded.append(text)
        return decode(kind, text, ref)

    monkeypatch.setattr(snapshot, "decode", counted)
    store = Store(config_map(job(), runtime))
    held = Snapshots(store, creates=True)

    async def refusal() -> tuple[str, list[str]]:
        before = len(store.calls)
        with pytest.raises(SnapshotError) as refused:
            await used(held, store, runtime)
        return str(refused.value), [call.verb for call in store.calls[before:]]

    await change(store, {"runtime": "["})
    text, verbs = await refusal()
    assert (verbs, decoded) == (["get"], ["["])
    for _ in range(3):
        assert await refusal() == (text, [])
    await change(store, {"runtime": "[", "other": "data"})  # another version with the same text
    assert await refusal() == (text, ["get"])
    assert await refusal() == (text, [])
    assert decoded == ["["]
    await change(store, {})
    assert 'missing "runtime" data key' in (await refusal())[0]
    await change(store, {"runtime": snapshot.encode(runtime)})
    assert await used(held, store, changed_runtime()) == (["get"], "1")


async def test_a_text_is_decoded_once_for_all_train_jobs_that_have_it(
    runtime: ClusterTrainingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_train_job("team-a", "other", uid="uid-2")
    store = Store(config_map(job(), runtime), config_map(other, runtime))
    held = Snapshots(store, creates=True)
    await used(held, store, runtime)
    monkeypatch.setattr(snapshot, "decode", None)
    verbs: list[list[str]] = []
    for _ in range(2):
        before = len(store.calls)
        assert await held.runtime_of(other, ClusterTrainingRuntime, reading(changed_runtime()))
        verbs.append([call.verb for call in store.calls[before:]])
    assert verbs == [["get"], []]


def test_a_snapshot_that_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller_runtime.machinery.yaml.load", None)
    with pytest.raises(snapshot.SnapshotTextError, match="larger than 1048576 bytes"):
        snapshot.decode(ClusterTrainingRuntime, "a" * (1 << 20) + "a", RuntimeRef(name="runtime"))


async def test_the_snapshot_of_another_owner_is_not_even_read(runtime: ClusterTrainingRuntime) -> None:
    store = Store(config_map(job("other"), runtime))
    before = len(store.calls)
    for _ in range(3):
        with pytest.raises(SnapshotError, match="owned by another object"):
            await used(Snapshots(store, creates=True), store, runtime)
    assert len(store.calls) == before


async def test_a_review_sees_an_edited_snapshot(runtime: ClusterTrainingRuntime) -> None:
    store = Store(config_map(job(), runtime))
    held = Snapshots(store, creates=True)
    assert await held.existing(job(), ClusterTrainingRuntime)
    await change(store, {"runtime": snapshot.encode(changed_runtime())})
    found = await held.existing(job(), ClusterTrainingRuntime)
    assert found is not None
    assert _version(found) == "2"
    await store.delete(config_map(job(), runtime))
    assert await held.existing(job(), ClusterTrainingRuntime) is None
