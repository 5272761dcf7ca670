# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The errors that may end a manager: it lost its lease, or could not reach the server."""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.cache import CacheError
from controller_runtime.leaderelection import LeaderElectionError
from controller_runtime.manager import errors
from controller_runtime.rest import RestError

_FORESEEN: Final = (
    StatusError,
    RestError,
    CacheError,
    LeaderElectionError,
    errors.GracePeriodExceededError,
    errors.GroupStoppedError,
    errors.LostLeadershipError,
    errors.UnreachableError,
)


def is_foreseen(error: BaseException | None) -> bool:
    """Return True if ``error`` may end a manager; a ManagerError as such may if its cause may."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_foreseen, error.exceptions))
    if type(error) is errors.ManagerError:
        return is_foreseen(error.__cause__)
    return isinstance(error, _FORESEEN)
