# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl get --watch``: shows how TrainJobs change, or how one TrainJob and its objects change. On a terminal,
the table or tree is drawn again after each change. In a pipe, each change is printed as a line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Self

import anyio
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import ExpiredError, ForbiddenError
from controller_runtime.rest import NoKindMatchError
from pkg.apis.jobset.labels import JOB_SET_NAME_KEY
from pkg.why import LiveObject, Snapshot, kinds
from pkg.why.phase import Phase, phase
from pkg.why.reading import Selection
from rich.live import Live
from rich.text import Text

from trainerctl.cli import get, live, streams
from trainerctl.cli.terminal import Console, columns

_REFRESH: Final = 1.0
"""Seconds after which the screen is drawn again even without changes, because ages have changed."""
_PAUSE: Final = 0.1
"""After drawing, we collect changes for this many seconds before we draw again."""

Draw = Callable[["Objects"], Iterable[tuple[str, ...]]]


class Objects:
    """The live objects by kind and key. Watches keep them up to date."""

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, str], LiveObject]] = {}
        self.changed = anyio.Event()
        self.listed: set[str] = set()
        """The kinds whose objects have been listed."""

    def all(self, kind: str) -> list[LiveObject]:
        return list(self._found.get(kind, {}).values())

    def snapshot(self) -> Snapshot | None:
        """Return the objects of the TrainJob that is watched, or None if it does not exist."""
        found = self.all(kinds.TRAIN_JOB)
        others = {kind: self.all(kind) for kind in self._found if kind != kinds.TRAIN_JOB}
        return Snapshot(found[0], datetime.now(UTC), others) if found else None

    async def follow(self, cluster: live.Connection, kind: str, selection: Selection) -> None:
        """Keep the objects of a kind up to date until cancelled.

        Return if the kind is not installed or may not be read, except for TrainJobs.
        """
        watched = unstructured(kinds.VERSIONS[kind][0])
        while True:
            try:
                listed = await cluster.client.list(watched, **selection)
                self._found[kind] = {
                    (each.namespace, each.name): LiveObject(each.to_dict()) for each in listed
                }
                self._note(kind)
                version = listed.resource_version
                async with cluster.client.watch(watched, resource_version=version, **selection) as events:
                    async for event in events:
                        self.apply(kind, event.type, LiveObject(event.object.to_dict()))
            except ExpiredError:
                continue
            except (NoKindMatchError, ForbiddenError):
                if kind == kinds.TRAIN_JOB:
                    raise
                self._found.pop(kind, None)
                self._note(kind)
                return

    def apply(self, kind: str, change: str, obj: LiveObject) -> None:
        """Apply one watch event of the type ``change``."""
        found = self._found.setdefault(kind, {})
        if change == "DELETED":
            found.pop((obj.namespace, obj.name), None)
        else:
            found[obj.namespace, obj.name] = obj
        self._note(kind)

    def _note(self, kind: str) -> None:
        self.listed.add(kind)
        self.changed.set()


async def watch_one(cluster: live.Connection, name: str, out: Console) -> int:
    """Show a TrainJob until it has ended or is deleted. Return 1 if it does not exist or has failed."""
    namespace = cluster.namespace
    labelled = Selection(namespace=namespace, labels={JOB_SET_NAME_KEY: name})
    named = Selection(namespace=namespace, fields={"metadata.name": name})
    selections = {kinds.TRAIN_JOB: named, kinds.JOB_SET: named, kinds.JOB: labelled, kinds.POD: labelled}
    last: Phase | None = None

    def finished(objects: Objects) -> bool:
        nonlocal last
        snapshot = objects.snapshot()
        if snapshot is None:
            return True
        last = phase(snapshot.train_job)
        return last.ended

    rows = functools.partial(tree_rows, ages=out.is_terminal)
    await _watch(cluster, selections, Screen(out, get.TREE_HEAD, rows), finished)
    if last is None:
        streams.say_error(f"TrainJob {namespace}/{name} does not exist")
    elif not last.ended:
        streams.say_error(f"TrainJob {namespace}/{name} was deleted")
    return 0 if last is not None and last is not Phase.FAILED else 1


async def watch_all(cluster: live.Connection, namespace: str, out: Console) -> int:
    """Show the TrainJobs of one or all namespaces until cancelled.

    The pods of all namespaces would be too many: without ``namespace``, the TrainJobs alone tell their state.
    """
    selections = {kinds.TRAIN_JOB: Selection(namespace=namespace)}
    if namespace:
        selections[kinds.JOB_SET] = Selection(namespace=namespace)
        selections[kinds.POD] = Selection(namespace=namespace, labels=JOB_SET_NAME_KEY)
    screen = Screen(out, get.HEAD[1:], lambda objects: _jobs(objects, bool(namespace), ages=out.is_terminal))
    await _watch(cluster, selections, screen, lambda _objects: False)
    return 0


class Screen:
    """Draws rows. The first cell of a row is its name, and the third is an age.

    In a pipe, a row is not printed again if only its age has changed.
    """

    def __init__(self, out: Console, head: tuple[str, ...], rows: Draw) -> None:
        self._out = out
        self._head = head
        self._rows = rows
        self._live: Live | None = None
        self._printed: dict[str, tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        if self._out.is_terminal:
            self._live = Live(console=self._out, auto_refresh=False, vertical_overflow="ellipsis")
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, objects: Objects) -> None:
        """On a terminal, draw everything. In a pipe, print the rows that have changed."""
        rows = list(self._rows(objects))
        if self._live is not None:
            lines = columns(self._head, rows, room=self._out.width)
            self._live.update(Text("\n").join(lines), refresh=True)
            return
        current = {row[0].strip(): row[:2] + row[3:] for row in rows}
        for name, row in current.items():
            if self._printed.get(name) != row:
                self._out.say(f"{_clock()}  {name}  {'  '.join(each for each in row[1:] if each)}")
        for name in self._printed.keys() - current.keys():
            self._out.say(f"{_clock()}  {name}  deleted")
        self._printed = current
        streams.flush()


async def _watch(
    cluster: live.Connection,
    selections: Mapping[str, Selection],
    screen: Screen,
    finished: Callable[[Objects], bool],
) -> None:
    objects = Objects()
    async with anyio.create_task_group() as group:
        for kind, selection in selections.items():
            group.start_soon(objects.follow, cluster, kind, selection)
        with screen:
            while True:
                with anyio.move_on_after(_REFRESH):
                    await objects.changed.wait()
                objects.changed = anyio.Event()
                if objects.listed >= selections.keys():
                    screen.draw(objects)
                    if finished(objects):
                        break
                await anyio.sleep(_PAUSE)
        group.cancel_scope.cancel()


def tree_rows(objects: Objects, *, ages: bool = True) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the tree for the TrainJob that is watched."""
    snapshot = objects.snapshot()
    if snapshot is not None:
        yield from get.tree_rows(snapshot, ages=ages)


def _jobs(objects: Objects, with_name_alone: bool, *, ages: bool) -> Iterator[tuple[str, ...]]:
    others = [*objects.all(kinds.JOB_SET), *objects.all(kinds.POD)]
    rows = get.rows_of(objects.all(kinds.TRAIN_JOB), others, datetime.now(UTC), ages=ages)
    for namespace, name, *cells in rows:
        yield name if with_name_alone else f"{namespace}/{name}", *cells


def _clock() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S")
