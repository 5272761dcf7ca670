# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a controller, and the manager's defaults for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec

from controller_runtime import workqueue
from controller_runtime.machinery import GVK, settings
from controller_runtime.manager import ControllerDefaults
from controller_runtime.reconcile import ControllerError, Request

LogConstructor = Callable[[Request | None], Mapping[str, object]]
"""Returns keys and values to add to log lines: to all lines of a controller if called with None, otherwise to the lines
about the request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one controller. None selects the manager's default or, without a manager, the default stated here.

    A duration of 0 is the same as None.
    """

    max_concurrent_reconciles: int | None = None
    """Number of workers, each of which reconciles one request at a time. The default is the manager's value for the
    kind (``group_kind_concurrency``) or, if there is none, the manager's value for all controllers. Without a manager,
    it is 1.

    Namespaces take turns for the workers. If there are several workers and one namespace occupies them, for example
    because the API server answers slowly, as many further workers serve namespaces that have at least two reconciles
    less in progress."""
    rate_limiter: workqueue.RateLimiter[Request] | None = None
    """Decides how long failed requests wait. By default, a request waits 5 ms after its first failure, and twice as
    long after each further failure, up to 1000 s. All requests together are limited to 10 retries a second after a
    burst of 100. Failures of the server (5xx, 429, conflicts) are counted separately, under a second key for each
    request. The limiter is not asked if the server cannot be reached, or if the server's answer contains a delay."""
    recover_panic: bool | None = None
    """Whether a programming error in the reconciler (e.g. a TypeError) is handled like other errors (default: true). If
    false, such an error ends the controller, which ends the manager."""
    need_leader_election: bool | None = None
    """Whether only a leader reconciles (default: true)."""
    enable_warmup: bool | None = None
    """Whether a follower already lists and watches the kinds of this controller (default: true). If so, a new leader
    need not list them after a failover, but each follower needs memory for the objects and keeps watches open."""
    cache_sync_timeout: timedelta | float | None = None
    """How long the first lists may take (default: 120 seconds). The start does not wait for a kind that is refused."""
    reconciliation_timeout: timedelta | float | None = None
    """How long a reconcile may take before it is cancelled and tried again (default: no limit)."""
    kind: GVK | None = None
    """The kind that is reconciled, for logs and ``group_kind_concurrency``; ``for_`` of a builder sets it."""
    log_constructor: LogConstructor | None = None
    """Returns keys and values that are added to log lines. A value replaces another value with the same key."""
    skip_name_validation: bool | None = None
    """Whether another controller of the manager may have the same name (default: false)."""

    def with_defaults(self, defaults: ControllerDefaults | None = None) -> Settings:
        """Return these options with every default filled in.

        Raises:
            ControllerError: ``max_concurrent_reconciles`` is less than 1.
        """
        if problem := settings.problem_of(self):
            raise ControllerError(f"ControllerOptions: {problem}")
        defaults = defaults or ControllerDefaults()
        workers = self.max_concurrent_reconciles
        if workers is None and self.kind is not None:
            workers = defaults.group_kind_concurrency.get(str(self.kind.group_kind))
        if workers is None:
            workers = defaults.max_concurrent_reconciles
        if workers < 1:
            raise ControllerError(f"max_concurrent_reconciles is {workers}: a controller needs a worker")
        sync, timeout = self.cache_sync_timeout, self.reconciliation_timeout
        if not sync:
            sync = defaults.cache_sync_timeout
        if not timeout:
            timeout = defaults.reconciliation_timeout
        return Settings(
            max_concurrent_reconciles=workers,
            rate_limiter=self.rate_limiter or workqueue.default_controller_rate_limiter(),
            recover_panic=_either(self.recover_panic, defaults.recover_panic),
            need_leader_election=_either(self.need_leader_election, defaults.need_leader_election),
            enable_warmup=_either(self.enable_warmup, defaults.enable_warmup),
            cache_sync_timeout=_seconds(sync),
            reconciliation_timeout=_seconds(timeout) if timeout else None,
            kind=self.kind,
            log_constructor=self.log_constructor,
            skip_name_validation=_either(self.skip_name_validation, defaults.skip_name_validation),
        )


ControllerOptions = Options
"""The name that ``controller_runtime`` exports."""


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
    skip_name_validation: bool


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _either(own: bool | None, default: bool) -> bool:
    return default if own is None else own
