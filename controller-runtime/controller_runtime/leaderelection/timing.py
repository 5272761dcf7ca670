# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The durations of a lease, and the errors of leader election.

LeaderElectionError
├── LeaderElectionLostError   the lease could not be kept: end the process
└── InvalidTimingError        the durations do not give the guarantee
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

JITTER: Final = 1.2
_MARGIN: Final = 0.9
"""The part of the lease's duration after which a holder has given up, whatever the other durations are."""
_HASTE: Final = 0.98
"""The part of the renew deadline after which a holder gives up."""


class LeaderElectionError(Exception):
    """Something is wrong with leading."""


class LeaderElectionLostError(LeaderElectionError):
    """The lease could not be renewed, or another replica holds it."""


class InvalidTimingError(LeaderElectionError):
    """The durations contradict each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Durations in seconds: how long a lease holds, how long renewing is tried, and how often."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def validate(self) -> None:
        """Check that a holder gives up before its lease lapses.

        Raises:
            InvalidTimingError: it would not.
        """
        if self.lease_duration < 1 or self.renew_deadline <= 0 or self.retry_period <= 0:
            raise InvalidTimingError("lease duration, renew deadline and retry period must be positive")
        if self.lease_duration <= self.renew_deadline:
            raise InvalidTimingError("lease duration must be greater than renew deadline")
        if self.renew_deadline <= JITTER * self.retry_period:
            raise InvalidTimingError(f"renew deadline must be greater than retry period*{JITTER}")

    @property
    def tenure(self) -> float:
        """Seconds after the beginning of the last renewal at which a holder has given up."""
        # A little early: a request in flight at that moment must arrive within the deadline, too.
        return min(_HASTE * self.renew_deadline, _MARGIN * self.lease_duration)
