# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus beside a local cluster: it scrapes the manager, and its page answers every query of the dashboard."""

from __future__ import annotations

import html
import re
import urllib.request
from pathlib import Path

import anyio
import pytest
from controller_runtime.envtest import eventually

from trainerctl.localcluster import prometheus
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.state import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_the_page_of_the_dashboards_queries_shows_the_manager(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", Options(nodes=1, prometheus=True), tied=True)
    await cluster.up()
    try:
        state = State.read(cluster.directory)
        assert state is not None
        address = f"{state.address_of(prometheus.NAME)}/{prometheus.PAGE}"

        def read() -> str:
            try:
                with urllib.request.urlopen(address, timeout=30) as response:
                    text: str = response.read().decode()
                    return text
            except OSError:  # Prometheus does not listen yet, or its response has an error status
                return ""

        async def shows_data() -> str:
            text = await anyio.to_thread.run_sync(read)
            return text if "controller=trainjob_controller" in text else ""

        text = await eventually(shows_data, timeout=60, reason="the manager was scraped")
        titles = [title for title, _ in prometheus.queries()]
        assert len(titles) > 10
        assert re.findall("<h2>(.*)</h2>", text) == [html.escape(title) for title in titles]
        assert "error" not in text.partition("</h1>")[0]
    finally:
        cluster.kill()
