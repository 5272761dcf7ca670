# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handlers map an event to requests for the objects that the event concerns.

Handlers need not set a priority: sources give events of the first list and of resyncs a lower priority than all other
events (:data:`controller_runtime.workqueue.LOW_PRIORITY`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from controller_runtime import event, workqueue
from controller_runtime.machinery import Object, Resource, arguments
from controller_runtime.machinery.object import Owners
from controller_runtime.reconcile import Request

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)

LOW_PRIORITY = workqueue.LOW_PRIORITY
Queue = workqueue.Adder[Request]
MapFunc = Callable[[T], Awaitable[Iterable[Request]]]
Discover = Callable[[type[Object]], Awaitable[Resource]]


class EventHandler(ABC, Generic[T_contra]):
    """Adds the requests for an event. Events of one source arrive one after another, in order.

    The methods for events are coroutine functions, or plain functions that return None. If a method raises, its event
    is retried after a second, and then with growing delays. Later events may therefore be handled before that event.
    """

    immediate: bool = False
    """True if all methods for events are plain functions. The events then need no buffer and no task switch."""

    async def prepare(self, discover: Discover) -> None:
        """Discover the other kinds that the methods need. This is called once, before the first event.

        Raises:
            StatusError, RestError: a kind cannot be discovered now. Events are delivered nevertheless.
        """

    def decode(self, evt: event.Event[T_contra]) -> None:
        """Decode the parts of an event that the methods read. If the handler is not immediate, this is called first for
        each event.

        If the object cannot be decoded, this method raises UndecodableObjectError, and the cache skips the object. If a
        method for events raised that error later, the event would be retried again and again.
        """
        _objects(evt)

    @abstractmethod
    def create(self, evt: event.CreateEvent[T_contra], queue: Queue) -> Awaitable[None] | None:
        """Handle a creation."""

    @abstractmethod
    def update(self, evt: event.UpdateEvent[T_contra], queue: Queue) -> Awaitable[None] | None:
        """Handle an update."""

    @abstractmethod
    def delete(self, evt: event.DeleteEvent[T_contra], queue: Queue) -> Awaitable[None] | None:
        """Handle a deletion."""

    @abstractmethod
    def generic(self, evt: event.GenericEvent[T_contra], queue: Queue) -> Awaitable[None] | None:
        """Handle a generic event."""


class Funcs(EventHandler[T]):
    """Makes a handler of async functions. Events of a type that has no function are dropped."""

    def __init__(
        self,
        *,
        create: Callable[[event.CreateEvent[T], Queue], Awaitable[None]] | None = None,
        update: Callable[[event.UpdateEvent[T], Queue], Awaitable[None]] | None = None,
        delete: Callable[[event.DeleteEvent[T], Queue], Awaitable[None]] | None = None,
        generic: Callable[[event.GenericEvent[T], Queue], Awaitable[None]] | None = None,
    ) -> None:
        self._create = create
        self._update = update
        self._delete = delete
        self._generic = generic

    async def create(self, evt: event.CreateEvent[T], queue: Queue) -> None:
        """Call the function for creations."""
        if self._create is not None:
            await self._create(evt, queue)

    async def update(self, evt: event.UpdateEvent[T], queue: Queue) -> None:
        """Call the function for changes."""
        if self._update is not None:
            await self._update(evt, queue)

    async def delete(self, evt: event.DeleteEvent[T], queue: Queue) -> None:
        """Call the function for deletions."""
        if self._delete is not None:
            await self._delete(evt, queue)

    async def generic(self, evt: event.GenericEvent[T], queue: Queue) -> None:
        """Call the function for generic events."""
        if self._generic is not None:
            await self._generic(evt, queue)


class EnqueueRequestForObject(EventHandler[Object]):
    """Adds a request for the object of the event itself."""

    immediate = True

    def create(self, evt: event.CreateEvent[Object], queue: Queue) -> None:
        queue.add(Request(*evt.key))

    def update(self, evt: event.UpdateEvent[Object], queue: Queue) -> None:
        queue.add(Request(*evt.key))

    def delete(self, evt: event.DeleteEvent[Object], queue: Queue) -> None:
        queue.add(Request(*evt.key))

    def generic(self, evt: event.GenericEvent[Object], queue: Queue) -> None:
        queue.add(Request(*evt.key))


class _EnqueueRequestForOwner(EventHandler[Object]):
    """Adds requests for owners.

    As soon as the handler knows whether the owner's kind is namespaced, it is immediate. It learns this from the class
    or by discovery.
    """

    def __init__(self, owner: type[Object], *, only_controller: bool) -> None:
        self._owner = owner
        self._group_kind = owner.gvk.group_kind
        self._only_controller = only_controller
        self._discover: Discover | None = None
        self._namespaced = True
        if owner.resource is not None:
            self._learn(owner.resource)

    async def prepare(self, discover: Discover) -> None:
        if not self.immediate:
            self._discover = discover
            self._learn(await discover(self._owner))

    def _learn(self, resource: Resource) -> None:
        self._namespaced = resource.namespaced
        self.immediate = True

    def _enqueue(self, evt: event.Event[Object], queue: Queue) -> Awaitable[None] | None:
        if isinstance(evt, event.UpdateEvent):
            # The old owner gets a request, too: an owner must be reconciled when it loses an object.
            old, new = evt.old_owner_references, evt.new_owner_references
            owners = [new] if old == new else [old, new]
        else:
            owners = [evt.owner_references]
        namespace = evt.key.namespace
        concerned = not self.immediate and any(any(self._owners(namespace, refs)) for refs in owners)
        if concerned and self._discover is not None:
            return self._discover_first(self._discover, queue, namespace, owners)
        self._add(queue, namespace, owners)
        return None

    create = update = delete = generic = _enqueue

    async def _discover_first(
        self, discover: Discover, queue: Queue, namespace: str, owners: Iterable[Owners]
    ) -> None:
        self._learn(await discover(self._owner))
        self._add(queue, namespace, owners)

    def _add(self, queue: Queue, namespace: str, owners: Iterable[Owners]) -> None:
        for request in dict.fromkeys(request for refs in owners for request in self._owners(namespace, refs)):
            queue.add(request)

    def _owners(self, namespace: str, owners: Owners) -> Iterator[Request]:
        for ref in owners:
            if self._only_controller and not ref.controller:
                continue
            if ref.kind == self._group_kind.kind and _is_in(self._group_kind.group, ref.api_version):
                yield Request(namespace if self._namespaced else "", ref.name)


def enqueue_request_for_owner(owner: type[Object], *, only_controller: bool = False) -> EventHandler[Object]:
    """Return a handler that adds a request for each owner that has the kind ``owner``, in any API version.

    With ``only_controller``, add a request only for the owner that controls the object.
    """
    return _EnqueueRequestForOwner(owner, only_controller=only_controller)


class _EnqueueRequestsFromMapFunc(EventHandler[T]):
    def __init__(self, fn: MapFunc[T], view: type[msgspec.Struct] | None) -> None:
        self._fn: Callable[[Any], Awaitable[Iterable[Request]]] = fn
        self._view = view

    def decode(self, evt: event.Event[T]) -> None:
        if self._view is None:
            super().decode(evt)
        else:
            evt.views(self._view)

    async def _enqueue(self, evt: event.Event[T], queue: Queue) -> None:
        # The old object of an update is mapped, too: the objects to which only it maps must be reconciled as well.
        objects: tuple[object, ...] = _objects(evt) if self._view is None else evt.views(self._view)
        requests: dict[Request, None] = {}
        for obj in objects:
            requests.update(dict.fromkeys(await self._fn(obj)))
        for request in requests:
            queue.add(request)

    create = update = delete = generic = _enqueue


def enqueue_requests_from_map_func(
    fn: MapFunc[T], *, reads: type[msgspec.Struct] | None = None
) -> EventHandler[T]:
    """Return a handler that adds the requests that ``fn`` returns for an object.

    For an update, ``fn`` is called with the old object and then with the new one.

    ``reads`` is a struct with the fields that ``fn`` reads. They must have the same names as in the kind. ``fn`` then
    gets this struct, which is decoded in a tenth of the time. If the object is decoded already or does not fit the
    struct, ``fn`` gets the object.

    Raises:
        TypeError: ``fn`` is not ``async`` or does not take an object.
    """
    arguments.must_be_async(fn)
    arguments.must_take(fn, "obj")
    return _EnqueueRequestsFromMapFunc(fn, reads)


def _objects(evt: event.Event[T]) -> tuple[T, ...]:
    """Return the objects of an event, decoded."""
    return (evt.old, evt.new) if isinstance(evt, event.UpdateEvent) else (evt.object,)


def _is_in(group: str, api_version: str) -> bool:
    its_group, slash, version = api_version.rpartition("/")
    return its_group == group and bool(version or not slash)
