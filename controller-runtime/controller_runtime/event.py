# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What happened to an object: the form in which sources tell predicates and handlers.

Events say why a request is made; they never reach a reconciler. Objects in events may be shared: read
them, do not change them. What a cache tells is decoded when somebody looks at it: ``metadata`` costs a quarter of
``object``, and ``key`` nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from controller_runtime import cache
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object, ObjectMeta, OwnerReference

T_co = TypeVar("T_co", bound=Object, covariant=True)


class _About(Generic[T_co]):
    """An event with one object."""

    __slots__ = ("_object",)

    def __init__(self, object: T_co | cache.Told[T_co]) -> None:  # noqa: A002 controller-runtime's name
        self._object = object

    @property
    def object(self) -> T_co:
        """The object; UndecodableObjectError when it has another shape than its class."""
        return whole(self._object)

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        return self._object.metadata

    @property
    def key(self) -> NamespacedName:
        """The object's namespace and name."""
        return self._object.key

    @property
    def owner_references(self) -> Sequence[cache.Owner | OwnerReference]:
        """Who owns the object; to be had for less than its metadata."""
        return _owners(self._object)

    @property
    def own_write(self) -> bool:
        """Whether the object is as a write through the cache's own client left it, and the writer knows."""
        return _own(self._object)


class CreateEvent(_About[T_co]):
    """An object is there that was not there before, as far as this process knows."""

    __slots__ = ("is_in_initial_list",)

    def __init__(self, object: T_co | cache.Told[T_co], is_in_initial_list: bool = False) -> None:  # noqa: A002
        super().__init__(object)
        self.is_in_initial_list = is_in_initial_list
        """It was found by the first list after a start, so it may well be old."""


class UpdateEvent(Generic[T_co]):
    """An object changed; or did not, when both have the same resourceVersion (a resync)."""

    __slots__ = ("_new", "_old")

    def __init__(self, old: T_co | cache.Told[T_co], new: T_co | cache.Told[T_co]) -> None:
        self._old = old
        self._new = new

    @property
    def old(self) -> T_co:
        """The object before; UndecodableObjectError when it has another shape than its class."""
        return whole(self._old)

    @property
    def new(self) -> T_co:
        """The object now; UndecodableObjectError when it has another shape than its class."""
        return whole(self._new)

    @property
    def old_metadata(self) -> ObjectMeta:
        """The metadata before."""
        return self._old.metadata

    @property
    def new_metadata(self) -> ObjectMeta:
        """The metadata now."""
        return self._new.metadata

    @property
    def key(self) -> NamespacedName:
        """The object's namespace and name."""
        return self._new.key

    @property
    def old_owner_references(self) -> Sequence[cache.Owner | OwnerReference]:
        """Who owned the object before."""
        return _owners(self._old)

    @property
    def new_owner_references(self) -> Sequence[cache.Owner | OwnerReference]:
        """Who owns the object now."""
        return _owners(self._new)

    @property
    def own_write(self) -> bool:
        """Whether the new state is what a write through the cache's own client made, and the writer knows."""
        return _own(self._new)

    @property
    def changed(self) -> bool:
        """Whether the resourceVersion differs; it does not in a resync."""
        return _version(self._old) != _version(self._new)


class DeleteEvent(_About[T_co]):
    """An object is gone."""

    __slots__ = ("state_unknown",)

    def __init__(self, object: T_co | cache.Told[T_co], state_unknown: bool = False) -> None:  # noqa: A002
        super().__init__(object)
        self.state_unknown = state_unknown
        """The deletion itself was missed; ``object`` is the last state that was seen."""


class GenericEvent(_About[T_co]):
    """Something of one's own making: a timer, a call from outside."""

    __slots__ = ()


def whole(told: T_co | cache.Told[T_co]) -> T_co:
    """Return the object that an event tells of, decoded now if it was not before."""
    return told.object if isinstance(told, cache.Told) else told


def _owners(told: Object | cache.Told[Any]) -> Sequence[cache.Owner | OwnerReference]:
    return told.owner_references if isinstance(told, cache.Told) else told.metadata.owner_references or ()


def _own(told: Object | cache.Told[Any]) -> bool:
    return isinstance(told, cache.Told) and told.own_write


def _version(told: Object | cache.Told[Any]) -> str | None:
    return told.resource_version if isinstance(told, cache.Told) else told.metadata.resource_version
