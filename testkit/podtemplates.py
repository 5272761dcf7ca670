# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pod templates on each side of each bound of the check, with the fields that it names."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

_FILE = Path(__file__).parents[1] / "test/testdata/podtemplates.yaml"


@functools.cache
def templates() -> dict[str, list[str] | None]:
    """Return changes of a Job and the fields that the check names; None if an API server refuses for another reason."""
    found: dict[str, list[str] | None] = yaml.load(_FILE.read_bytes(), yaml.CSafeLoader)
    return found


def changed_job(changes: str) -> dict[str, Any]:
    """Return a Job with the changes."""
    made = yaml.safe_load(changes)
    pod = {"restartPolicy": "Never", **made.get("pod", {})}
    pod.setdefault("containers", [{"name": "node", "image": "busybox", **made.get("node", {})}])
    template = {"metadata": made.get("meta", {}), "spec": pod}
    spec = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": template}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": spec | made.get("job", {}),
    }
