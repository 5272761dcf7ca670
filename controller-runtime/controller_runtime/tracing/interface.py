# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface between a manager, its controllers and tracing; this module does not load OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller_runtime import rest
from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.reconcile import Reconciler, Request
from controller_runtime.workqueue import PriorityQueue

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


class Instrumentation(Protocol):
    """Wraps the places where spans begin and end."""

    def round_tripper(self, inner: rest.RoundTripper) -> rest.RoundTripper:
        """Return ``inner`` with a span for each request of a reconcile."""
        ...

    def instrument(self, runnable: object, uids: UIDs) -> None:
        """Record spans of ``runnable`` if it is :class:`Instrumentable`; call this before the runnable starts."""
        ...

    def reconciler(self, inner: Reconciler, subject: Subject) -> Reconciler:
        """Return ``inner`` with spans for each reconcile."""
        ...


@runtime_checkable
class Instrumentable(Protocol):
    """A runnable that takes an instrumentation before its start."""

    def instrument(self, tracing: Instrumentation, uids: UIDs) -> None:
        """Record spans with ``tracing``."""
        ...
