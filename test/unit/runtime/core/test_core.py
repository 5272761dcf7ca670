# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, cast

from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import core


async def test_both_kinds_are_served_and_cannot_write() -> None:
    client = FakeClient()

    made = await core.new(client, client)

    assert list(made) == [
        "TrainingRuntime.trainer.kubeflow.org",
        "ClusterTrainingRuntime.trainer.kubeflow.org",
    ]
    reader: Any = cast("core.TrainingRuntime", made[core.TRAINING_RUNTIME_GROUP_KIND]).client
    assert not hasattr(reader, "apply")
    assert not hasattr(reader, "create")
    assert not hasattr(reader, "status")
    assert await reader.list(TrainJob) == []
