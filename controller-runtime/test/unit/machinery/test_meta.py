# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Times and durations as text."""

from datetime import UTC, datetime, timedelta, timezone

import pydantic
import pytest

from controller_runtime.machinery.goduration import Duration, format_duration, parse_duration, seconds
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


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0", "0s"),
        ("-0s", "0s"),
        ("1ns", "1ns"),
        ("1.5us", "1.5µs"),
        ("300ms", "300ms"),
        ("90s", "1m30s"),
        ("1.5h", "1h30m0s"),
        (".5s", "500ms"),
        ("1.s", "1s"),
        ("2h45m30.5s", "2h45m30.5s"),
        ("-1h1s", "-1h0m1s"),
        ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(text: str, written: str) -> None:
    assert format_duration(parse_duration(text)) == written


@pytest.mark.parametrize(
    "text", ["", "s", "5", "5 s", " 5s", "1d", ".s", "+", "-", "1h-1m", "99999999h", "٣s", "1" * 100 + "s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


def test_a_refused_duration_comes_with_an_example() -> None:
    assert seconds("1m30.5s") == 90.5
    for text in (None, "5"):
        with pytest.raises(ValueError, match=f'^"{text or ""}" is not a duration; write it as 15s or 1m30s$'):
            seconds(text)


_DURATION: pydantic.TypeAdapter[timedelta] = pydantic.TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("value", "written"),
    [("90s", "1m30s"), ("1600ns", "2µs"), ("-1.5us", "-2µs"), (timedelta(seconds=1.5), "1.5s")],
)
def test_a_field_of_a_kind_keeps_the_microseconds_of_a_duration(value: object, written: str) -> None:
    assert _DURATION.dump_python(_DURATION.validate_python(value), mode="json") == written


@pytest.mark.parametrize("value", [timedelta.max, timedelta.min, timedelta(microseconds=2**63 // 1000 + 1)])
def test_a_duration_longer_than_go_represents_is_not_written(value: timedelta) -> None:
    with pytest.raises(ValueError, match="longer than Go can represent"):
        _DURATION.dump_python(value, mode="json")
