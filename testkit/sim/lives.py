# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Short lives without faults, in which a test does something."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio
from controller_runtime import simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob

Act = Callable[[Simulation], Coroutine[Any, Any, None]]


def serve_kinds(sim: Simulation) -> None:
    """Serve the kinds of the manager, without a manager."""
    sim.serve(
        TrainJob, ClusterTrainingRuntime, TrainingRuntime, JobSet, Job, Pod, ConfigMap, Secret, PodGroup
    )


def failure_of(prepare: Callable[[Simulation], None], act: Act, beside: Sequence[Act] = ()) -> str:
    """Return the failure of a simulation in which ``act`` happens, beside other tasks."""

    async def run(sim: Simulation) -> None:
        async with anyio.create_task_group() as group:
            for each in beside:
                group.start_soon(each, sim)
            try:
                await act(sim)
            finally:
                group.cancel_scope.cancel()

    def scenario(sim: Simulation) -> None:
        prepare(sim)
        sim.finally_(run)

    failure = simtest.run(scenario, 1, steps=[], minutes=0.1, faults=0.0).failure
    while isinstance(failure, ExceptionGroup):
        failure = failure.exceptions[0]
    return str(failure)
