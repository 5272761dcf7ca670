# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the changes between two JSON values. As in Kubernetes, list items are identified by their names.

The changes are complete: applying them to the earlier value gives the later value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from controller_runtime.machinery import JSON
from controller_runtime.machinery.yaml import render_path
from pkg.apply import item_key

ABSENT: Final = object()
"""Distinguishes an absent value from null."""


class Item(NamedTuple):
    """A step in a path: the list item whose field ``key`` has the value ``value``."""

    key: str
    value: JSON


Step = str | Item
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One path whose value was added, removed or replaced."""

    path: Path
    before: JSON = ABSENT
    after: JSON = ABSENT
    index: int | None = None
    """The index at which a list item was inserted."""

    @property
    def where(self) -> str:
        """The path in human-readable form, such as ``spec.replicatedJobs[node].replicas``."""
        return render(self.path)


def render(path: Path) -> str:
    """Return a path in human-readable form."""
    text = ""
    for step in path:
        if isinstance(step, Item):
            text += f"[{step.value}]"
        else:
            more = render_path((step,))
            text += f".{more}" if text and not more.startswith("[") else more
    return text


def touches(one: Path, other: Path) -> bool:
    """Return True if one of two paths is a prefix of the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


def difference(before: JSON, after: JSON, path: Path = ()) -> Iterator[Change]:
    """Yield the changes from ``before`` to ``after``."""
    if before is not ABSENT and after is not ABSENT and type(before) is type(after) and before == after:
        return
    if _both(dict, before, after):
        yield from _of_maps(before, after, path)
        return
    key: str | None = None
    if _both(list, before, after):
        key = item_key(after) if before is ABSENT else item_key(before, after)
    if key is None:
        yield Change(path, before, after)
    else:
        yield from _of_lists(before, after, key, path)


def _both(kind: type, before: object, after: object) -> bool:
    """Return True if both values have the type ``kind``.

    If ``before`` is absent, only ``after`` must have this type, and must not be empty.
    """
    if before is ABSENT:
        return isinstance(after, kind) and bool(after)
    return isinstance(before, kind) and isinstance(after, kind)


def _of_maps(before: JSON, after: dict[str, JSON], path: Path) -> Iterator[Change]:
    before = {} if before is ABSENT else before
    for name in [*before, *(name for name in after if name not in before)]:
        yield from difference(before.get(name, ABSENT), after.get(name, ABSENT), (*path, name))


def _of_lists(before: JSON, after: list[JSON], key: str, path: Path) -> Iterator[Change]:
    old = {item[key]: item for item in ([] if before is ABSENT else before)}
    new = {item[key]: item for item in after}
    if [name for name in old if name in new] != [name for name in new if name in old]:
        yield Change(path, before, after)
        return
    for name, item in old.items():
        if name not in new:
            yield Change((*path, Item(key, name)), before=item)
    for index, (name, item) in enumerate(new.items()):
        step = (*path, Item(key, name))
        if name in old:
            yield from difference(old[name], item, step)
        else:
            yield Change(step, after=item, index=index)
