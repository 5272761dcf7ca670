# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics: the registry of series, their text format, and the server for them."""

from typing import TYPE_CHECKING

from controller_runtime import _ondemand

from .registry import ACTIVE_WORKERS as ACTIVE_WORKERS
from .registry import CACHE_DEGRADED as CACHE_DEGRADED
from .registry import CACHE_SKIPPED_OBJECTS as CACHE_SKIPPED_OBJECTS
from .registry import CACHE_UNAVAILABLE as CACHE_UNAVAILABLE
from .registry import CERTWATCHER_READ_ERRORS as CERTWATCHER_READ_ERRORS
from .registry import CERTWATCHER_READS as CERTWATCHER_READS
from .registry import CONTENT_TYPE as CONTENT_TYPE
from .registry import CONVERSION_PANICS as CONVERSION_PANICS
from .registry import LEADER_STATUS as LEADER_STATUS
from .registry import MAX_CONCURRENT_RECONCILES as MAX_CONCURRENT_RECONCILES
from .registry import RECONCILE_ERRORS as RECONCILE_ERRORS
from .registry import RECONCILE_PANICS as RECONCILE_PANICS
from .registry import RECONCILE_TIME as RECONCILE_TIME
from .registry import RECONCILE_TIMEOUTS as RECONCILE_TIMEOUTS
from .registry import RECONCILE_TOTAL as RECONCILE_TOTAL
from .registry import REGISTRY as REGISTRY
from .registry import REST_REQUESTS as REST_REQUESTS
from .registry import TERMINAL_RECONCILE_ERRORS as TERMINAL_RECONCILE_ERRORS
from .registry import TURN_WAIT as TURN_WAIT
from .registry import WEBHOOK_IN_FLIGHT as WEBHOOK_IN_FLIGHT
from .registry import WEBHOOK_LATENCY as WEBHOOK_LATENCY
from .registry import WEBHOOK_PANICS as WEBHOOK_PANICS
from .registry import WEBHOOK_REQUESTS as WEBHOOK_REQUESTS
from .registry import WORKQUEUE_ADDS as WORKQUEUE_ADDS
from .registry import WORKQUEUE_DEPTH as WORKQUEUE_DEPTH
from .registry import WORKQUEUE_LONGEST_RUNNING as WORKQUEUE_LONGEST_RUNNING
from .registry import WORKQUEUE_QUEUE_DURATION as WORKQUEUE_QUEUE_DURATION
from .registry import WORKQUEUE_RETRIES as WORKQUEUE_RETRIES
from .registry import WORKQUEUE_UNFINISHED_WORK as WORKQUEUE_UNFINISHED_WORK
from .registry import WORKQUEUE_WORK_DURATION as WORKQUEUE_WORK_DURATION
from .registry import Registry as Registry
from .registry import exponential_buckets as exponential_buckets
from .registry import render as render

if TYPE_CHECKING:
    from .filters import FilterProvider as FilterProvider
    from .filters import Reviewer as Reviewer
    from .filters import ReviewError as ReviewError
    from .filters import with_authentication_and_authorization as with_authentication_and_authorization
    from .server import Filter as Filter
    from .server import MetricsServer as MetricsServer
else:  # clients have metrics, and no server for them
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            "filters": ("FilterProvider", "Reviewer", "ReviewError", "with_authentication_and_authorization"),
            "server": ("Filter", "MetricsServer"),
        },
    )
