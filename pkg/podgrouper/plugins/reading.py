# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Shared by groupers that read objects other than the owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import CacheError
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError

UNREADABLE: Final = (StatusError, RestError, CacheError)
"""The errors of a Reader: refused, unreachable, kind not served, or missing in the cache."""

_ENDED: Final = frozenset({"Failed", "Succeeded"})


def not_ended(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods that have not ended. The manager does not cache ended pods, so groups must not depend on them."""
    return (pod for pod in pods if pod.status.phase not in _ENDED)
