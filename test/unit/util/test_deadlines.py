# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The deadline that the manager enforces is the one that ``trainerctl`` shows."""

from datetime import UTC, datetime, timedelta

import pytest

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob
from pkg.why import LiveObject, Snapshot, deadline_of

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
FOREVER = timedelta(days=365 * 1000)


@pytest.mark.parametrize("seconds", [600, 1 << 62])
@pytest.mark.parametrize(
    ("status", "transition", "start"),
    [
        (None, "", NOW - timedelta(hours=2)),
        ("Unknown", "2026-03-02T11:00:00Z", NOW - timedelta(hours=2)),
        ("True", "2026-03-02T11:00:00Z", NOW),
        ("False", "2026-03-02T11:00:00Z", NOW - timedelta(hours=1)),
        ("False", "2026-03-02T12:00:30Z", NOW + timedelta(seconds=30)),
        ("False", "9999-12-31T23:59:59Z", None),
    ],
    ids=[
        "never suspended",
        "unknown",
        "being resumed",
        "resumed",
        "resumed by a clock ahead",
        "resumed in 9999",
    ],
)
def test_the_deadline_counts_as_upstream_and_is_the_one_that_is_shown(
    status: str | None, transition: str, start: datetime | None, seconds: int
) -> None:
    suspended = [{"type": "Suspended", "status": status, "reason": "Any", "lastTransitionTime": transition}]
    job = {
        "metadata": {"name": "llama", "creationTimestamp": "2026-03-02T10:00:00Z"},
        "spec": {"activeDeadlineSeconds": seconds, "runtimeRef": {"name": "torch"}},
        "status": {"conditions": suspended if status is not None else []},
    }

    left = trainjob.time_left(TrainJob.from_dict(job), NOW)

    shown = deadline_of(Snapshot(LiveObject(job), NOW))
    assert left is not None
    if start is not None:
        assert left == start - NOW + min(timedelta(seconds=min(seconds, 1 << 40)), FOREVER)
        assert shown == NOW + left
