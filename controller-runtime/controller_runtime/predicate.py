# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which events are worth a request: filters between a source and its handler.

Predicates return at once and change nothing. An event passes if every predicate of its source passes it. If a predicate
raises, the error is logged and the event passes: the reconcile then decides by the state of the object. A creation or
an update whose object cannot be decoded is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from controller_runtime import event
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LabelSelectorLike
from controller_runtime.machinery import Object, arguments, labels

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class Predicate(Generic[T_contra]):
    """Passes every event; a subclass overrides the methods for the events it filters."""

    def create(self, evt: event.CreateEvent[T_contra]) -> bool:
        """Return True if a creation passes."""
        del evt
        return True

    def update(self, evt: event.UpdateEvent[T_contra]) -> bool:
        """Return True if an update passes."""
        del evt
        return True

    def delete(self, evt: event.DeleteEvent[T_contra]) -> bool:
        """Return True if a deletion passes."""
        del evt
        return True

    def generic(self, evt: event.GenericEvent[T_contra]) -> bool:
        """Return True if a generic event passes."""
        del evt
        return True


class Funcs(Predicate[T]):
    """Makes a predicate of functions. Events of a type that has no function pass."""

    def __init__(
        self,
        *,
        create: Callable[[event.CreateEvent[T]], bool] | None = None,
        update: Callable[[event.UpdateEvent[T]], bool] | None = None,
        delete: Callable[[event.DeleteEvent[T]], bool] | None = None,
        generic: Callable[[event.GenericEvent[T]], bool] | None = None,
    ) -> None:
        """Raises TypeError if a function is ``async`` or does not take an event."""
        for function in (create, update, delete, generic):
            if function is not None:
                arguments.must_be_plain(function)
                arguments.must_take(function, "evt")
        self._create = create
        self._update = update
        self._delete = delete
        self._generic = generic

    def create(self, evt: event.CreateEvent[T]) -> bool:
        """Call the function for creations."""
        return self._create is None or self._create(evt)

    def update(self, evt: event.UpdateEvent[T]) -> bool:
        """Call the function for updates."""
        return self._update is None or self._update(evt)

    def delete(self, evt: event.DeleteEvent[T]) -> bool:
        """Call the function for deletions."""
        return self._delete is None or self._delete(evt)

    def generic(self, evt: event.GenericEvent[T]) -> bool:
        """Call the function for generic events."""
        return self._generic is None or self._generic(evt)


def from_object(fn: Callable[[T], bool]) -> Predicate[T]:
    """Return a predicate that calls ``fn`` with the object of each event. For an update, this is the new object.

    Raises:
        TypeError: ``fn`` is ``async`` or does not take an object.
    """
    arguments.must_be_plain(fn)
    arguments.must_take(fn, "obj")
    return Funcs(
        create=lambda evt: fn(evt.object),
        update=lambda evt: fn(evt.new),
        delete=lambda evt: fn(evt.object),
        generic=lambda evt: fn(evt.object),
    )


def label_selector(selector: LabelSelectorLike) -> Predicate[Object]:
    """Return a predicate that passes objects whose labels match ``selector``.

    Raises:
        ValueError: the selector does not parse.
    """
    parsed = labels.selector(selector)

    def picks(metadata: ObjectMeta) -> bool:
        return parsed.matches(metadata.labels or {})

    return Funcs(
        create=lambda evt: picks(evt.metadata),
        update=lambda evt: picks(evt.new_metadata),
        delete=lambda evt: picks(evt.metadata),
        generic=lambda evt: picks(evt.metadata),
    )


class ResourceVersionChanged(Predicate[Object]):
    """Stops updates that change nothing, i.e. resyncs."""

    def update(self, evt: event.UpdateEvent[Object]) -> bool:
        """Compare the resourceVersions."""
        return evt.changed


class NotOwnWrite(Predicate[Object]):
    """Stops events about our own creations and updates, if the writer has received the response.

    Use it for a reconciler that finishes its work in the same reconcile in which it writes: the watch event of its own
    write would only cause a redundant reconcile. A failed reconcile is retried anyway, and a later change by another
    writer arrives as a separate event. Our own deletion of an object with finalizers passes, because the object still
    has to be finalized.
    """

    def create(self, evt: event.CreateEvent[Object]) -> bool:
        """Return True unless this process wrote the state."""
        return not evt.own_write

    def update(self, evt: event.UpdateEvent[Object]) -> bool:
        """Return True unless this process wrote the state."""
        return not evt.own_write


class GenerationChanged(Predicate[Object]):
    """Stops updates that change only the status or metadata, not the spec.

    Use it only for kinds whose generation the server maintains. A deletion timestamp raises the generation, too.
    """

    def update(self, evt: event.UpdateEvent[Object]) -> bool:
        """Compare the generations."""
        return evt.new_metadata.generation != evt.old_metadata.generation


class LabelChanged(Predicate[Object]):
    """Stops updates that change no label."""

    def update(self, evt: event.UpdateEvent[Object]) -> bool:
        """Compare the labels."""
        return (evt.new_metadata.labels or {}) != (evt.old_metadata.labels or {})


class AnnotationChanged(Predicate[Object]):
    """Stops updates that change no annotation."""

    def update(self, evt: event.UpdateEvent[Object]) -> bool:
        """Compare the annotations."""
        return (evt.new_metadata.annotations or {}) != (evt.old_metadata.annotations or {})


class _Combined(Predicate[T]):
    def __init__(self, how: Callable[[Iterable[bool]], bool], predicates: tuple[Predicate[T], ...]) -> None:
        self._how: Callable[[Iterable[bool]], bool] = how
        self._predicates = predicates

    def create(self, evt: event.CreateEvent[T]) -> bool:
        return self._how(p.create(evt) for p in self._predicates)

    def update(self, evt: event.UpdateEvent[T]) -> bool:
        return self._how(p.update(evt) for p in self._predicates)

    def delete(self, evt: event.DeleteEvent[T]) -> bool:
        return self._how(p.delete(evt) for p in self._predicates)

    def generic(self, evt: event.GenericEvent[T]) -> bool:
        return self._how(p.generic(evt) for p in self._predicates)


def and_(*predicates: Predicate[T]) -> Predicate[T]:
    """Return a predicate that passes an event if all of ``predicates`` pass it. It stops at the first False."""
    return predicates[0] if len(predicates) == 1 else _Combined(all, predicates)


def or_(*predicates: Predicate[T]) -> Predicate[T]:
    """Return a predicate that passes an event if one of ``predicates`` passes it. It stops at the first True."""
    return predicates[0] if len(predicates) == 1 else _Combined(any, predicates)


def not_(predicate: Predicate[T]) -> Predicate[T]:
    """Return a predicate that passes an event if ``predicate`` does not pass it."""
    return _Combined(lambda answers: not any(answers), (predicate,))
