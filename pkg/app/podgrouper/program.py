# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's program: flags, and what its manager runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import controller_runtime as ctrl
from controller_runtime import healthz, rest

from pkg import config, metrics, podgrouper
from pkg.apis.config.v1alpha1 import Configuration
from pkg.app import process

from . import flags
from .flags import Flags


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pod grouper until it is stopped; return the exit code."""
    return process.main(flags.PROGRAM, flags.parse, flags.usage, run, arguments)


async def run(parsed: Flags) -> None:
    """Run the pod grouper until a signal ends it. Raises like :func:`pkg.app.process.serve`."""
    cfg = parsed.configuration
    connection = config.rest_config(cfg, await rest.load_config(parsed.kubeconfig or None))
    fill = functools.partial(setup, cfg=cfg)
    await process.serve(flags.PROGRAM, connection, options(cfg), fill, traced=parsed.tracing)


def options(cfg: Configuration) -> ctrl.Options:
    """Return the manager's options, with the pod grouper's cache options."""
    made = config.manager_options(cfg)
    held = podgrouper.cache_options(podgrouper.Settings.of(cfg))
    return dataclasses.replace(made, cache=dataclasses.replace(made.cache, by_object=held))


async def setup(mgr: ctrl.Manager, cfg: Configuration) -> None:
    """Register the pod grouper and its checks with a manager that has not started."""
    mgr.add(metrics.DegradedKindsExporter(mgr.cache.degraded))
    mgr.add_healthz_check("healthz", healthz.ping)
    await podgrouper.setup(mgr, podgrouper.Settings.of(cfg))
