# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainJobs that an event enqueues, by plugin: a stub of a builder records the plugins' watches."""

from __future__ import annotations

from typing import Any, cast

from controller_runtime import event
from controller_runtime.machinery import Object

from pkg.runtime.framework import WatchExtensionPlugin
from pkg.runtime.framework.plugins import registry

from .world import Cluster, decode, runtimes


class _Notes:
    """A stub of a controller builder, with the methods that plugins use."""

    def __init__(self) -> None:
        self.watched: list[tuple[type[Object], Any, tuple[Any, ...]]] = []

    def watches(self, kind: type[Object], handler: Any, *predicates: Any, **_options: Any) -> _Notes:
        self.watched.append((kind, handler, predicates))
        return self

    def watches_raw_source(self, _source: Any) -> _Notes:
        return self


class _Queue:
    """A stub of a work queue, with the method that handlers use."""

    def __init__(self) -> None:
        self.requests: set[str] = set()

    def add(self, request: Any, **_options: Any) -> None:
        self.requests.add(f"{request.namespace}/{request.name}")


class _Cache:
    """A stub of a cache whose watches were never interrupted."""

    def interrupted_since(self, _kind: type[Object]) -> float | None:
        return None


async def woken_by(cluster: Cluster, happened: dict[str, Any]) -> dict[str, list[str]]:
    """Return the TrainJobs that the event enqueues, by plugin; plugins that do not watch its kind are omitted."""
    await runtimes(cluster)
    subject = decode(happened["object"])
    woken: dict[str, list[str]] = {}
    for name, factory in registry.new_registry(found=()).items():
        plugin = await factory(cluster, _NoIndexer())
        if not isinstance(plugin, WatchExtensionPlugin):
            continue
        notes: Any = _Notes()
        for add_watches in plugin.reconciler_builders():
            notes = add_watches(notes, cluster, cast("Any", _Cache()))
        concerned = [watch for watch in notes.watched if watch[0].gvk == subject.gvk]
        if concerned:
            queue = _Queue()
            for _, handler, predicates in concerned:
                await _tell(handler, predicates, happened["type"], subject, queue)
            woken[name.lower()] = sorted(queue.requests)
    return woken


async def _tell(handler: Any, predicates: tuple[Any, ...], kind: str, subject: Object, queue: _Queue) -> None:
    made: Any
    match kind:
        case "create":
            made = event.CreateEvent(subject)
        case "update":
            made = event.UpdateEvent(subject.deep_copy(), subject)
        case "delete":
            made = event.DeleteEvent(subject)
        case _:
            made = event.GenericEvent(subject)
    passes = all(getattr(predicate, kind)(made) for predicate in predicates)
    if passes and (waiting := getattr(handler, kind)(made, queue)) is not None:
        await waiting


class _NoIndexer:
    """Ignores indices, because the runtimes have registered them."""

    async def index_field(self, kind: Any, field: str, extract: Any, *, reads: Any = None) -> None:
        del kind, field, extract, reads
