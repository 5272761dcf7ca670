# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests share with what they make of them: a clock, a recorder, and a server with its cache of owners."""

from __future__ import annotations

import pytest

from pkg.podgrouper.ownercache import OwnerCache
from testkit.grouping import Clock, DirectClient, OwnerServer
from testkit.recorder import Recorder


@pytest.fixture
def clock() -> Clock:
    """Return a clock that the test sets."""
    return Clock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def cluster() -> OwnerServer:
    return OwnerServer()


@pytest.fixture
def owners(cluster: OwnerServer) -> OwnerCache:
    return OwnerCache(DirectClient(cluster), cluster.watched, cluster, clock=lambda: cluster.now)
