# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which events are worth a request: filters between a source and its handler.

Predicates answer at once and change nothing. An event passes when every predicate of its source says yes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from controller_runtime import event
from controller_runtime.apis.machinery import labels
from controller_runtime.apis.machinery.object import Object, ObjectMeta
from controller_runtime.client import LabelSelectorLike

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class Predicate(Generic[T_contra]):
    """Lets every event pass; a subclass overrides what it wants to judge."""

    def create(self, evt: event.CreateEvent[T_contra]) -> bool:
        """Whether a creation passes."""
        del evt
        return True

    def update(self, evt: event.UpdateEvent[T_contra]) -> bool:
        """Whether a change passes."""
        del evt
        return True

    def delete(self, evt: event.DeleteEvent[T_contra]) -> bool:
        """Whether a deletion passes."""
        del evt
        return True

    def generic(self, evt: event.GenericEvent[T_contra]) -> bool:
        """Whether an event of one's own making passes."""
        del evt
        return True


class Funcs(Predicate[T]):
    """Functions as a predicate; events without a function pass."""

    def __init__(
        self,
        *,
        create: Callable[[event.CreateEvent[T]], bool] | None = None,
        update: Callable[[event.UpdateEvent[T]], bool] | None = None,
        delete: Callable[[event.DeleteEvent[T]], bool] | None = None,
        generic: Callable[[event.GenericEvent[T]], bool] | None = None,
    ) -> None:
        self._create = create
        self._update = update
        self._delete = delete
        self._generic = generic

    def create(self, evt: event.CreateEvent[T]) -> bool:
        """Ask the function for creations."""
        return self._create is None or self._create(evt)

    def update(self, evt: event.UpdateEvent[T]) -> bool:
        """Ask the function for changes."""
        return self._update is None or self._update(evt)

    def delete(self, evt: event.DeleteEvent[T]) -> bool:
        """Ask the function for deletions."""
        return self._delete is None or self._delete(evt)

    def generic(self, evt: event.GenericEvent[T]) -> bool:
        """Ask the function for events of one's own making."""
        return self._generic is None or self._generic(evt)


def from_object(fn: Callable[[T], bool]) -> Predicate[T]:
    """Return a predicate that asks ``fn`` about the object of any event; about the new one of a change."""
    return Funcs(
        create=lambda evt: fn(evt.object),
        update=lambda evt: fn(evt.new),
        delete=lambda evt: fn(evt.object),
        generic=lambda evt: fn(evt.object),
    )


def label_selector(selector: LabelSelectorLike) -> Predicate[Object]:
    """Return a predicate that passes objects whose labels ``selector`` picks.

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
    """Stops creations and changes that tell of nothing but a write of this process, whose outcome the writer saw.

    For a reconciler that brings everything in order in the reconcile that writes: the watch's echo of its write
    would wake it for nothing. An error makes it try again anyway, and what somebody else changed later comes as an
    event of its own.
    """

    def create(self, evt: event.CreateEvent[Object]) -> bool:
        """Ask whose write it was."""
        return not evt.own_write

    def update(self, evt: event.UpdateEvent[Object]) -> bool:
        """Ask whose write it was."""
        return not evt.own_write


class GenerationChanged(Predicate[Object]):
    """Stops updates that change no spec: of status or metadata alone.

    Only for kinds whose generation the server counts. A deletion timestamp raises the generation too.
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
    def __init__(self, how: Callable[[list[bool]], bool], predicates: tuple[Predicate[T], ...]) -> None:
        self._how: Callable[[Any], bool] = how
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
    """Return what passes when all do; the first no ends the asking."""
    return _Combined(all, predicates)


def or_(*predicates: Predicate[T]) -> Predicate[T]:
    """Return what passes when one does; the first yes ends the asking."""
    return _Combined(any, predicates)


def not_(predicate: Predicate[T]) -> Predicate[T]:
    """Return what passes when ``predicate`` does not."""
    return _Combined(lambda answers: not any(answers), (predicate,))
