# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The removed pods that a local cluster keeps: how many, how long, and what survives damage."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ServerError
from testkit.builders import make_train_job

from trainerctl.localcluster.podlogs.removed import RemovedPods


def _pod(name: str, train_job: str = "llama", **metadata: Any) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/jobset-name": train_job} if train_job else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels, **metadata},
    }


def _names(removed: RemovedPods, train_job: str = "llama") -> list[str]:
    return [pod.name for pod in removed.of("team", train_job)]


def test_a_later_process_finds_the_pods_that_an_earlier_one_kept(tmp_path: Path) -> None:
    removed = RemovedPods(tmp_path)
    removed.keep(_pod("a", managedFields=[{"manager": "kubelet"}]))
    removed.keep(_pod("b", train_job="other"))
    removed.keep(_pod("c", train_job=""))

    (found,) = RemovedPods(tmp_path).of("team", "llama")

    assert (found.name, found.at("metadata", "managedFields")) == ("a", None)
    assert _names(removed, "other") == ["b"]
    assert not (tmp_path / "uid-c").exists()


@pytest.mark.parametrize("bound", [{"most": 2}, {"most_bytes": 25_000}])
def test_the_oldest_pods_are_dropped_first(tmp_path: Path, bound: dict[str, int]) -> None:
    def write(folder: Path) -> None:
        (folder / "log").write_bytes(b"x" * 10_000)

    removed = RemovedPods(tmp_path, **bound)

    for name in "abcd":
        removed.keep(_pod(name), write)

    assert _names(removed) == ["c", "d"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["uid-c", "uid-d"]


def test_a_damaged_pod_is_left_out_and_a_full_disk_keeps_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError("no space left on device")

    removed = RemovedPods(tmp_path)
    removed.keep(_pod("a"))
    removed.keep(_pod("b"), fail)
    (tmp_path / "uid-a" / "pod.json").write_bytes(b"[" * 100_000)

    assert _names(removed) == _names(RemovedPods(tmp_path)) == []
    assert not (tmp_path / "uid-b").exists()


class Failing(FakeClient):
    """A client whose first list fails."""

    def __init__(self, *objects: Any) -> None:
        super().__init__(*objects)
        self.lists: list[float] = []

    async def list(self, kind: Any, **options: Any) -> Any:
        self.lists.append(anyio.current_time())
        if len(self.lists) == 1:
            raise ServerError("no answer", code=500, reason="InternalError")
        return await super().list(kind, **options)


async def test_pods_are_kept_as_long_as_their_train_job_exists(tmp_path: Path) -> None:
    jobs = [make_train_job("team", name) for name in ("llama", "other")]
    jobs[0].metadata.creation_timestamp = "2026-01-01T00:00:00Z"
    jobs[
        1
    ].metadata.creation_timestamp = "2026-01-03T00:00:00Z"  # younger than the pod of an earlier TrainJob
    client = Failing(*jobs)
    removed = RemovedPods(tmp_path)
    for name, job in (("a", "llama"), ("b", "other"), ("c", "gone")):
        removed.keep(_pod(name, job, creationTimestamp="2026-01-02T00:00:00Z"))

    def kept() -> list[str]:
        return [*_names(removed), *_names(removed, "other"), *_names(removed, "gone")]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(removed.follow, client)
        await anyio.sleep(4)
        assert kept() == ["a", "b", "c"]
        await anyio.sleep(4)
        assert ([each - client.lists[0] for each in client.lists], kept()) == ([0, 5], ["a"])
        removed.keep(_pod("d", "gone"))
        await client.create(make_train_job("team", "late"))
        await anyio.sleep(1)
        removed.keep(_pod("e", "late", creationTimestamp="9999-01-01T00:00:00Z"))
        assert (kept(), _names(removed, "late")) == (["a"], ["e"])
        await client.delete(jobs[0])
        await anyio.sleep(1)
        assert (kept(), _names(removed, "late")) == ([], ["e"])
        tasks.cancel_scope.cancel()
