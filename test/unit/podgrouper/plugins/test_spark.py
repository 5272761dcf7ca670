# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any


async def test_sparks_pods_are_a_group_by_their_application(make_pod: Any, group: Any) -> None:
    labels = {"spark-app-name": "pi", "spark-app-selector": "spark-1"}

    assert (await group(make_pod("driver", labels=labels))).name == "spark-1"
    assert (await group(make_pod("other", labels={"spark-app-name": "pi"}))).name == "pg-other-uid-other"
