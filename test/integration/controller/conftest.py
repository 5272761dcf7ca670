# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the controllers' tests."""

from collections.abc import AsyncIterator

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob


@pytest.fixture
async def leave_no_jobs(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> AsyncIterator[None]:
    """Remove the TrainJobs of a test: the managers of other tests would find them."""
    yield
    for kind in (TrainJob, JobSet):
        await live_client.delete_all_of(kind, namespace=namespace)
