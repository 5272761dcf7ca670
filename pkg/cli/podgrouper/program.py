# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's program: flags, and what its manager runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from pkg import config, ctrl, metrics, podgrouper
from pkg.apis.config.v1alpha1 import Configuration
from pkg.cli.manager import goflags, process
from pkg.ctrl import healthz, log, rest

from . import flags
from .flags import Flags


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pod grouper until it is stopped; return the exit code."""
    try:
        parsed = flags.parse(sys.argv[1:] if arguments is None else arguments)
    except goflags.HelpRequested:
        sys.stdout.write(flags.usage())
        return 0
    except goflags.FlagError as error:
        return process.complain(flags.PROGRAM, error, process.BAD_USAGE)
    if parsed.version:
        sys.stdout.write(f"{flags.PROGRAM} {process.version()}\n")
        return 0
    log.configure(parsed.log)

    async def work() -> None:
        await run(parsed)

    return process.supervise(flags.PROGRAM, work)


async def run(parsed: Flags) -> None:
    """Run the pod grouper until a signal ends it. Raises like :func:`pkg.cli.manager.process.serve`."""
    cfg = parsed.configuration
    connection = config.rest_config(cfg, await rest.load_config(parsed.kubeconfig or None))

    async def fill(mgr: ctrl.Manager) -> None:
        await setup(mgr, cfg)

    await process.serve(flags.PROGRAM, connection, options(cfg), fill)


def options(cfg: Configuration) -> ctrl.Options:
    """Return the manager's options, with what the cache holds for the pod grouper."""
    made = config.manager_options(cfg)
    held = podgrouper.cache_options(podgrouper.settings(cfg))
    return dataclasses.replace(made, cache=dataclasses.replace(made.cache, by_object=held))


async def setup(mgr: ctrl.Manager, cfg: Configuration) -> None:
    """Register the pod grouper and its checks with a manager that has not started."""
    mgr.add(metrics.DegradedKindsExporter(mgr.cache.degraded))
    mgr.add_healthz_check("healthz", healthz.ping)
    await podgrouper.setup(mgr, podgrouper.settings(cfg))
