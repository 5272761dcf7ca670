# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies the recorded changes of a JSON value, to check that they are complete."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from controller_runtime.machinery import JSON
from trainerctl.offline.trace.diff import ABSENT, Change, Item, Path, Step


def replay(value: JSON, changes: Iterable[Change]) -> JSON:
    """Return a copy of ``value`` with the changes applied."""
    root = {"": copy.deepcopy(value)} if value is not ABSENT else {}
    for change in changes:
        _apply(root, ("", *change.path), change)
    return root.get("", ABSENT)


def _apply(holder: JSON, path: Path, change: Change) -> None:
    step, *rest = path
    if rest:
        _apply(_below(holder, step, create=[] if isinstance(rest[0], Item) else {}), tuple(rest), change)
    elif isinstance(step, Item):
        if change.before is not ABSENT:
            holder.remove(_find(holder, step))
        if change.after is not ABSENT:
            holder.insert(change.index, copy.deepcopy(change.after))
    elif change.after is ABSENT:
        del holder[step]
    else:
        holder[step] = copy.deepcopy(change.after)


def _below(holder: JSON, step: Step, *, create: JSON) -> JSON:
    if isinstance(step, Item):
        return _find(holder, step)
    return holder.setdefault(step, create)


def _find(items: list[JSON], step: Item) -> JSON:
    return next(item for item in items if item[step.key] == step.value)
