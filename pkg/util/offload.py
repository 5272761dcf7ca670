# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Work on a TrainJob that may take long, away from the event loop when the TrainJob is large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

import anyio.to_thread

from pkg.apis.trainer.v1alpha1 import PodTemplateOverride, TrainJob

P = ParamSpec("P")
R = TypeVar("R")

_LARGE: Final = 200
"""Items beyond which work on a TrainJob may take more than a millisecond."""


async def run(train_job: TrainJob, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what ``work`` returns; for a large TrainJob it runs in a thread, so that others are served meanwhile.

    ``work`` touches nothing that anybody else changes. When the caller is cancelled, it runs to its end first.
    """
    if is_large(train_job):
        return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs))
    return work(*args, **kwargs)


def is_large(train_job: TrainJob) -> bool:
    """Say whether a TrainJob has more in it than people write."""
    count = 0
    for items in _items(train_job):
        count += items
        if count > _LARGE:
            return True
    return False


def _items(train_job: TrainJob) -> Iterator[int]:
    """Yield numbers of items that together say how large a TrainJob is."""
    spec = train_job.spec
    if spec.trainer is not None:
        yield len(spec.trainer.env or ())
    if spec.initializer is not None:
        for source in (spec.initializer.dataset, spec.initializer.model):
            yield len((source.env if source is not None else None) or ())
    for override in spec.pod_template_overrides or ():
        yield from _of_override(override)


def _of_override(override: PodTemplateOverride) -> Iterator[int]:
    yield 1 + len(override.target_jobs or ())
    if (pod := override.spec) is None:
        return
    for items in (pod.volumes, pod.tolerations, pod.image_pull_secrets, pod.scheduling_gates):
        yield len(items or ())
    for container in (*(pod.containers or ()), *(pod.init_containers or ())):
        yield 1 + len(container.env or ()) + len(container.volume_mounts or ())
