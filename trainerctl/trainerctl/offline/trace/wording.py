# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Changes and values as one-line texts for ``trainerctl explain``."""

from __future__ import annotations

import json
import shlex
from typing import Final

from controller_runtime.machinery import JSON
from pkg.apis.jobset.v1alpha2 import JobSet

from trainerctl.offline.trace.diff import ABSENT, Change, Item, Path, render

_JOB: Final = ("spec", "replicatedJobs")
_POD: Final = ("template", "spec", "template")
_IDENTITY: Final = (("apiVersion",), ("kind",))
_OF_METADATA: Final = (("name",), ("namespace",), ("ownerReferences",))
LINE_WIDTH: Final = 70
"""Maximum number of characters of a value, or of old and new value together, in one line."""


def is_obvious(change: Change) -> bool:
    """Return True for a change that every TrainJob has: identity and owner of built objects, one pod per job."""
    path = change.path
    if path[1:2] in _IDENTITY or (path[1:2] == ("metadata",) and path[2:3] in _OF_METADATA):
        return True
    return path[-1] == "completions" or (path[-1] == "parallelism" and change.after == 1)


def place(path: Path) -> tuple[str, str]:
    """Return the job, pods or container that a path leads into, and the rest of the path."""
    if len(path) == 1:
        return "objects", str(path[0])
    where, rest = str(path[0]), path[1:]
    if rest[:2] == _JOB and len(rest) > 2 and isinstance(rest[2], Item):
        where, rest = f"job {rest[2].value}", rest[3:]
        if rest[:3] == _POD:
            where, rest = f"{where}, pods", rest[3:]
            if len(rest) > 2 and rest[1] in ("containers", "initContainers") and isinstance(rest[2], Item):
                where, rest = f"{where.removesuffix(', pods')}, container {rest[2].value}", rest[3:]
            elif len(rest) > 1 and rest[0] == "spec":
                rest = rest[1:]
        elif rest[:2] == ("template", "spec"):
            rest = rest[2:]
    return where, render(rest) or "(all of it)"


def short(value: JSON, path: Path) -> str:
    """Return a value in one line; a list item without the key that is in its path."""
    if isinstance(value, dict):
        if "kind" in value and "metadata" in value:
            return f"{value['metadata'].get('name')}"
        key = path[-1].key if path and isinstance(path[-1], Item) else ""
        beside = {name: held for name, held in value.items() if name != key} or value
        if len(beside) == 1:
            ((name, held),) = beside.items()
            return short(held, ()) if name == "value" else _cut(f"{name} {_flow(held)}")
        return _cut(_flow(beside))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _cut(" ".join(shlex.join(value).split()))
    return _cut(_flow(value))


def _flow(value: JSON) -> str:
    if value is ABSENT:
        return ""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_flow(held)}' for name, held in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= LINE_WIDTH else f"{text[: LINE_WIDTH - 3]}..."


def summary(name: str, data: dict[str, JSON]) -> str:
    """Return kind and name of an object, and the pods of a JobSet."""
    kind = name.partition(" ")[0]
    text = f"{kind} {data.get('metadata', {}).get('name')}"
    if kind != JobSet.gvk.kind:
        return text
    jobs = data.get("spec", {}).get("replicatedJobs") or ()
    pods = [f"{job['name']} {job['template']['spec'].get('parallelism', 1)}" for job in jobs]
    return f"{text} (pods: {', '.join(pods)})"
