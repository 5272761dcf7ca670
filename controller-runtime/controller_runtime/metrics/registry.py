# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The registry and the series that controller-runtime and client-go export: same names, labels and buckets.

A dashboard written for a Go manager must work unchanged, so we also write the text as Go does: without ``_created``
series, and with bucket bounds like ``1``, not ``1.0``. Other packages only record values; they do not define series
that start with ``controller_runtime_``, ``workqueue_`` or ``rest_client_``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics import Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Registry(CollectorRegistry):
    """A registry whose metrics look as if they came from a Go client."""

    def collect(self) -> Iterator[Metric]:
        """Yield every family, without ``_created`` and with Go's spelling of bucket bounds."""
        for metric in super().collect():
            if metric.type in {"counter", "histogram", "summary"}:
                metric.samples = [_as_go(s) for s in metric.samples if not s.name.endswith("_created")]
            yield metric


def _as_go(sample: Sample) -> Sample:
    bound = sample.labels.get("le")
    if bound is None or not bound.endswith(".0"):
        return sample
    return sample._replace(labels={**sample.labels, "le": bound[:-2]})


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return ``count`` bounds. Each is the previous one times ``factor``, so the rounding is the same as in Go."""
    return tuple(itertools.accumulate(itertools.repeat(factor, count - 1), lambda a, b: a * b, initial=start))


REGISTRY: Final = Registry(auto_describe=True)


def _counter(name: str, text: str, labels: Iterable[str] = ()) -> Counter:
    return Counter(name, text, tuple(labels), registry=REGISTRY)


def _gauge(name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
    return Gauge(name, text, tuple(labels), registry=REGISTRY)


def _histogram(
    name: str,
    text: str,
    labels: Iterable[str],
    buckets: tuple[float, ...],
) -> Histogram:
    return Histogram(name, text, tuple(labels), buckets=buckets, registry=REGISTRY)


_FINE: Final = exponential_buckets(10e-9, 10, 12)
# fmt: off
_RECONCILE: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
    1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)
# fmt: on

# Controllers, by name.
RECONCILE_TOTAL: Final = _counter(
    "controller_runtime_reconcile_total",
    "Reconciliations per controller and result: success, error, requeue_after",
    ["controller", "result"],
)
RECONCILE_ERRORS: Final = _counter(
    "controller_runtime_reconcile_errors_total", "Failed reconciliations per controller", ["controller"]
)
TERMINAL_RECONCILE_ERRORS: Final = _counter(
    "controller_runtime_terminal_reconcile_errors_total",
    "Reconciliations per controller that failed and are not retried",
    ["controller"],
)
RECONCILE_PANICS: Final = _counter(
    "controller_runtime_reconcile_panics_total",
    "Reconciliations per controller that raised a programming error",
    ["controller"],
)
RECONCILE_TIMEOUTS: Final = _counter(
    "controller_runtime_reconcile_timeouts_total",
    "Reconciliations per controller that exceeded its reconciliation timeout",
    ["controller"],
)
RECONCILE_TIME: Final = _histogram(
    "controller_runtime_reconcile_time_seconds", "Duration of a reconciliation", ["controller"], _RECONCILE
)
MAX_CONCURRENT_RECONCILES: Final = _gauge(
    "controller_runtime_max_concurrent_reconciles", "Workers of a controller", ["controller"]
)
ACTIVE_WORKERS: Final = _gauge(
    "controller_runtime_active_workers", "Workers of a controller that are reconciling now", ["controller"]
)

# Work queues; ``name`` and ``controller`` carry the same value.
WORKQUEUE_DEPTH: Final = _gauge(
    "workqueue_depth",
    "Items waiting in the queue, by priority; the label is empty for priority 0",
    ["name", "controller", "priority"],
)
WORKQUEUE_ADDS: Final = _counter("workqueue_adds_total", "Items added to the queue", ["name", "controller"])
WORKQUEUE_QUEUE_DURATION: Final = _histogram(
    "workqueue_queue_duration_seconds",
    "Seconds an item waited before it was taken",
    ["name", "controller"],
    _FINE,
)
WORKQUEUE_WORK_DURATION: Final = _histogram(
    "workqueue_work_duration_seconds",
    "Seconds between taking an item and being done with it",
    ["name", "controller"],
    _FINE,
)
WORKQUEUE_UNFINISHED_WORK: Final = _gauge(
    "workqueue_unfinished_work_seconds",
    "Total seconds that the items in progress have been processed",
    ["name", "controller"],
)
WORKQUEUE_LONGEST_RUNNING: Final = _gauge(
    "workqueue_longest_running_processor_seconds",
    "Seconds that the longest running item has been processed",
    ["name", "controller"],
)
WORKQUEUE_RETRIES: Final = _counter(
    "workqueue_retries_total", "Items added to the queue with a delay", ["name", "controller"]
)

# Admission webhooks, by path.
WEBHOOK_LATENCY: Final = _histogram(
    "controller_runtime_webhook_latency_seconds", "Duration of an admission request", ["webhook"], _FINE
)
WEBHOOK_REQUESTS: Final = _counter(
    "controller_runtime_webhook_requests_total", "Admission requests by HTTP status", ["webhook", "code"]
)
WEBHOOK_IN_FLIGHT: Final = _gauge(
    "controller_runtime_webhook_requests_in_flight", "Admission requests being answered", ["webhook"]
)
WEBHOOK_PANICS: Final = _counter(
    "controller_runtime_webhook_panics_total", "Admission requests whose handler raised an unexpected error"
)
CONVERSION_PANICS: Final = _counter(
    "controller_runtime_conversion_webhook_panics_total",
    "Objects whose conversion raised an unexpected error",
)

# Requests to the API server, leadership and certificates.
REST_REQUESTS: Final = _counter(
    "rest_client_requests_total", "HTTP requests by status, method and host", ["code", "method", "host"]
)
LEADER_STATUS: Final = _gauge(
    "leader_election_master_status", "1 while this process holds the lease of that name, else 0", ["name"]
)
CERTWATCHER_READS: Final = _counter("certwatcher_read_certificate_total", "Certificate reads")
CERTWATCHER_READ_ERRORS: Final = _counter(
    "certwatcher_read_certificate_errors_total", "Certificate reads that failed"
)

# Series of our own, without a counterpart in Go.
CACHE_DEGRADED: Final = _gauge(
    "controller_runtime_cache_degraded",
    "1 while a watched kind is missing or denied, else 0",
    ["group", "version", "kind"],
)
CACHE_UNAVAILABLE: Final = _gauge(
    "controller_runtime_cache_api_server_unavailable",
    "1 while the API server does not answer the cache's lists and watches, else 0",
    [],
)
CACHE_SKIPPED_OBJECTS: Final = _counter(
    "controller_runtime_cache_skipped_objects_total",
    "Objects that the cache skipped because they could not be decoded",
    ["group", "version", "kind"],
)
TURN_WAIT: Final = _histogram(
    "controller_runtime_turn_wait_seconds",
    "Seconds that work waited because other work was ahead of it: thread (work on a large object in a reconcile), "
    "review thread (the same in a review), request (a request to the API server that the client's rate limit delayed)",
    ["resource"],
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)


class TaskCollector(Collector):
    """Counts the tasks of the event loop that answers the scrape, like ``go_goroutines`` in Go."""

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the only family, without samples."""
        return [GaugeMetricFamily("python_asyncio_tasks", "Tasks of the event loop")]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the only family. If no event loop runs, it has no sample."""
        (family,) = self.describe()
        with contextlib.suppress(RuntimeError):
            family.add_metric([], len(asyncio.all_tasks()))
        yield family


ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)
REGISTRY.register(TaskCollector())


def render(registry: Collector = REGISTRY) -> bytes:
    """Return the families of ``registry`` in Prometheus' text format (:data:`CONTENT_TYPE`)."""
    return generate_latest(registry)
