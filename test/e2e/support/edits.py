# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Edits of TrainJobs."""

import json
from typing import Any

from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually

from pkg.apis.trainer.v1alpha1 import TrainJob


async def edit_spec(client: LiveClient, job: TrainJob, **spec: Any) -> TrainJob:
    """Change the spec, as ``kubectl patch`` does. Overrides are refused until the pods of the TrainJob have ended."""
    body = raw_patch(MERGE, json.dumps({"spec": spec}).encode())

    async def accepted() -> TrainJob | None:
        try:
            return await client.patch(job, body)
        except StatusError as error:
            if "is still active" not in str(error):
                raise
            return None

    changed = await eventually(accepted, timeout=60, reason="the pods of the suspended TrainJob have ended")
    assert isinstance(changed, TrainJob)
    return changed
