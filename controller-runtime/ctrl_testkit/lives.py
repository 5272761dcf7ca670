# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Short simulated lives without faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import controller_runtime as ctrl
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import ConfigMap


def failure_of(
    work: Callable[[simtest.Simulation], Awaitable[None]] | None = None,
    setup: Callable[[ctrl.Manager], Awaitable[None]] | None = None,
    *,
    minutes: float = 0.5,
) -> BaseException | None:
    """Simulate a cluster that serves ConfigMaps, call ``work`` at its end, and return the failure of the life.

    With ``setup``, one manager runs.
    """
    options: Any = simtest.options(controller=ctrl.ControllerDefaults(skip_name_validation=True))

    def scenario(sim: simtest.Simulation) -> None:
        sim.serve(ConfigMap)
        if setup is not None:
            sim.manager(setup, replicas=1, options=options)
        if work is not None:
            sim.finally_(work)

    return simtest.run(scenario, 1, minutes=minutes, faults=0).failure


async def watch_config_maps(mgr: ctrl.Manager) -> None:
    """Let a manager cache ConfigMaps."""
    await mgr.cache.get_informer(ConfigMap)
