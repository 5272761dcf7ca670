# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Tracing: the spans of reconciles.

A reconcile is one root span, from the first event that caused it to its end, with a span for the time in the queue and
one for the reconcile itself, below which are its requests. Its trace ID follows from the uid of the object, so one
trace shows the whole life of an object, over restarts and replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import anyio
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider

from controller_runtime import log, rest
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.reconcile import Reconciler, Request, Result
from controller_runtime.workqueue import Origins

from . import ids
from .interface import Instrumentable, Subject, UIDs
from .origins import TimedOrigins, Wait
from .requests import TracedRoundTripper, recording

_SCOPE: Final = "controller_runtime"
_ALWAYS: Final = -128
"""Below every verbosity of the log."""
_MOST_UIDS: Final = 4096
FLUSH: Final = 5.0
"""Seconds that the last spans may take at the end of the process."""


class Tracing:
    """Records spans with ``provider``, whose ID generator should be a :class:`UIDGenerator`.

    With another generator every reconcile is a trace of its own.
    """

    def __init__(self, provider: TracerProvider, *, now: Callable[[], int] = time.time_ns) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(_SCOPE)
        self._now = now

    def round_tripper(self, inner: rest.RoundTripper) -> rest.RoundTripper:
        """Return ``inner`` with a span for each request of a reconcile."""
        return TracedRoundTripper(inner, self._tracer)

    def enter(self, runnable: object, uids: UIDs) -> None:
        """Record spans of ``runnable`` if it is :class:`Instrumentable`; before its start."""
        if isinstance(runnable, Instrumentable):
            runnable.instrument(self, uids)

    def reconciler(self, inner: Reconciler, subject: Subject) -> Reconciler:
        """Return ``inner`` with spans for each reconcile; the queue keeps the origins of its items from now on."""
        origins: TimedOrigins[Request] = TimedOrigins(self._now)
        subject.queue.origins = origins
        Origins.kept_from = _ALWAYS
        return _TracedReconciler(inner, subject, origins, self._tracer, self._now)

    async def shutdown(self, timeout: float = FLUSH) -> None:
        """Send the last spans, for at most ``timeout`` seconds; record no more."""
        Origins.kept_from = log.DEBUG
        with anyio.move_on_after(timeout, shield=True):
            await anyio.to_thread.run_sync(self._provider.shutdown, abandon_on_cancel=True)


class _TracedReconciler(Reconciler):
    def __init__(
        self,
        inner: Reconciler,
        subject: Subject,
        origins: TimedOrigins[Request],
        tracer: trace.Tracer,
        now: Callable[[], int],
    ) -> None:
        self._inner = inner
        self._subject = subject
        self._origins = origins
        self._tracer = tracer
        self._now = now
        self._uids: dict[Request, str] = {}

    async def reconcile(self, request: Request) -> Result:
        """Reconcile in spans. The outcome is the inner reconciler's."""
        uid = self._uid(request)
        wait = self._origins.waited(request)
        began = self._now()
        with ids.root(uid):
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
                self._record_wait(wait, began)
            started = self._tracer.start_as_current_span(
                "reconcile", start_time=began, record_exception=False, set_status_on_exception=False
            )
            with started as inner, recording(inner):
                with log.into_context(traceID=trace.format_trace_id(span.get_span_context().trace_id)):
                    result = await self._inner.reconcile(request)
                if isinstance(result, Result) and result.requeue_after is not None:
                    inner.set_attribute("requeue_after", result.requeue_after.total_seconds())
                return result

    def _record_wait(self, wait: Wait, until: int) -> None:
        span = self._tracer.start_span("queue", start_time=wait.since)
        for origin, at in wait.origins.items():
            span.add_event("trigger", {"trigger": origin}, timestamp=at)
        span.end(until)

    def _attributes(self, request: Request, uid: str) -> dict[str, str]:
        found = {"controller": self._subject.name, "k8s.object.name": request.name, "k8s.object.uid": uid}
        if request.namespace:
            found["k8s.namespace.name"] = request.namespace
        if isinstance(self._subject.kind, GVK):
            found["k8s.object.kind"] = self._subject.kind.kind
        if reconcile_id := log.bound().get("reconcileID"):
            found["reconcile_id"] = str(reconcile_id)
        return found

    def _uid(self, request: Request) -> str:
        """Return the uid of the object, or of the object that was last found there: it may have been deleted."""
        kind = self._subject.kind
        uid = self._subject.uids(kind, request) if kind is not None else ""
        if not uid:
            return self._uids.get(request, "")
        if self._uids.pop(request, None) is None and len(self._uids) >= _MOST_UIDS:
            del self._uids[next(iter(self._uids))]
        self._uids[request] = uid
        return uid
