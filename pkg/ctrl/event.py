# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What happened to an object: the form in which sources tell predicates and handlers.

Events say why a request is made; they never reach a reconciler. Objects in events may be shared: read
them, do not change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pkg.apis.machinery.object import Object

T_co = TypeVar("T_co", bound=Object, covariant=True)


@dataclass(frozen=True)
class CreateEvent(Generic[T_co]):
    """An object is there that was not there before, as far as this process knows."""

    object: T_co
    is_in_initial_list: bool = False
    """It was found by the first list after a start, so it may well be old."""


@dataclass(frozen=True)
class UpdateEvent(Generic[T_co]):
    """An object changed; or did not, when both have the same resourceVersion (a resync)."""

    old: T_co
    new: T_co


@dataclass(frozen=True)
class DeleteEvent(Generic[T_co]):
    """An object is gone."""

    object: T_co
    state_unknown: bool = False
    """The deletion itself was missed; ``object`` is the last state that was seen."""


@dataclass(frozen=True)
class GenericEvent(Generic[T_co]):
    """Something of one's own making: a timer, a call from outside."""

    object: T_co
