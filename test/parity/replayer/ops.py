# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a case's operation with the product's code; returns the answer in the form of the case's ``want``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller_runtime import reconcile
from controller_runtime.fake import Call
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.meta import format_time
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.controller import ClusterTrainingRuntimeReconciler, TrainingRuntimeReconciler, TrainJobReconciler
from pkg.runtime import UnsupportedRuntimeError, core, framework, runtime_for

from . import admission, cases, grouping, serving, watches
from .cases import Case
from .world import NOW, Cluster, Recorder, decode, runtimes

Answer = dict[str, Any]

_APPLIES: Final = frozenset({"apply", "create"})
"""The verbs with which our controllers write children: a snapshot, which is written only once, is created."""


class UnknownOpError(Exception):
    """A case names an unknown operation."""


async def answer(case: Case) -> Answer:
    """Return the product's answer to a case, or ``{"panic": …}`` after an unexpected error.

    Raises:
        UnknownOpError: the operation is unknown.
    """
    candidates = _OPS.get(case.op, ())
    op = next((op for op, subject in candidates if subject in case.input), None)
    if op is None:
        lacking = " or ".join(subject for _, subject in candidates)
        raise UnknownOpError(f"unknown op: {case.op}" + (f" without {lacking}" if lacking else ""))
    try:
        return await op(case.input)
    except Exception as error:
        return {"panic": f"{type(error).__name__}: {error}"}


async def _new_objects(case: Answer) -> Answer:
    cluster = Cluster(case)
    train_job = TrainJob.from_dict(case["trainJob"])
    try:
        runtime = runtime_for(await runtimes(cluster), train_job.spec.runtime_ref)
        objects = await runtime.new_objects(train_job)
    except (
        StatusError,
        RestError,
        StrategicMergeError,
        UnsupportedRuntimeError,
        core.RuntimeNotFoundError,
        framework.PluginError,
    ) as error:
        return {"error": str(error)}
    answered: Answer = {"objects": sorted((obj.to_dict() for obj in objects), key=_kind_and_name)}
    if applied := [call.body for call in cluster.written(_APPLIES)]:
        answered["applied"] = applied
    return answered


async def _status(case: Answer) -> Answer:
    train_job = TrainJob.from_dict(case["trainJob"])
    try:
        runtime = runtime_for(await runtimes(Cluster(case)), train_job.spec.runtime_ref)
        status = await runtime.train_job_status(train_job)
    except (StatusError, RestError, UnsupportedRuntimeError) as error:
        return {"error": str(error)}
    return {"status": status.to_dict() if status is not None else None}


async def _reconcile(case: Answer) -> Answer:
    cluster = Cluster(case)
    train_job = _seed(cluster, case["trainJob"])
    recorder = Recorder()
    reconciler = TrainJobReconciler(cluster, recorder, await runtimes(cluster), now=lambda: NOW)
    error: str | None = None
    results: list[reconcile.Result] = []

    async def once() -> None:
        results.append(await reconciler.reconcile(reconcile.Request.for_object(train_job)))

    for _ in range(case.get("reconciles", 1)):
        results.clear()
        error = await _error_of(once())
    stored = await super(Cluster, cluster).get(TrainJob, train_job.key)
    applied = [{"apiVersion": call.kind.api_version, **_named(call)} for call in cluster.written(_APPLIES)]
    answered: Answer = {
        "error": error,
        "status": stored.status.to_dict(),
        "applied": sorted(applied, key=lambda ref: (ref["kind"], ref["name"])),
        "events": recorder.events,
    }
    if case.get("profile", cases.PROFILES[0]) != cases.PROFILES[0]:
        if deleted := [_named(call) for call in cluster.written({"delete"})]:
            answered["deleted"] = deleted
        if results and results[0].requeue_after:
            answered["requeueAt"] = format_time(NOW + results[0].requeue_after)
    return answered


def _named(call: Call) -> Answer:
    return {"kind": call.kind.kind, "name": call.key.name, "namespace": call.key.namespace}


async def _reconcile_runtime(case: Answer) -> Answer:
    cluster = Cluster(case)
    runtime = _seed(cluster, case["runtime"])
    await runtimes(cluster)
    reconciler = (
        ClusterTrainingRuntimeReconciler(cluster, cluster.cfg)
        if isinstance(runtime, ClusterTrainingRuntime)
        else TrainingRuntimeReconciler(cluster, cluster.cfg)
    )
    error = await _error_of(reconciler.reconcile(reconcile.Request.for_object(runtime)))
    try:
        stored = await super(Cluster, cluster).get(type(runtime), runtime.key)
    except NotFoundError:
        return {"error": error, "exists": False}
    return {"error": error, "exists": True, "finalizers": stored.metadata.finalizers or []}


async def _validate_create(case: Answer) -> Answer:
    return await admission.verdict_on_train_job(await runtimes(Cluster(case)), None, case["trainJob"])


async def _validate_update(case: Answer) -> Answer:
    return await admission.verdict_on_train_job(
        await runtimes(Cluster(case)), case["oldTrainJob"], case["trainJob"]
    )


async def _mutate(case: Answer) -> Answer:
    return await admission.mutation_of_train_job(Cluster(case).cfg, case.get("oldTrainJob"), case["trainJob"])


async def _validate_runtime(case: Answer) -> Answer:
    kind = ClusterTrainingRuntime if case["runtime"]["kind"] == "ClusterTrainingRuntime" else TrainingRuntime
    return await admission.verdict_on_runtime(
        kind, case.get("oldRuntime"), case["runtime"], Cluster(case).cfg
    )


async def _enqueue(case: Answer) -> Answer:
    return {"requests": await watches.woken_by(Cluster(case), case["event"])}


def _seed(cluster: Cluster, data: Answer) -> Object:
    obj = decode(data)
    cluster.add(obj)
    return obj


async def _error_of(step: Awaitable[Any]) -> str | None:
    """Return the text of the error of a step, with a line for each of several errors, or None."""
    try:
        await step
    except ExceptionGroup as group:
        return "\n".join(map(str, group.exceptions))
    except Exception as error:
        return str(error)
    return None


def _kind_and_name(obj: Answer) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"]["name"], obj["apiVersion"]


_Op = tuple[Callable[[Answer], Awaitable[Answer]], str]
_OPS: Final[dict[str, tuple[_Op, ...]]] = {
    "newObjects": ((_new_objects, "trainJob"),),
    "status": ((_status, "trainJob"),),
    "reconcile": ((_reconcile, "trainJob"), (grouping.reconcile_pods, "pod")),
    "reconcileRuntime": ((_reconcile_runtime, "runtime"),),
    "validateCreate": ((_validate_create, "trainJob"),),
    "validateUpdate": ((_validate_update, "oldTrainJob"),),
    "mutate": ((_mutate, "trainJob"),),
    "validateRuntime": ((_validate_runtime, "runtime"),),
    "enqueue": ((_enqueue, "event"),),
    "owners": ((grouping.owners, "pod"),),
    "config": ((serving.load_configuration, "want"),),
    "statusUpdate": ((serving.update_status, "request"),),
    "authorize": ((serving.authorize, "token"),),
    "metadata": ((grouping.metadata, "pod"),),
}
"""The function of each operation, with the part of a case that it takes."""
