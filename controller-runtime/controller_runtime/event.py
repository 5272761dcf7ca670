# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events: what happened to an object, as sources report it to predicates and handlers.

Events never reach a reconciler. Their objects may be shared: do not change them. An object from a cache is decoded when
it is read: reading ``metadata`` takes a quarter of the time of reading ``object``, and reading ``key`` costs nothing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import LazyObject, NamespacedName, Object
from controller_runtime.machinery.object import Owners

T = TypeVar("T", bound=Object)
T_co = TypeVar("T_co", bound=Object, covariant=True)
V = TypeVar("V", bound=msgspec.Struct)


class _ObjectEvent(Generic[T_co]):
    """An event with one object."""

    __slots__ = ("_lazy",)

    def __init__(self, object: T_co | LazyObject[T_co]) -> None:  # noqa: A002 controller-runtime's name
        self._lazy = LazyObject.of(object)

    @property
    def object(self) -> T_co:
        """The object. Raises UndecodableObjectError if the object does not fit its class."""
        return self._lazy.object

    def views(self, shape: type[V]) -> tuple[V | T_co]:
        """Return the fields of the object that ``shape`` declares, or the whole object if that is not possible."""
        return (self._lazy.view(shape) or self._lazy.object,)

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        return self._lazy.metadata

    @property
    def key(self) -> NamespacedName:
        """The object's namespace and name."""
        return self._lazy.key

    @property
    def owner_references(self) -> Owners:
        """The object's owner references; reading them is cheaper than reading ``metadata``."""
        return self._lazy.owner_references

    @property
    def own_write(self) -> bool:
        """True if the cache's client created the object in this state, or updated it to this state."""
        return self._lazy.own_write


class CreateEvent(_ObjectEvent[T_co]):
    """There is an object that this process did not know before."""

    __slots__ = ("is_in_initial_list",)

    def __init__(self, object: T_co | LazyObject[T_co], is_in_initial_list: bool = False) -> None:  # noqa: A002
        super().__init__(object)
        self.is_in_initial_list = is_in_initial_list
        """True if the object existed before the source started, perhaps for a long time, and has not changed since the
        start."""


class UpdateEvent(Generic[T_co]):
    """An object changed, or a resync reports it again. In a resync, both states have the same resourceVersion."""

    __slots__ = ("_new", "_old")

    def __init__(self, old: T_co | LazyObject[T_co], new: T_co | LazyObject[T_co]) -> None:
        self._old = old if isinstance(old, LazyObject) else LazyObject.of(old)
        self._new = new if isinstance(new, LazyObject) else LazyObject.of(new)

    @property
    def old(self) -> T_co:
        """The object before the change. Raises UndecodableObjectError if the object does not fit its class."""
        return self._old.object

    @property
    def new(self) -> T_co:
        """The object after the change. Raises UndecodableObjectError if the object does not fit its class."""
        return self._new.object

    def views(self, shape: type[V]) -> tuple[V | T_co, V | T_co]:
        """Do the same as :meth:`CreateEvent.views`, for the old and the new object."""
        return self._old.view(shape) or self._old.object, self._new.view(shape) or self._new.object

    @property
    def old_metadata(self) -> ObjectMeta:
        """The metadata before the change."""
        return self._old.metadata

    @property
    def new_metadata(self) -> ObjectMeta:
        """The metadata after the change."""
        return self._new.metadata

    @property
    def key(self) -> NamespacedName:
        """The object's namespace and name."""
        return self._new.key

    @property
    def old_owner_references(self) -> Owners:
        """The owners before the change."""
        return self._old.owner_references

    @property
    def new_owner_references(self) -> Owners:
        """The owners after the change."""
        return self._new.owner_references

    @property
    def own_write(self) -> bool:
        """True if the cache's client updated the object to the new state, and nothing has changed it since."""
        return self._new.own_write

    @property
    def changed(self) -> bool:
        """Whether the two resourceVersions differ. In a resync, they are equal."""
        return self._old.resource_version != self._new.resource_version


class DeleteEvent(_ObjectEvent[T_co]):
    """An object was deleted."""

    __slots__ = ("state_unknown",)

    def __init__(self, object: T_co | LazyObject[T_co], state_unknown: bool = False) -> None:  # noqa: A002
        super().__init__(object)
        self.state_unknown = state_unknown
        """Whether the watch missed the deletion itself. ``object`` is then only the last state that was seen."""


class GenericEvent(_ObjectEvent[T_co]):
    """An event from outside the cluster: a timer, an external call."""

    __slots__ = ()


Event = CreateEvent[T] | UpdateEvent[T] | DeleteEvent[T] | GenericEvent[T]
