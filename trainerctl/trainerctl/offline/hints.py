# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Suggests which field was meant by an unknown field."""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Mapping
from typing import Final

from controller_runtime.machinery import JSON

from trainerctl.offline import objectmeta
from trainerctl.offline.problem import Path, render

Schema = Mapping[str, JSON]

_FORMER: Final = {
    "podSpecOverrides": "since Trainer v2.1, it is podTemplateOverrides, and the fields of a pod are below its spec",
    "targetJob": "targetJobs is a list of {name: JOB}",
    "targetReplicatedJobs": "it is targetJobs, a list of {name: JOB}",
    "trainingRuntimeRef": "it is runtimeRef",
    "datasetConfig": "it is initializer.dataset",
    "modelConfig": "it is initializer.model",
    "mlSpec": "it is mlPolicy",
}
"""Names of fields in earlier releases and drafts of Trainer, and the fields that replace them."""
_LEVELS: Final = 6
"""The depth to which a field of the same name is searched."""
_UNQUOTED: Final = re.compile(r'must be of type string: "(?:boolean|integer|number)"$')
_LIKE: Final = 0.75
_PREFIX: Final = 4


def with_quotes(text: str) -> str:
    """Return the text of a problem. If a string is expected, but YAML reads the value as another type, add the remedy.

    For example, YAML reads ``y``, ``off`` and ``010`` as other types.
    """
    return f"{text}; to make it a string, put it in quotes" if _UNQUOTED.search(text) else text


def hint(schema: Schema, path: Path) -> str:
    """Return a text to append to the error about the unknown field at ``path``. It may be empty."""
    name = str(path[-1])
    beside = objectmeta.FIELDS if path[0] == "metadata" else _properties(_at(schema, path[:-1]))
    if name in _FORMER and name not in beside:
        return f"; {_FORMER[name]}"
    plain = {_plain(each): each for each in beside}
    if (same := plain.get(_plain(name))) is None:
        if (elsewhere := _elsewhere(schema, name)) is not None:
            return f"; did you mean {render(elsewhere)}?"
        longer = [each for each in plain if each.startswith(_plain(name)) and len(name) >= _PREFIX]
        like = longer or difflib.get_close_matches(_plain(name), plain, 1, _LIKE)
        same = plain[like[0]] if like else None
    return f"; did you mean {same}?" if same else ""


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()[:64]


def _properties(schema: Schema) -> Mapping[str, Schema]:
    return schema.get("properties") or {}


def _at(schema: Schema, path: Path) -> Schema:
    for step in path:
        if isinstance(step, int):
            schema = schema.get("items") or {}
        else:
            schema = _properties(schema).get(step) or {}
    return schema


def _elsewhere(schema: Schema, name: str) -> Path | None:
    """Return the shortest path below ``spec`` with the last step ``name``, or None."""
    queue: deque[tuple[Path, Schema]] = deque([(("spec",), _at(schema, ("spec",)))])
    while queue:
        path, each = queue.popleft()
        properties = _properties(each)
        if name in properties:
            return (*path, name)
        if len(path) < _LEVELS:
            queue += (((*path, key), below) for key, below in properties.items())
            if isinstance(items := each.get("items"), dict):
                queue.append((_of_items(path), items))
    return None


def _of_items(path: Path) -> Path:
    return (*path[:-1], f"{path[-1]}[*]")
