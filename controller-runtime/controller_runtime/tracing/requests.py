# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A span for each request of a reconcile, and the ``traceparent`` header with which the API server continues it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from controller_runtime import rest
from controller_runtime.apis.machinery import raised

_SCOPES = ("api", "apis")


@contextmanager
def recording(span: trace.Span) -> Iterator[None]:
    """Record an exception of the body on ``span``; OpenTelemetry's own record replaces exceptions of some shapes."""
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
    """Sends requests in spans of the reconcile that sends them. Other requests, and streams, pass without one."""

    def __init__(self, inner: rest.RoundTripper, tracer: trace.Tracer) -> None:
        self._inner = inner
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def send(self, request: rest.Request) -> rest.Response:
        """Send ``request``; the span ends with the head of the response."""
        # A cache that a reconcile starts inherits its context, and outlives it.
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
    """Return the resource of a request, with its subresource, and the attributes of the span."""
    attributes = {"http.request.method": request.method, "url.path": request.path}
    scope, *parts = request.path.strip("/").split("/")
    if scope not in _SCOPES:
        return request.path, attributes
    group = parts.pop(0) if scope == "apis" and parts else ""
    parts = parts[1:]
    if len(parts) > 2 and parts[0] == "namespaces":
        attributes["k8s.namespace.name"] = parts[1]
        parts = parts[2:]
    if not parts:
        return request.path, attributes
    resource, name, subresource = (*parts, "", "")[:3]
    if name:
        attributes["k8s.object.name"] = name
    qualified = f"{resource}.{group}" if group else resource
    return f"{qualified}/{subresource}" if subresource else qualified, attributes
