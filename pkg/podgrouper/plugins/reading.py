# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What groupers have in common when they read something beside the owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.cache import CacheError
from controller_runtime.rest import RestError

UNREADABLE: Final = (StatusError, RestError, CacheError)
"""What a Reader raises: the server refused, was not reached, does not serve the kind, or the cache does not have it."""

_ENDED: Final = frozenset({"Failed", "Succeeded"})


def not_ended(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods that have not ended: the manager caches no others, and so no group may depend on them."""
    return (pod for pod in pods if pod.status.phase not in _ENDED)
