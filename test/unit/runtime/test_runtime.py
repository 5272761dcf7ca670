# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, cast

from controller_runtime.apis.core.v1 import Container, PodSpec, Volume

from pkg import runtime
from testkit.builders import make_train_job


def test_a_pod_set_has_lists_of_its_own_and_at_least_one_pod() -> None:
    spec = PodSpec(containers=[Container(name="a", env=[])], volumes=[Volume(name="v")])

    pod_set = runtime.new_pod_set("node", "trainer", 0, spec)

    assert pod_set.count == 1
    assert pod_set.volumes == spec.volumes
    assert pod_set.volumes is not spec.volumes
    assert pod_set.containers == [runtime.Container("a", env=[])]


async def test_a_runtime_that_knows_no_gangs_has_no_reason_why_one_waits() -> None:
    without_gangs = cast("Any", None)
    assert await runtime.Runtime.why_waiting(without_gangs, make_train_job("team-a", "job")) is None
