# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Processor: the handlers of a kind; each receives the existing objects in the background, and changes in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.lowlevel

from controller_runtime import cancellation, log
from controller_runtime.machinery import NamespacedName, Object

from . import codec, errors
from .backoff import RandomFunc
from .delivery import CachedObject, EventHandlerFuncs, LazyHandlerFuncs, Registration
from .echoes import Echoes
from .reflector import STEP
from .store import Store
from .unreadable import Unreadable

T = TypeVar("T", bound=Object)
Args = TypeVarTuple("Args")
_log = log.logger_from("cache")


class Processor:
    """The handlers of a kind. A handler that fails is reported, and stops neither the others nor the watch."""

    def __init__(
        self, kind: type[Object], store: Store, unreadable: Unreadable, synced: Callable[[], bool]
    ) -> None:
        self._kind = kind
        self._store = store
        self._unreadable = unreadable
        self._synced = synced
        self._registrations: list[Registration] = []
        self._backlog = anyio.Event()
        self._echoes = Echoes()

    # Own writes.

    def writing(self, key: NamespacedName) -> AbstractContextManager[None]:
        """Report changes of ``key`` when the body is done: by then our own writes are known."""
        return self._echoes.writing(key)

    def answered(self, entry: codec.Entry) -> None:
        """Recognize the change that reports ``entry``, which the server returned for a write."""
        self._echoes.answered(entry.key, entry.uid, entry.resource_version)

    # Changes.

    def put(
        self,
        key: NamespacedName,
        new: CachedObject[Object],
        before: codec.Entry | None,
        *,
        initial: bool,
        listed: bool,
    ) -> None:
        """Report that an object exists in this state."""
        if self._registrations:
            old = CachedObject(self._kind, before) if before is not None else None
            notify = partial(self._notify_put, new, old, initial)
            self._echoes.deliver(key, None if listed else new, notify)

    def deleted(self, key: NamespacedName, last: codec.Entry, *, unknown: bool) -> None:
        """Report a deletion; ``unknown`` if the final state was missed."""
        gone = CachedObject(self._kind, last)
        self._echoes.deliver(key, None, partial(self._notify_deleted, gone, unknown))

    def ended(self, entry: codec.Entry) -> None:
        """Report the end of an object that readers saw because we wrote it, and that the watch never delivered."""
        made, ended = CachedObject(self._kind, entry), CachedObject(self._kind, entry)
        made.own_write = True
        self._echoes.deliver(entry.key, None, partial(self._notify_put, made, None, False))
        self._echoes.deliver(entry.key, None, partial(self._notify_deleted, ended, True))

    def _notify_put(self, new: CachedObject[Object], old: CachedObject[Object] | None, initial: bool) -> None:
        for registration in tuple(self._registrations):
            self._guard(registration.on_put, new, old, initial)

    def _notify_deleted(self, last: CachedObject[Object], unknown: bool) -> None:
        for registration in tuple(self._registrations):
            self._guard(registration.on_gone, last, unknown)

    def _guard(self, notify: Callable[[Unpack[Args]], None], *args: *Args) -> None:
        try:
            notify(*args)
        except errors.UndecodableObjectError as error:
            self._unreadable.skip(error)
        except cancellation.FAILURES as error:  # a failed handler must not stop others or the watch
            _log.error("Handler failed", kind=str(self._kind.gvk.group_kind), error=error)

    # Handlers.

    def register(self, kind: type[T], handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report every existing object, and every change, to ``handler``."""
        self._echoes.release_all()  # the new handler must not receive stored objects twice
        registration = Registration(kind, handler, self._unregister)
        registration.bind(self._synced)
        registration.backlog = dict.fromkeys(self._store.observed_keys(), True)
        self._registrations.append(registration)
        self._backlog.set()
        return registration

    def _unregister(self, registration: Registration) -> None:
        if registration in self._registrations:
            self._registrations.remove(registration)
        registration.backlog.clear()

    async def deliver_backlog(self) -> None:
        """Report existing objects to handlers that were registered later, until cancelled."""
        while True:
            await self._backlog.wait()
            self._backlog = anyio.Event()
            for registration in tuple(self._registrations):
                await self._work_off(registration)

    async def _work_off(self, registration: Registration) -> None:
        number = 0
        while registration.backlog:
            # Iterate over a copy: taking the first key each time would walk past all deleted slots of the dict.
            for key in tuple(registration.backlog):
                self._echoes.release(key)
                if (adding := registration.backlog.get(key)) is None:
                    continue
                if (entry := self._store.observed(key)) is not None:
                    obj = CachedObject(self._kind, entry)
                    self._guard(registration.on_put, obj, None if adding else obj, True)
                registration.backlog.pop(key, None)
                number += 1
                if number % STEP == 0:
                    await anyio.lowlevel.checkpoint()

    async def resync(self, period: float, random: RandomFunc) -> None:
        """Report every object to every handler each ``period``, give or take a tenth, until cancelled."""
        while True:
            await anyio.sleep(period * (0.9 + 0.2 * random()))
            for registration in self._registrations:
                for key in self._store.observed_keys():
                    registration.backlog.setdefault(key, False)
            self._backlog.set()


def writing(processors: Sequence[Processor], key: NamespacedName) -> AbstractContextManager[None]:
    """Report changes of ``key`` to the handlers of all ``processors`` when the body is done."""
    return processors[0].writing(key) if len(processors) == 1 else _writing(processors, key)


@contextmanager
def _writing(processors: Sequence[Processor], key: NamespacedName) -> Iterator[None]:
    with ExitStack() as stack:
        for processor in processors:
            stack.enter_context(processor.writing(key))
        yield
