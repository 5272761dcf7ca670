# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's program: flags, Configuration, and the manager's runnables."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

import controller_runtime as ctrl
from controller_runtime import cache, healthz, rest
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import ReadThrough
from controller_runtime.machinery import Object, rawjson

from pkg import config, controller, features, metrics
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core

from . import flags, process, serving
from .flags import Flags

_REFERRED_TO: Final = (ClusterTrainingRuntime, TrainingRuntime, PriorityClass)
"""Kinds to which other objects refer by name. Users often create both objects at the same time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the manager until it is stopped; return the exit code."""
    return process.main(flags.PROGRAM, flags.parse, flags.usage, _load_and_run, arguments)


async def _load_and_run(parsed: Flags) -> None:
    cfg = config.load(parsed.config)
    await run(parsed, config.with_feature_gates(cfg, parsed.feature_gates))


async def run(parsed: Flags, cfg: Configuration) -> None:
    """Run the manager until a signal ends it. Raises like :func:`.process.serve`, also if no cluster is configured."""
    connection = config.rest_config(cfg, await rest.load_config(parsed.kubeconfig or None))
    made, fill = options(parsed, cfg), functools.partial(setup, parsed=parsed, cfg=cfg)
    await process.serve(flags.PROGRAM, connection, made, fill, parsed.config, traced=parsed.tracing)


def groups_pods(parsed: Flags, cfg: Configuration) -> bool:
    """Return True if the pod grouper runs: the Configuration or the flags name it, and the flags do not exclude it."""
    named = cfg.pod_grouper.enable or flags.POD_GROUPER in parsed.controllers
    return bool(named) and parsed.enabled(flags.POD_GROUPER)


def reports_status(parsed: Flags, cfg: Configuration) -> bool:
    """Return True if the pods of TrainJobs report their progress, that is, if the feature gate is enabled."""
    gates = config.with_feature_gates(cfg, parsed.feature_gates).feature_gates or {}
    return features.resolve(gates).enabled(features.TRAIN_JOB_STATUS)


def options(parsed: Flags, cfg: Configuration) -> ctrl.Options:
    """Return the manager's options. If the pod grouper or the status server runs, its cache options are included."""
    made = config.manager_options(cfg)
    # A JobSet repeats parts of its TrainJob for each replicated job.
    held: dict[type[Object], cache.ByObject] = {JobSet: cache.ByObject(limits=rawjson.WIDE)}
    if groups_pods(parsed, cfg):
        from pkg import podgrouper  # fifty modules that only the pod grouper needs

        held |= podgrouper.cache_options(podgrouper.Settings.of(cfg))
    if reports_status(parsed, cfg):
        from pkg.runtime.framework.plugins import trainjobstatus  # loads the status server

        held |= trainjobstatus.cache_options(cfg)
    return dataclasses.replace(made, cache=dataclasses.replace(made.cache, by_object=held))


async def setup(mgr: ctrl.Manager, parsed: Flags, cfg: Configuration) -> None:
    """Register controllers, webhooks and checks with a manager that has not started.

    If ``--controllers`` is just ``podgrouper``, no webhook is served and none of Trainer's kinds is watched.
    """
    mgr.add(metrics.DegradedKindsExporter(mgr.cache.degraded))
    mgr.add_healthz_check("healthz", healthz.ping)
    if groups_pods(parsed, cfg):
        from pkg import podgrouper

        await podgrouper.setup(mgr, podgrouper.Settings.of(cfg))
    if parsed.controllers == (flags.POD_GROUPER,):
        return
    reader = ReadThrough(mgr.client, mgr.api_reader, _REFERRED_TO)
    gated = config.with_feature_gates(cfg, parsed.feature_gates)
    runtimes = await core.new(
        reader,
        mgr.field_indexer,
        cfg=gated,
        store=mgr.client,
        reader=mgr.api_reader,
        published=mgr.published_schema,
    )
    for kind in (TrainingRuntime, ClusterTrainingRuntime, TrainJob, JobSet):
        kind.model_rebuild()  # now: not in the first reconcile, and before gc.freeze()
    controller.setup_controllers(mgr, runtimes, enabled=parsed.enabled, cfg=gated)
    serving.log_remarks(gated, enable_http2=parsed.enable_http2)
    if parsed.webhooks:
        certificates = serving.webhooks(mgr, cfg, runtimes)
        if reports_status(parsed, cfg):
            serving.status(mgr, cfg, certificates)
    elif reports_status(parsed, cfg):
        serving.log_no_status()
