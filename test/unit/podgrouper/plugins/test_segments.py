# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from pkg.podgrouper.plugins import GroupingError, segments


def test_no_more_segments_than_a_group_could_hold() -> None:
    segments.check_number(segments.MAX_SEGMENTS)
    with pytest.raises(GroupingError, match=r"^30001 segments are too many for a pod group, at most 30000$"):
        segments.check_number(segments.MAX_SEGMENTS + 1)
