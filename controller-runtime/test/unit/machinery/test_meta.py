# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Times on the wire."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from controller_runtime.machinery.meta import format_micro_time, format_time, is_time, parse_time

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=timezone(timedelta(hours=2)))


def test_times_are_written_in_utc() -> None:
    assert format_time(MOMENT) == "2026-02-03T02:05:06Z"
    assert format_micro_time(MOMENT) == "2026-02-03T02:05:06.000789Z"


@pytest.mark.parametrize(
    "text", ["2026-02-03T02:05:06Z", "2026-02-03T04:05:06+02:00", "2026-02-03T02:05:06.000000Z"]
)
def test_both_forms_and_all_zones_are_read(text: str) -> None:
    assert parse_time(text) == datetime(2026, 2, 3, 2, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-03T02:05:06"])
def test_a_time_without_a_zone_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|RFC 3339"):
        parse_time(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01"])
def test_a_time_outside_the_years_of_python_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="1 to 9999"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2031-05-06T07:08:09Z", True),
        ("2031-05-06T07:08:09.123456789+02:00", True),
        ("2031-05-06t07:08:09z", False),
        ("2031-05-06T07:08:09x5Z", False),
        ("2031-02-30T07:08:09Z", False),
        ("20310506T070809Z", False),
    ],
)
def test_go_reads_only_times_of_rfc_3339(text: str, read: bool) -> None:
    assert is_time(text) is read
