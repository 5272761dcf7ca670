# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finalizers: work to do before an object is deleted. Each has a name, which blocks the deletion of an object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from controller_runtime.controller import controllerutil
from controller_runtime.machinery import Object, arguments, names, raised

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class FinalizeResult:
    """The parts of an object that were changed and must be written."""

    updated: bool = False
    """Whether its metadata or spec was changed."""
    status_updated: bool = False

    def __or__(self, other: FinalizeResult) -> FinalizeResult:
        """Return the changes of both."""
        return FinalizeResult(self.updated or other.updated, self.status_updated or other.status_updated)


class FinalizeError(ExceptionGroup[Exception]):
    """Some finalizers failed. The other ones succeeded, so write the changes that :attr:`result` names."""

    result: FinalizeResult

    @classmethod
    def of(cls, errors: Sequence[Exception], obj: Object, result: FinalizeResult) -> Self:
        """Return the error of ``obj``, whose finalizers raised ``errors``."""
        made = cls(f"finalize {type(obj).gvk.kind} {obj.key}", errors)
        made.result = result
        return made

    def derive(self, errors: Sequence[Exception]) -> FinalizeError:  # type: ignore[override]  # one member type
        """Return an error with only ``errors``, and the same result."""
        made = FinalizeError(self.message, errors)
        made.result = self.result
        return made


class Finalizer(ABC, Generic[T]):
    """Cleans up the external resources of an object that is being deleted."""

    @abstractmethod
    async def finalize(self, obj: T) -> FinalizeResult:
        """Clean up, and return which parts of ``obj`` itself were changed.

        This method must be idempotent: if it raises, it is called again in a later reconcile. After it has returned,
        the finalizer is removed from ``obj``.
        """


class Finalizers(Generic[T]):
    """Adds the registered finalizers to objects, and runs those of an object that is being deleted.

    A reconciler calls :meth:`finalize` first, and writes the object if the result requires it::

        result = await finalizers.finalize(website)
        if result.updated:
            website = await client.update(website)
        if website.metadata.deletion_timestamp:
            return ctrl.Result()
    """

    def __init__(self) -> None:
        self._registered: dict[str, Finalizer[T]] = {}

    def register(self, name: str, finalizer: Finalizer[T]) -> None:
        """Register ``finalizer`` as ``name``, e.g. ``example.com/bucket``. Finalizers run in the order of registration.

        Raises:
            ValueError: the name does not consist of a domain and a name, or is registered already.
            TypeError: ``finalizer`` is not an instance with an ``async`` method ``finalize``.
        """
        arguments.must_have_async(finalizer, "finalize")
        problems = names.is_qualified_name(name)
        if problems or "/" not in name:
            raise ValueError(
                f"finalizer {name!r}: " + (problems[0] if problems else "a domain and / are missing")
            )
        if name in self._registered:
            raise ValueError(f"finalizer {name} is registered already")
        self._registered[name] = finalizer

    async def finalize(self, obj: T) -> FinalizeResult:
        """Add all finalizers to ``obj``. If ``obj`` is being deleted, run its finalizers and remove them instead.

        This changes only ``obj``; the caller writes it.

        Raises:
            FinalizeError: some finalizers failed, and stay on ``obj``; the others succeeded.
        """
        result = FinalizeResult()
        errors: list[Exception] = []
        for name, finalizer in self._registered.items():
            if obj.metadata.deletion_timestamp is None:
                result |= FinalizeResult(updated=controllerutil.add_finalizer(obj, name))
            elif controllerutil.contains_finalizer(obj, name):
                try:
                    with raised.foreign():
                        result |= await finalizer.finalize(obj)
                except Exception as error:
                    error.add_note(f"finalizer {name}")
                    errors.append(error)
                    continue
                result |= FinalizeResult(updated=controllerutil.remove_finalizer(obj, name))
        if errors:
            raise FinalizeError.of(errors, obj, result)
        return result
