# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import math
import re
from pathlib import Path

import anyio
import pytest
from prometheus_client import Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics import MetricWrapperBase

import controller_runtime
from controller_runtime import metrics

NAMES = {
    "controller_runtime_reconcile_total": ("counter", {"controller", "result"}),
    "controller_runtime_reconcile_errors_total": ("counter", {"controller"}),
    "controller_runtime_terminal_reconcile_errors_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_panics_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_timeouts_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_time_seconds": ("histogram", {"controller"}),
    "controller_runtime_max_concurrent_reconciles": ("gauge", {"controller"}),
    "controller_runtime_active_workers": ("gauge", {"controller"}),
    "controller_runtime_webhook_latency_seconds": ("histogram", {"webhook"}),
    "controller_runtime_webhook_requests_total": ("counter", {"webhook", "code"}),
    "controller_runtime_webhook_requests_in_flight": ("gauge", {"webhook"}),
    "controller_runtime_webhook_panics_total": ("counter", set()),
    "workqueue_depth": ("gauge", {"name", "controller", "priority"}),
    "workqueue_adds_total": ("counter", {"name", "controller"}),
    "workqueue_queue_duration_seconds": ("histogram", {"name", "controller"}),
    "workqueue_work_duration_seconds": ("histogram", {"name", "controller"}),
    "workqueue_unfinished_work_seconds": ("gauge", {"name", "controller"}),
    "workqueue_longest_running_processor_seconds": ("gauge", {"name", "controller"}),
    "workqueue_retries_total": ("counter", {"name", "controller"}),
    "rest_client_requests_total": ("counter", {"code", "method", "host"}),
    "leader_election_master_status": ("gauge", {"name"}),
    "certwatcher_read_certificate_total": ("counter", set()),
    "certwatcher_read_certificate_errors_total": ("counter", set()),
}


def test_every_series_of_the_go_managers_is_there_with_its_type_and_labels() -> None:
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", metrics.render().decode(), re.MULTILINE))
    labels = {
        made.describe()[0].name + ("_total" if made._type == "counter" else ""): set(made._labelnames)
        for made in vars(metrics).values()
        if hasattr(made, "_labelnames")
    }
    for name, (kind, names) in NAMES.items():
        assert (name, types.get(name), labels.get(name)) == (name, kind, names)
    assert types["process_resident_memory_bytes"] == "gauge"


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert metrics.CONTENT_TYPE == CONTENT_TYPE_PLAIN_0_0_4


# fmt: off
FINE = [
    1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10, 100, 1000,
]
COARSE = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 1.75,
    2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
]
# fmt: on


@pytest.mark.parametrize(
    ("histogram", "bounds"),
    [
        pytest.param(metrics.WORKQUEUE_QUEUE_DURATION, FINE, id="queue"),
        pytest.param(metrics.WORKQUEUE_WORK_DURATION, FINE, id="work"),
        pytest.param(metrics.WEBHOOK_LATENCY, FINE, id="webhook"),
        pytest.param(metrics.RECONCILE_TIME, COARSE, id="reconcile"),
    ],
)
def test_the_bounds_of_durations_are_gos_floats(histogram: Histogram, bounds: list[float]) -> None:
    labels = ["bounds"] * len(histogram._labelnames)
    histogram.labels(*labels)
    (family,) = histogram.collect()
    histogram.remove(*labels)
    ours = [sample.labels for sample in family.samples if "bounds" in sample.labels.values()]
    assert [float(each["le"]) for each in ours if "le" in each] == [*bounds, math.inf]


def test_the_text_has_no_created_series_and_whole_bounds_without_a_point() -> None:
    registry = metrics.Registry()
    Histogram("h_seconds", "h", ["a"], buckets=(0.5, 1.0, 10), registry=registry).labels("x").observe(2)
    Counter("c", "c", registry=registry).inc()
    text = metrics.render(registry).decode()
    assert re.findall(r'le="([^"]+)"', text) == ["0.5", "1", "10", "+Inf"]
    assert "_created" not in text


async def test_the_tasks_of_the_loop_are_counted_and_a_finished_one_is_not() -> None:
    def tasks() -> float:
        (family,) = metrics.REGISTRY.restricted_registry(["python_asyncio_tasks"]).collect()
        return family.samples[0].value

    before = tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        assert tasks() == before + 1
        group.cancel_scope.cancel()
    assert tasks() == before


def test_every_series_is_observed_by_some_module() -> None:
    package = Path(controller_runtime.__file__).parent
    elsewhere = "".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if path.parent != package / "metrics"
    )
    series = [name for name, each in vars(metrics.registry).items() if isinstance(each, MetricWrapperBase)]
    assert "RECONCILE_TOTAL" in series
    assert [name for name in series if not re.search(rf"\bmetrics\.{name}\b", elsewhere)] == []
