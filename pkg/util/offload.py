# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Work on a TrainJob that may take long, away from the event loop when the TrainJob, or its runtime, is large."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from controller_runtime import offload
from controller_runtime.offload import weighing as weighing

from pkg.apis.trainer.v1alpha1 import TrainJob

P = ParamSpec("P")
R = TypeVar("R")


async def run(train_job: TrainJob, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what ``work`` returns; for a large TrainJob it runs in a thread, so that others are served meanwhile.

    ``work`` touches nothing that others change. When the caller is cancelled, it runs to its end first.
    """
    with offload.weighing(train_job.decoded_size):
        return await offload.run(work, *args, **kwargs)
