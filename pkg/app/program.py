# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's program: flags, Configuration, and the manager's runnables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import controller_runtime as ctrl
from controller_runtime import cache, healthz, rest
from controller_runtime.apis.machinery import shape
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import ReadThrough

from pkg import config, controller, metrics, webhooks
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime
from pkg.runtime import Runtime, core

from . import flags, process
from .certificates import ManagedWebhooks, certificates_for
from .flags import Flags

_REFERRED_TO: Final = (ClusterTrainingRuntime, TrainingRuntime, PriorityClass)
"""Kinds that users create together with the objects that refer to them by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the manager until it is stopped; return the exit code."""
    return process.main(flags.PROGRAM, flags.parse, flags.usage, _load_and_run, arguments)


async def _load_and_run(parsed: Flags) -> None:
    await run(parsed, config.load(parsed.config))


async def run(parsed: Flags, cfg: Configuration) -> None:
    """Run the manager until a signal ends it.

    Raises:
        RestError: no cluster is configured, or it cannot be reached.
        ManagerError: a part of the manager failed, or leadership was lost.
    """
    connection = config.rest_config(cfg, await rest.load_config(parsed.kubeconfig or None))

    async def fill(mgr: ctrl.Manager) -> None:
        await setup(mgr, parsed, cfg)

    await process.serve(flags.PROGRAM, connection, options(parsed, cfg), fill, parsed.config)


def groups_pods(parsed: Flags, cfg: Configuration) -> bool:
    """Return True if the pod grouper runs: the Configuration or the command line names it, and none excludes it."""
    named = cfg.pod_grouper.enable or flags.POD_GROUPER in parsed.controllers
    return bool(named) and parsed.enabled(flags.POD_GROUPER)


def options(parsed: Flags, cfg: Configuration) -> ctrl.Options:
    """Return the manager's options, with the pod grouper's cache options if it runs."""
    made = config.manager_options(cfg)
    # A JobSet repeats parts of its TrainJob for each replicated job.
    held: dict[type[Object], cache.ByObject] = {JobSet: cache.ByObject(limits=shape.WIDE)}
    if groups_pods(parsed, cfg):
        from pkg import podgrouper  # fifty modules that only the pod grouper needs

        held |= podgrouper.cache_options(podgrouper.settings(cfg))
    return dataclasses.replace(made, cache=dataclasses.replace(made.cache, by_object=held))


async def setup(mgr: ctrl.Manager, parsed: Flags, cfg: Configuration) -> None:
    """Register controllers, webhooks and checks with a manager that has not started.

    If only the pod grouper runs, no webhook is served and none of Trainer's kinds is watched.
    """
    mgr.add(metrics.DegradedKindsExporter(mgr.cache.degraded))
    mgr.add_healthz_check("healthz", healthz.ping)
    if groups_pods(parsed, cfg):
        from pkg import podgrouper

        await podgrouper.setup(mgr, podgrouper.settings(cfg))
    if parsed.controllers == (flags.POD_GROUPER,):
        return
    reader = ReadThrough(mgr.client, mgr.api_reader, _REFERRED_TO)
    runtimes = await core.new(reader, mgr.field_indexer, cfg=cfg, store=mgr.api_reader)
    controller.setup_controllers(mgr, runtimes, enabled=parsed.enabled, cfg=cfg)
    if parsed.webhooks:
        _serve_webhooks(mgr, cfg, runtimes)


def _serve_webhooks(mgr: ctrl.Manager, cfg: Configuration, runtimes: Mapping[str, Runtime]) -> None:
    """Serve the webhooks, with certificates of the manager's own or of a directory; readiness waits for them."""
    if not cfg.cert_management.enable:
        webhooks.setup(mgr, runtimes, cfg)
        mgr.add_readyz_check("readyz", mgr.webhook_server.started_checker())
        return
    certificates = certificates_for(mgr, cfg.cert_management)

    def register() -> None:
        mgr.webhook_server.use(certificates)
        webhooks.setup(mgr, runtimes, cfg)

    def started() -> None:  # an earlier access to the server would start it
        mgr.webhook_server.started_checker()()

    managed = ManagedWebhooks(certificates, register, started)
    mgr.add(managed)
    mgr.add_readyz_check("readyz", managed.check)
