# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of a controller: IDs of reconciles, the fields of log lines, and its metrics."""

from __future__ import annotations

import random
from contextvars import ContextVar
from typing import Final

from controller_runtime import metrics
from controller_runtime.machinery import NamespacedName
from controller_runtime.reconcile import Request

from .options import Settings

SUCCESS: Final = "success"
REQUEUE_AFTER: Final = "requeue_after"
ERROR: Final = "error"
_RESULTS: Final = (ERROR, REQUEUE_AFTER, "requeue", SUCCESS)

current: Final[ContextVar[str]] = ContextVar("reconcile_id", default="")
"""The ID of the reconcile that the current task runs."""


def reconcile_id() -> str:
    """Return the ID of the current reconcile, as logs show it; empty outside a reconcile."""
    return current.get()


def new_id() -> str:
    """Return a version 4 UUID for logs. It need not be secure: the system's random numbers cost three times as much."""
    digits = f"{random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 4 << 76 | 2 << 62:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def show_metrics(name: str, workers: int) -> None:
    """Create every series of a controller, at zero, before its first reconcile."""
    for result in _RESULTS:
        metrics.RECONCILE_TOTAL.labels(name, result)
    for counter in (
        metrics.RECONCILE_ERRORS,
        metrics.TERMINAL_RECONCILE_ERRORS,
        metrics.RECONCILE_PANICS,
        metrics.RECONCILE_TIMEOUTS,
    ):
        counter.labels(name)
    metrics.MAX_CONCURRENT_RECONCILES.labels(name).set(workers)
    metrics.ACTIVE_WORKERS.labels(name).set(0)


def fields(name: str, settings: Settings, request: Request | None = None) -> dict[str, object]:
    """Return the fields of every log line of a controller or, with ``request``, the further fields about it."""
    found: dict[str, object] = {}
    gvk = settings.kind
    if request is None:
        found["controller"] = name
        if gvk is not None:
            found |= {"controllerGroup": gvk.group, "controllerKind": gvk.kind}
    else:
        if gvk is not None:
            found[gvk.kind[:1].lower() + gvk.kind[1:]] = NamespacedName(*request)
        found |= {"namespace": request.namespace, "name": request.name}
    if settings.log_constructor is not None:
        found.update(settings.log_constructor(request))
    return found
