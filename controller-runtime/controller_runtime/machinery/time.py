# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Times on the wire: RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Return a metav1.Time: whole seconds. ``moment`` must be aware."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """Return a metav1.MicroTime: six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parse a time in either form; the result is in UTC.

    Raises:
        ValueError: ``text`` is not an RFC 3339 time, has no time zone, or is before the year 1 or after 9999 in UTC.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"not a time of the years 1 to 9999 in UTC: {text!r}") from error
