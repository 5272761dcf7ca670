# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's own validating webhooks as admission: a Service picks a replica, and the call takes its time."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import anyio
import controller_runtime as ctrl
from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.field import AggregateError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.cache import CacheError
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.loop import CURRENT, Process
from controller_runtime.simtest.writes import Review
from controller_runtime.webhook import CustomValidator

from pkg import webhooks
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import Runtime

_TIMEOUT = 10.0
_KINDS: dict[str, type[Object]] = {
    kind.gvk.kind: kind for kind in (ClusterTrainingRuntime, TrainingRuntime, TrainJob)
}


async def review_secret(review: Review) -> None:
    """The API server's validation of an immutable Secret."""
    new, old = review.new, review.old
    if new is not None and old is not None and old.get("immutable") and new.get("data") != old.get("data"):
        text = (
            f'Secret "{new["metadata"]["name"]}" is invalid: data: Forbidden: '
            "field is immutable when `immutable` is set"
        )
        raise errors.InvalidError(text, code=422, reason="Invalid")


class _Replica(NamedTuple):
    process: Process
    manager: ctrl.Manager
    context: contextvars.Context
    validators: dict[type[Object], CustomValidator[Any]]

    @property
    def is_ready(self) -> bool:
        """Whether a Service would send requests here; a process that hangs stays ready for a while."""
        ended = self.process.dead or self.process.ended.is_set()
        return self.manager._lifecycle.synced and not ended


class Webhooks:
    """The validators of all replicas; a call runs in the process of the replica, and ends with it."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.seed}/webhooks")
        self._replicas: dict[str, _Replica] = {}

    def serve(self, mgr: ctrl.Manager, runtimes: Mapping[str, Runtime]) -> None:
        """Serve the validators of the process that calls this, once the manager is ready."""
        process = CURRENT.get()
        assert process is not None
        context = contextvars.copy_context()
        self._replicas[process.name] = _Replica(process, mgr, context, webhooks.validators(runtimes))

    async def review(self, review: Review) -> None:
        """Raise if a validator denies a write, or no replica answers in time."""
        if review.subresource or review.new is None:
            return
        await anyio.sleep(self._rng.choice([0.001, 0.01, 0.2]) * self._rng.random())
        ready = [each for _, each in sorted(self._replicas.items()) if each.is_ready]
        if not ready:
            raise _failed("no endpoints available for service")
        replica, kind = self._rng.choice(ready), _KINDS[review.gvk.kind]
        work = _validate(replica.validators[kind], kind, review)
        task = asyncio.get_running_loop().create_task(work, context=replica.context.copy())
        done, _ = await asyncio.wait([task], timeout=_TIMEOUT)
        if not done:
            task.cancel()
            raise _failed("context deadline exceeded")
        if (denial := task.result()) is not None:
            raise denial


async def _validate(
    validator: CustomValidator[Any], kind: type[Object], review: Review
) -> errors.StatusError | None:
    """Return the denial of a write, or None."""
    assert review.new is not None
    new = kind.from_dict(review.new)
    try:
        if review.old is None:
            await validator.validate_create(new)
        else:
            await validator.validate_update(kind.from_dict(review.old), new)
    except CacheError as error:  # the manager stops
        return _failed(str(error))
    except (AggregateError, errors.StatusError) as error:
        text = f'admission webhook "validator.trainer.kubeflow.org" denied the request: {error}'
        return errors.ForbiddenError(text, code=403, reason="Forbidden")
    return None


def _failed(reason: str) -> errors.StatusError:
    text = f'failed calling webhook "validator.trainer.kubeflow.org": {reason}'
    return errors.StatusError(text, code=500, reason="InternalError")
