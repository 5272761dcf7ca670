# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a manager could not start, or ended.

ManagerError                      the options contradict each other, or the component named in the message failed
├── UnreachableError              the API server was never reached
├── CredentialsError              the API server does not accept the credentials
├── LostLeadershipError           another replica leads, or may lead soon: end the process
├── GroupStoppedError             a runnable was added while the manager stops
└── GracePeriodExceededError      a runnable did not end in time
"""

from __future__ import annotations


class ManagerError(Exception):
    """The manager could not start, or one of its components failed."""


class UnreachableError(ManagerError):
    """The API server did not answer."""


class CredentialsError(ManagerError):
    """The API server answered the first request with 401."""


class LostLeadershipError(ManagerError):
    """The lease could not be renewed. Everything was cancelled at once, without the grace period."""


class GroupStoppedError(ManagerError):
    """A runnable was added to a group that is stopping."""


class GracePeriodExceededError(ManagerError):
    """A runnable did not end in time, so it was cancelled."""
