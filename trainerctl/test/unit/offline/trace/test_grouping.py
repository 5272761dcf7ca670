# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The trace of a pod's group shows the group that the pod grouper assigns."""

import json
from pathlib import Path
from typing import Any

import pytest
from pkg.podgrouper import Settings

from trainerctl.offline.snapshot import key_of
from trainerctl.offline.trace.grouping import trace

TESTS = Path(__file__).parents[5] / "test"
RECORDED = TESTS / "testdata" / "parity" / "groups-metadata.json"
AGREED = {each["case"] for each in json.loads((TESTS / "parity" / "replayer" / "agreed.json").read_text())}
Data = dict[str, Any]
SWITCHES = {"searchForLegacyPodGroups", "knativeGangSchedule"}
CASES = [
    case
    for case in json.loads(RECORDED.read_text())
    if not case.get("faults")
    and case["name"] not in AGREED
    and not (case.get("config") or {}).keys() - SWITCHES
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES[::9]])
async def test_a_recorded_pod_has_the_traced_group(case: Data) -> None:
    config = case.get("config") or {}
    settings = Settings(
        search_legacy_pod_groups=config.get("searchForLegacyPodGroups", True),
        knative_gang_schedule=config.get("knativeGangSchedule", True),
    )
    objects = {key_of(data): data for data in [*(case.get("objects") or ()), case["pod"]]}

    shown = await trace(objects, key_of(case["pod"]), settings)

    if shown.ignored_because:
        return
    want = case["want"]
    if "error" in want:
        assert shown.refusal
        return
    group = want["metadata"]
    assert (shown.grouper, shown.values["name"]) == (want["plugin"], group["name"])
    assert shown.values["minMember"] == max(1, group["minAvailable"])
    assert shown.values.get("priorityClassName", "") == group["priorityClassName"]
    assert [each["name"] for each in shown.values.get("subGroups", ())] == [
        each["name"] for each in group["subGroups"]
    ]
