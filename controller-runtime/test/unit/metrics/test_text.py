# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The text is that of prometheus_client's own writer, character for character."""

import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Enum, Histogram, Info, Summary
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller_runtime import metrics


class Families(Collector):
    """A collector that returns the given metric families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def test_the_content_type() -> None:
    assert metrics.CONTENT_TYPE == CONTENT_TYPE_PLAIN_0_0_4


def test_every_type_of_family() -> None:
    registry = CollectorRegistry()
    Summary("s", "A summary", ["a"], registry=registry).labels("x").observe(3)
    Histogram("h_seconds", "A histogram", registry=registry).observe(0.3)
    Info("i", "Info\nof two lines \\", registry=registry).info({"b": "2", "a": '"\\\n'})
    Enum("e", "States", states=["on", "off"], registry=registry).state("off")
    buckets = GaugeHistogramMetricFamily("gh", "Gauges", buckets=[("1", 1.0), ("+Inf", 2.0)], gsum_value=3.0)
    registry.register(Families(buckets, UnknownMetricFamily("u", "Unknown", value=2)))
    counted = CounterMetricFamily("c", "Counted", labels=["z", "y"], created=5.0)
    counted.add_metric(["ü", ""], 1e9, created=4.0, timestamp=12.3456)
    registry.register(Families(counted))
    assert metrics.render(registry) == generate_latest(registry)


@pytest.mark.parametrize("value", [0, -1, 1e6, 123456789.0, 1e-9, 1e21, math.inf, -math.inf, math.nan, True])
def test_values(value: float) -> None:
    families = Families(GaugeMetricFamily("g", "Gauge", value=value))
    assert metrics.render(families) == generate_latest(families)


@pytest.mark.parametrize(("name", "label"), [("a.b", "c"), ("a:b", "c"), ("a", "b.c"), ("ä", "c")])
def test_names(name: str, label: str) -> None:
    family = Metric(name, "Named", "gauge")
    family.add_sample(name, {label: "v"}, 1)
    assert metrics.render(Families(family)) == generate_latest(Families(family))


def test_the_registry_of_managers() -> None:
    def stable(lines: bytes) -> list[bytes]:
        return [line for line in lines.splitlines() if not line.startswith((b"process_", b"python_"))]

    assert stable(metrics.render()) == stable(generate_latest(metrics.REGISTRY))
