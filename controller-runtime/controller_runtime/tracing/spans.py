# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Tracing: spans for reconciles and their requests.

Each reconcile has a root span. It begins with the first event that caused the reconcile, and ends with the reconcile.
It contains a span for the time in the queue and a span for the reconcile itself, which contains a span for each
request. The trace ID is derived from the uid of the object, so one trace shows the whole life of an object, across
restarts and replicas. The header ``traceparent`` lets the API server add its own spans to that of a request.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio
import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from controller_runtime import log, rest
from controller_runtime.machinery import GVK, raised
from controller_runtime.machinery.lru import LRU
from controller_runtime.reconcile import Reconciler, Request, Result
from controller_runtime.workqueue import Triggers

from .interface import Instrumentable, Subject, UIDs

_SCOPE: Final = "controller_runtime"
_MOST_UIDS: Final = 4096
FLUSH: Final = 5.0
"""Maximum seconds for sending the last spans at the end of the process."""
_wanted: Final[ContextVar[int]] = ContextVar("controller-runtime.trace-id", default=0)

T = TypeVar("T", bound=Hashable)


class Tracing:
    """Records spans with ``provider``, whose ID generator should be a :class:`UIDGenerator`.

    With another generator, every reconcile has its own trace.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(_SCOPE)

    def round_tripper(self, inner: rest.RoundTripper) -> rest.RoundTripper:
        """Return a RoundTripper that calls ``inner`` within a span, for each request of a reconcile."""
        return TracedRoundTripper(inner, self._tracer)

    def instrument(self, runnable: object, uids: UIDs) -> None:
        """Record spans of ``runnable`` if it is :class:`Instrumentable`; call this before the runnable starts."""
        if isinstance(runnable, Instrumentable):
            runnable.instrument(self, uids)

    def reconciler(self, inner: Reconciler, subject: Subject) -> Reconciler:
        """Return ``inner`` with spans for each reconcile; the queue keeps the triggers of its items from now on."""
        triggers: TimedTriggers[Request] = TimedTriggers()
        subject.queue.triggers = triggers
        return _TracedReconciler(inner, subject, triggers, self._tracer)

    async def shutdown(self, timeout: float = FLUSH) -> None:
        """Send the last spans, for at most ``timeout`` seconds, and stop recording."""
        with anyio.move_on_after(timeout, shield=True):
            await anyio.to_thread.run_sync(self._provider.shutdown, abandon_on_cancel=True)


class _TracedReconciler(Reconciler):
    def __init__(
        self,
        inner: Reconciler,
        subject: Subject,
        triggers: TimedTriggers[Request],
        tracer: trace.Tracer,
    ) -> None:
        self._inner = inner
        self._subject = subject
        self._triggers = triggers
        self._tracer = tracer
        self._uids: LRU[Request, str] = LRU(_MOST_UIDS)

    async def reconcile(self, request: Request) -> Result:
        """Call the inner reconciler within spans; return its result or raise its error."""
        uid = self._uid(request)
        wait = self._triggers.take_wait(request)
        began = time.time_ns()
        with _root(uid):
            span = self._tracer.start_span(
                self._subject.name,
                Context(),
                kind=trace.SpanKind.CONSUMER,
                attributes=self._attributes(request, uid),
                start_time=wait.since if wait else began,
            )
        with (
            trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False),
            recording(span),
        ):
            if wait is not None:
                waited = self._tracer.start_span("queue", start_time=wait.since)
                for trigger, at in wait.triggers.items():
                    waited.add_event("trigger", {"trigger": trigger}, timestamp=at)
                waited.end(began)
            started = self._tracer.start_as_current_span(
                "reconcile", start_time=began, record_exception=False, set_status_on_exception=False
            )
            with started as inner, recording(inner):
                with log.into_context(traceID=trace.format_trace_id(span.get_span_context().trace_id)):
                    result = await self._inner.reconcile(request)
                if isinstance(result, Result) and result.requeue_after is not None:
                    inner.set_attribute("requeue_after", result.requeue_after.total_seconds())
                return result

    def _attributes(self, request: Request, uid: str) -> dict[str, str]:
        attributes = {
            "controller": self._subject.name,
            "k8s.object.name": request.name,
            "k8s.object.uid": uid,
        }
        if request.namespace:
            attributes["k8s.namespace.name"] = request.namespace
        if isinstance(self._subject.kind, GVK):
            attributes["k8s.object.kind"] = self._subject.kind.kind
        if reconcile_id := log.bound().get("reconcileID"):
            attributes["reconcile_id"] = str(reconcile_id)
        return attributes

    def _uid(self, request: Request) -> str:
        """Return the uid of the object. If the object does not exist any more, return its last known uid."""
        kind = self._subject.kind
        uid = self._subject.uids(kind, request) if kind is not None else ""
        if not uid:
            return self._uids.get(request, "")
        self._uids[request] = uid
        return uid


def trace_id(uid: str) -> int:
    """Return the trace ID for an object: its uid as a number, a hash if the uid is not a UUID, or 0 if it is empty."""
    if not uid:
        return 0
    try:
        return uuid.UUID(uid).int
    except ValueError:
        return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:16], "big")


@contextmanager
def _root(uid: str) -> Iterator[None]:
    """Give all root spans that start in the block a trace ID that is derived from ``uid``."""
    token = _wanted.set(trace_id(uid))
    try:
        yield
    finally:
        _wanted.reset(token)


class UIDGenerator(RandomIdGenerator):
    """Generates random IDs. Only the trace ID of a reconcile is derived from the object's uid.

    A sampler may decide by the trace ID, so the ID must be right from the beginning.
    """

    def generate_trace_id(self) -> int:
        """Return the derived ID within a reconcile's root span, otherwise a random ID."""
        return _wanted.get() or super().generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Return False, because derived IDs are not random.

        Kubernetes up to 1.36 also drops a traceparent in which the flag is set.
        """
        return False


@dataclass(slots=True)
class QueueWait:
    """Why and when an item was added to a queue. Times are nanoseconds since the epoch."""

    since: int
    """The time of the item's first trigger."""
    triggers: dict[str, int] = field(default_factory=dict)
    """The time of each trigger."""


class TimedTriggers(Triggers[T]):
    """Records the triggers of each item and their times.

    The controller takes the triggers for its log. Then the tracer takes the times.
    """

    wanted = staticmethod(lambda: True)

    def __init__(self) -> None:
        super().__init__()
        self._waiting: OrderedDict[T, QueueWait] = OrderedDict()
        self._taken: dict[T, QueueWait] = {}

    def note(self, item: T, trigger: str) -> None:
        """Record one more trigger of an item, with the current time."""
        super().note(item, trigger)
        now = time.time_ns()
        wait = self._waiting.setdefault(item, QueueWait(now))
        wait.triggers[trigger] = now
        kept = self._kept.get(item, {})
        if len(wait.triggers) > len(kept):
            wait.triggers = {known: time for known, time in wait.triggers.items() if known in kept}
        if len(self._waiting) > len(self._kept):
            self._waiting.popitem(last=False)

    def take(self, item: T) -> list[str]:
        """Return the triggers of an item, oldest first, and forget them. Their times are kept for :meth:`take_wait`."""
        if (wait := self._waiting.pop(item, None)) is not None:
            self._taken[item] = wait
        return super().take(item)

    def take_wait(self, item: T) -> QueueWait | None:
        """Return the triggers of an item that was just taken, with their times, and forget them.

        Return None if there are none.
        """
        return self._taken.pop(item, None)


@contextmanager
def recording(span: trace.Span) -> Iterator[None]:
    """If the body raises an exception, record it on ``span``.

    OpenTelemetry's own method is not used, because it may raise an error for some exceptions.
    """
    try:
        yield
    except Exception as error:
        if span.is_recording():
            kind, text, module = raised.name(error), raised.text(error), type(error).__module__
            span.add_event(
                "exception",
                {
                    "exception.type": kind if module == "builtins" else f"{module}.{kind}",
                    "exception.message": text,
                    "exception.stacktrace": raised.stack(error),
                    "exception.escaped": "False",
                },
            )
            span.set_status(trace.StatusCode.ERROR, f"{kind}: {text}")
        raise


class TracedRoundTripper:
    """Sends each request of a reconcile within a span. Streams and all other requests get no span."""

    def __init__(self, inner: rest.RoundTripper, tracer: trace.Tracer) -> None:
        self._inner = inner
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def send(self, request: rest.Request) -> rest.Response:
        """Send ``request`` within a span, which ends when the head of the response has arrived."""
        # A watch that a reconcile starts inherits the context of the reconcile, and outlives it.
        if request.stream or not trace.get_current_span().is_recording():
            return await self._inner.send(request)
        resource, attributes = _described(request)
        started = self._tracer.start_as_current_span(
            f"{request.method} {resource}",
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )
        with started as span, recording(span):
            headers = dict(request.headers)
            self._propagator.inject(headers)
            response = await self._inner.send(msgspec.structs.replace(request, headers=headers))
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 400:
                span.set_status(trace.StatusCode.ERROR)
            return response


def _described(request: rest.Request) -> tuple[str, dict[str, str]]:
    """Return the resource of a request, such as ``jobs.batch/status``, and the attributes of its span.

    A request that concerns no objects, such as one for discovery, is described by its path.
    """
    attributes = {"http.request.method": request.method, "url.path": request.path}
    if request.resource is None:
        return request.path, attributes
    if request.namespace:
        attributes["k8s.namespace.name"] = request.namespace
    if request.name:
        attributes["k8s.object.name"] = request.name
    resource = str(request.resource.group_resource)
    return f"{resource}/{request.subresource}" if request.subresource else resource, attributes
