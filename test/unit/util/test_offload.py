# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which TrainJobs are worked on away from the loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import offload

ENV = [{"name": f"E{number}"} for number in range(300)]
TARGETS = [{"name": f"t{number}"} for number in range(300)]


def train_job(**spec: Any) -> TrainJob:
    return TrainJob.from_dict({"metadata": {"name": "a"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "large"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"trainer": {"env": ENV[:100]}}, False, id="what people write"),
        pytest.param({"trainer": {"env": ENV}}, True, id="a trainer's environment"),
        pytest.param({"initializer": {"model": {"env": ENV}}}, True, id="an initializer's environment"),
        pytest.param({"podTemplateOverrides": [{"targetJobs": TARGETS}]}, True, id="targets"),
        pytest.param({"podTemplateOverrides": [{}] * 300}, True, id="overrides"),
        pytest.param(
            {"podTemplateOverrides": [{"spec": {"containers": [{"name": "a", "env": ENV}]}}]},
            True,
            id="one override",
        ),
    ],
)
async def test_a_large_train_job_is_worked_on_in_a_thread(spec: dict[str, Any], large: bool) -> None:
    where = await offload.run(train_job(**spec), threading.get_ident)
    assert (where != threading.get_ident()) is large
