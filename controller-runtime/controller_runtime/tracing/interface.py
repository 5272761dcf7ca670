# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface between a manager, its controllers and tracing; this module does not load OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import PriorityQueue

if TYPE_CHECKING:
    from .spans import Tracing

UIDs = Callable[[GVK, NamespacedName], str]
"""Returns the uid of the object at a key, or an empty string. The function sends no request."""


class MissingExtraError(ImportError):
    """OpenTelemetry, or the exporter that the environment names, is not installed."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A controller whose reconciles are traced."""

    name: str
    kind: GVK | None
    queue: PriorityQueue[Request]
    uids: UIDs


@runtime_checkable
class Instrumentable(Protocol):
    """A runnable whose spans are recorded if tracing is given to it before its start."""

    def instrument(self, tracing: Tracing, uids: UIDs) -> None:
        """Record spans with ``tracing``."""
        ...
