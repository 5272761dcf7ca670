# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The deadline of a TrainJob, from plain values: the manager has a typed TrainJob, and ``trainerctl`` has JSON."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

LONGEST_WAIT: Final = timedelta(hours=1)
"""The longest wait until the clock is read again. A timer follows the monotonic clock, and a deadline the wall clock.
If the wall clock is set, or the machine was suspended, a timer for the whole of a long wait fires hours too late."""
_LONGEST: Final = 1000 * 365 * 24 * 3600
"""The longest deadline in seconds. Longer deadlines are shortened to it: ``datetime`` ends with the year 9999."""
_SKEW: Final = timedelta(days=1)
"""A start may be this much later than our time. Later starts are wrong, and ``datetime`` could not count from them."""


def deadline_of(
    seconds: int, created: datetime | None, suspended: str, resumed: datetime | None, now: datetime
) -> datetime | None:
    """Return when a TrainJob that is neither finished nor to be suspended exceeds its ``activeDeadlineSeconds``.

    ``suspended`` is the status of the condition Suspended, and ``resumed`` its last transition. If the status is False,
    the deadline counts from this transition. If it is True, the TrainJob is being resumed, and the deadline counts from
    ``now``. In all other cases, such as Unknown, it counts from the creation, as upstream. If the start is not known,
    return None.
    """
    start = created
    if suspended == "True":
        start = now
    elif suspended == "False" and resumed is not None:
        start = resumed
    return None if start is None else min(start, now + _SKEW) + timedelta(seconds=min(seconds, _LONGEST))
