# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The removed pods of a local cluster, as the tool reads them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pkg.why import LiveObject, Snapshot

from trainerctl.cli import removedpods
from trainerctl.localcluster.state import State


def write_two_runs(removed: Path) -> None:
    for run in (1, 2):
        folder = removed / "uid-a" / "logs" / "node" / str(run)
        folder.mkdir(parents=True)
        lines = (f"2026-01-01T00:00:00.000000Z F {text}\n" for text in ("step", f"run{run}"))
        (folder / "0.log").write_text("".join(lines))


def test_the_log_of_a_removed_pod_is_that_of_its_last_run_or_of_the_run_before(tmp_path: Path) -> None:
    write_two_runs(tmp_path)
    pod = LiveObject({"metadata": {"uid": "uid-a"}})

    assert list(removedpods.log(tmp_path, pod, "node", tail=1)) == ["run2"]
    assert list(removedpods.log(tmp_path, pod, "node", previous=True)) == ["step", "run1"]
    assert list(removedpods.log(tmp_path, pod, "other")) == []


def test_only_the_cluster_with_the_address_of_the_api_server_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = tmp_path / "trainer-controller-manager" / "cluster" / "local"
    directory.mkdir(parents=True)
    State("https://127.0.0.1:4321", "", 1, []).write(directory)

    assert removedpods.folder_of("https://127.0.0.1:4321") == directory / "removed-pods"
    assert removedpods.folder_of("https://127.0.0.1:4322") is None
    assert removedpods.folder_of("https://10.0.0.1:4321") is None


def test_the_log_of_a_container_that_crashed_before_it_was_stopped_is_that_of_the_crash(
    tmp_path: Path,
) -> None:
    write_two_runs(tmp_path)
    labels = {"jobset.sigs.k8s.io/jobset-name": "llama"}
    metadata = {"name": "a", "namespace": "team-a", "uid": "uid-a", "labels": labels}
    stopped = {"exitCode": 143, "finishedAt": "2026-01-01T00:01:00Z"}
    crashed = {"exitCode": 3, "finishedAt": "2026-01-01T00:00:00Z"}
    status = {"name": "node", "state": {"terminated": stopped}, "lastState": {"terminated": crashed}}
    pod = {
        "metadata": {**metadata, "deletionTimestamp": "2026-01-01T00:00:30Z"},
        "status": {"containerStatuses": [status]},
    }
    (tmp_path / "uid-a" / "pod.json").write_text(json.dumps(pod))
    failed = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    job = LiveObject({"metadata": {"name": "llama", "namespace": "team-a"}, **failed})

    found = removedpods.with_removed(tmp_path, Snapshot(job, datetime(2026, 1, 2, tzinfo=UTC)))

    assert found.logs == {("a", "node"): ["step", "run1"]}
