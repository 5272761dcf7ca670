# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import anyio
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller_runtime.metrics import MetricsServer
from controller_runtime.serving import Address, Handler, HTTPRequest, HTTPResponse


class Counting(Collector):
    """Counts its calls."""

    asked = 0

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        yield GaugeMetricFamily("asked", "How often.", value=self.asked)


async def test_all_scrapes_of_a_second_share_one_rendering() -> None:
    registry, counting = CollectorRegistry(), Counting()
    registry.register(counting)
    before = counting.asked
    server = MetricsServer(Address("127.0.0.1", 0), registry=registry)

    async def scrape() -> bytes:
        return (await server._serve(HTTPRequest(path="/metrics"))).body

    answers = set()
    for _ in range(1000):
        answers.add(await scrape())
        await anyio.sleep(0.0009)
    assert (len(answers), counting.asked - before) == (1, 1)
    await anyio.sleep(0.2)
    assert await scrape() not in answers
    assert counting.asked - before == 2


async def test_extra_handlers_are_guarded_like_the_metrics() -> None:
    def filter_(handler: Handler) -> Handler:
        async def guarded(request: HTTPRequest) -> HTTPResponse:
            return await handler(request) if request.headers else HTTPResponse.text("no", status=401)

        return guarded

    async def extra(_request: HTTPRequest) -> HTTPResponse:
        return HTTPResponse.text("extra")

    server = MetricsServer(Address("127.0.0.1", 0), filter_=filter_, extra={"/extra": extra})
    server.add_extra_handler("/late", extra)
    for path in ("/extra", "/late"):
        handler = server._routes[path]
        assert (await handler(HTTPRequest(path=path))).status == 401
        assert (await handler(HTTPRequest(path=path, headers={"a": "b"}))).body == b"extra"
    for path in ("/metrics", "/extra"):
        with pytest.raises(ValueError, match=f"path {path} is taken"):
            server.add_extra_handler(path, extra)
    with pytest.raises(ValueError, match="'more' does not begin with /"):
        server.add_extra_handler("more", extra)
