# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs work on a large TrainJob, or on a TrainJob with a large runtime, outside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from controller_runtime import offload
from controller_runtime.offload import decoded as decoded
from controller_runtime.offload import is_large as is_large
from controller_runtime.offload import object_size as object_size

from pkg.apis.trainer.v1alpha1 import TrainJob

P = ParamSpec("P")
R = TypeVar("R")


async def run(train_job: TrainJob, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of ``work``, which runs in a thread if the TrainJob or its runtime is large.

    ``work`` must not use data that other tasks change. If the caller is cancelled, it still waits until ``work`` has
    ended.
    """
    return await offload.run_sized(train_job.decoded_size, work, *args, **kwargs)
