# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The removed pods that a local cluster keeps: how many, how long, and what survives damage."""

from pathlib import Path
from typing import Any

import pytest

from trainerctl.cli import removedpods
from trainerctl.localcluster.podlogs.removed import RemovedPods
from trainerctl.localcluster.processes.logs import save_ends


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


def test_the_ends_of_the_last_two_runs_of_a_log_are_kept(tmp_path: Path) -> None:
    line = b"2026-01-01T00:00:00.000000Z F step\n"
    for run in range(3):
        folder = tmp_path / "logs" / "node" / str(run)
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(line * 10_000)
        (folder / "1.log").write_bytes(line.replace(b"step", b"run%d" % run))
    removed = RemovedPods(tmp_path / "removed")
    removed.keep(_pod("a"), lambda folder: save_ends(tmp_path / "logs", folder))
    (pod,) = removed.of("team", "llama")

    read = removedpods.log(tmp_path / "removed", pod, "node", tail=1)
    previous = list(removedpods.log(tmp_path / "removed", pod, "node", previous=True))

    assert list(read) == ["run2"]
    assert (previous[0], previous[-1]) == ("step", "run1")
    kept = sum(path.stat().st_size for path in (tmp_path / "removed").rglob("*.log"))
    assert 2 * 200_000 < kept <= 2 << 18


def test_only_the_cluster_with_the_address_of_the_api_server_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainerctl.localcluster.state import State

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = tmp_path / "trainer-controller-manager" / "cluster" / "local"
    directory.mkdir(parents=True)
    State("https://127.0.0.1:4321", "", 1, []).write(directory)

    assert removedpods.folder_of("https://127.0.0.1:4321") == directory / "removed-pods"
    assert removedpods.folder_of("https://127.0.0.1:4322") is None
    assert removedpods.folder_of("https://10.0.0.1:4321") is None
