# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(("worker", "needed"), [("0", 1), ("00", 3)])
async def test_while_the_leader_gets_ready_only_index_0_is_the_leader(
    worker: str, needed: int, make_object: Any, make_pod: Any, group: Any
) -> None:
    spec = {"leaderWorkerTemplate": {"size": 3}, "startupPolicy": "LeaderReady"}
    lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)
    pod = make_pod("p", lws, labels={"leaderworkerset.sigs.k8s.io/worker-index": worker})

    assert (await group(pod, lws)).min_available == needed
