# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the removed pods of a TrainJob and their logs from the folder in which a local cluster keeps them.

The API server cannot be asked for them: it serves logs only of pods that exist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pkg.why import LiveObject, Snapshot, failed_containers

from trainerctl.localcluster import names

_LOGS: Final = 3
_LINES: Final = 100
_LOOPBACK: Final = "https://127.0.0.1:"


def folder_of(address: str) -> Path | None:
    """Return the folder with the removed pods of the local cluster whose API server has this address.

    If no local cluster of this user has it, return None.
    """
    if not address.startswith(_LOOPBACK):
        return None
    try:
        root = names.root_directory()
    except ValueError:
        return None
    for directory in sorted(root.iterdir()) if root.is_dir() else ():
        if names.server_of(directory) == address.rstrip("/"):
            return directory / names.REMOVED
    return None


def with_removed(folder: Path | None, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the removed pods of the TrainJob, and the ends of the logs of failed containers."""
    if folder is None:
        return snapshot
    from trainerctl.localcluster.podlogs.removed import RemovedPods

    job, logs = snapshot.train_job, dict(snapshot.logs)
    found = dataclasses.replace(snapshot, removed_pods=RemovedPods(folder).of(job.namespace, job.name))
    kept = [status for status in failed_containers(found) if status.is_kept]
    for status in kept[:_LOGS]:
        lines = log(folder, status.pod, status.name, tail=_LINES, previous=status.is_previous)
        logs[status.pod.name, status.name] = list(lines)
    return dataclasses.replace(found, logs=logs)


def log(
    folder: Path, pod: LiveObject, container: str, *, tail: int | None = None, previous: bool = False
) -> Iterable[str]:
    """Return the lines of the log of a removed pod. If the pod has no such log, there are no lines."""
    from trainerctl.localcluster.podlogs import simulated
    from trainerctl.localcluster.podlogs.removed import RemovedPods
    from trainerctl.localcluster.podlogs.server import Query
    from trainerctl.localcluster.processes import logs

    kept = RemovedPods(folder).logs(pod.uid, container)
    if runs := logs.runs(kept):
        wanted = runs[-2:-1] if previous else runs[-1:]
        readers = [logs.LogReader(kept / str(run), Query(tail=tail)) for run in wanted]
        try:
            return (
                b"".join(piece for each in readers for piece in each.read())
                .decode(errors="replace")
                .splitlines()
            )
        finally:
            for each in readers:
                each.close()
    lines = simulated.lines(simulated.Container(pod, container), datetime.now(UTC)) if not previous else []
    return [line.text for line in Query(tail=tail).first(lines)]
