# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a controller, and the manager's defaults for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

import msgspec

from controller_runtime import workqueue
from controller_runtime.machinery import GVK
from controller_runtime.reconcile import ControllerError, Request

LogConstructor = Callable[[Request | None], Mapping[str, object]]
"""Keys and values for a controller's log lines, or for those about one request."""


class Defaults(Protocol):
    """The manager's defaults for all its controllers; see :class:`controller_runtime.manager.ControllerOptions`."""

    @property
    def group_kind_concurrency(self) -> Mapping[str, int]:
        """Workers by ``Kind.group``."""
        ...

    @property
    def max_concurrent_reconciles(self) -> int:
        """Workers of any other controller."""
        ...

    @property
    def cache_sync_timeout(self) -> float:
        """Seconds."""
        ...

    @property
    def recover_panic(self) -> bool:
        """Whether a programming error in a reconciler is handled like other errors."""
        ...

    @property
    def need_leader_election(self) -> bool:
        """Whether only a leader reconciles."""
        ...

    @property
    def enable_warmup(self) -> bool:
        """Whether caches fill while leadership is waited for."""
        ...

    @property
    def reconciliation_timeout(self) -> float | None:
        """Seconds; None is without limit."""
        ...

    @property
    def skip_name_validation(self) -> bool:
        """Whether two controllers may share a name."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one controller; None selects the manager's default, or the default stated."""

    max_concurrent_reconciles: int | None = None
    """Workers, each of which reconciles one request at a time. By default the manager's value for
    the kind (``group_kind_concurrency``), then for all controllers, then 1."""
    rate_limiter: workqueue.RateLimiter[Request] | None = None
    """How long failed requests wait: 5 ms to 1000 s each, 10 a second beyond a burst of 100 overall. Failures
    of the server (5xx, 429, conflicts) are counted under another key of the same request."""
    recover_panic: bool | None = None
    """Whether a programming error in the reconciler (a TypeError, say) is handled like other errors: true.
    If not, it ends the controller, and with it the manager."""
    need_leader_election: bool | None = None
    """Whether only a leader reconciles: true."""
    enable_warmup: bool | None = None
    """Whether the kinds it watches are listed and watched while leadership is waited for: true. A failover
    then pays for no list; the price is a follower's memory, and its share of the server's watches."""
    cache_sync_timeout: timedelta | float | None = None
    """How long the first lists may take, in seconds: 120. A kind that is refused is not waited for."""
    reconciliation_timeout: timedelta | float | None = None
    """How long a reconcile may take before it is cancelled and tried again: without end."""
    kind: GVK | None = None
    """The kind reconciled, for logs and ``group_kind_concurrency``, of a controller without ``for_``."""
    log_constructor: LogConstructor | None = None
    """More, or other, keys for log lines."""
    metrics: workqueue.MetricsProvider | None = None
    """The provider of the queue's metrics."""
    skip_name_validation: bool | None = None
    """Whether another controller of the manager may have the same name: false."""

    def settle(self, defaults: Defaults | None = None) -> Settings:
        """Return these options with every default filled in.

        Raises:
            ControllerError: there would be no worker.
        """
        workers = self.max_concurrent_reconciles
        if workers is None and self.kind is not None and defaults is not None:
            workers = defaults.group_kind_concurrency.get(str(self.kind.group_kind))
        if workers is None:
            workers = defaults.max_concurrent_reconciles if defaults is not None else 1
        if workers < 1:
            raise ControllerError(f"max_concurrent_reconciles is {workers}: a controller needs a worker")
        sync, timeout = self.cache_sync_timeout, self.reconciliation_timeout
        if sync is None:
            sync = defaults.cache_sync_timeout if defaults is not None else 120.0
        if timeout is None and defaults is not None:
            timeout = defaults.reconciliation_timeout
        return Settings(
            max_concurrent_reconciles=workers,
            rate_limiter=self.rate_limiter or workqueue.default_controller_rate_limiter(),
            recover_panic=_either(self.recover_panic, defaults.recover_panic if defaults else True),
            need_leader_election=_either(
                self.need_leader_election, defaults.need_leader_election if defaults else True
            ),
            enable_warmup=_either(self.enable_warmup, defaults.enable_warmup if defaults else True),
            cache_sync_timeout=_seconds(sync),
            reconciliation_timeout=_seconds(timeout) if timeout is not None else None,
            kind=self.kind,
            log_constructor=self.log_constructor,
            metrics=self.metrics,
            skip_name_validation=_either(
                self.skip_name_validation, defaults.skip_name_validation if defaults else False
            ),
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """:class:`Options` with all defaults filled in; durations are seconds."""

    max_concurrent_reconciles: int
    rate_limiter: workqueue.RateLimiter[Request]
    recover_panic: bool
    need_leader_election: bool
    enable_warmup: bool
    cache_sync_timeout: float
    reconciliation_timeout: float | None
    kind: GVK | None
    log_constructor: LogConstructor | None
    metrics: workqueue.MetricsProvider | None
    skip_name_validation: bool


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _either(own: bool | None, default: bool) -> bool:
    return default if own is None else own
