# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs whose JSON is long are processed in a thread, whichever of their fields is long."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import offload

ENV = [{"name": f"E{number}"} for number in range(1000)]


def train_job(**spec: Any) -> TrainJob:
    return TrainJob.from_json(json.dumps({"metadata": {"name": "a"}, "spec": spec}))


@pytest.mark.parametrize(
    ("spec", "large"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"trainer": {"env": ENV[:100]}}, False, id="what people write"),
        pytest.param({"trainer": {"env": ENV}}, True, id="a trainer's environment"),
        pytest.param({"podTemplateOverrides": [{}] * 5000}, True, id="overrides"),
        pytest.param(
            {"podTemplateOverrides": [{"spec": {"affinity": {"x": [{}] * 5000}}}]},
            True,
            id="what no model names",
        ),
        pytest.param({"labels": {f"k{number}": "v" for number in range(2000)}}, True, id="a map"),
    ],
)
async def test_a_large_train_job_is_worked_on_in_a_thread(spec: dict[str, Any], large: bool) -> None:
    for job in (train_job(**spec), train_job(**spec).deep_copy(), train_job(**spec).shallow_copy()):
        where = await offload.run(job, threading.get_ident)
        assert (where != threading.get_ident()) is large


async def test_a_small_train_job_of_a_large_runtime_is_worked_on_in_a_thread() -> None:
    with offload.object_size(100_000):
        assert await offload.run(train_job(), threading.get_ident) != threading.get_ident()
    assert await offload.run(train_job(), threading.get_ident) == threading.get_ident()
