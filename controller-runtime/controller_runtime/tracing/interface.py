# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface through which a manager and its controllers use tracing. This module does not load OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller_runtime import rest
from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.reconcile import Reconciler, Request
from controller_runtime.workqueue import PriorityQueue

UIDs = Callable[[GVK, NamespacedName], str]
"""Returns the uid of the object with this key, or an empty string if it is not known. It must not send a request."""


class MissingExtraError(ImportError):
    """OpenTelemetry, or an exporter in ``OTEL_TRACES_EXPORTER``, is not installed."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A controller whose reconciles are traced."""

    name: str
    kind: GVK | None
    queue: PriorityQueue[Request]
    uids: UIDs


class Instrumentation(Protocol):
    """Adds spans to the parts of a manager."""

    def round_tripper(self, inner: rest.RoundTripper) -> rest.RoundTripper:
        """Return a RoundTripper that calls ``inner`` within a span, for each request of a reconcile."""
        ...

    def instrument(self, runnable: object, uids: UIDs) -> None:
        """Record spans of ``runnable`` if it is :class:`Instrumentable`; call this before the runnable starts."""
        ...

    def reconciler(self, inner: Reconciler, subject: Subject) -> Reconciler:
        """Return a Reconciler that calls ``inner`` within spans."""
        ...


@runtime_checkable
class Instrumentable(Protocol):
    """A runnable that can record spans."""

    def instrument(self, tracing: Instrumentation, uids: UIDs) -> None:
        """Record spans with ``tracing`` from now on. This is called before the runnable starts."""
        ...
