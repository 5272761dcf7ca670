# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owners from the manager's cache, reduced to the fields that a grouper declares, also give the recorded groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from replayer import cases, compare, grouping

RECORDED = Path(__file__).parents[1] / "testdata" / "parity"
FILES = [RECORDED / f"groups-{op}.json" for op in ("owners", "metadata", "v0.17-metadata")]


def fails_a_read_that_is_not_made(fault: dict[str, Any]) -> bool:
    return fault["verb"] == "get" and fault.get("client") == "cached"


CASES = [
    pytest.param(case, id=case.name)
    for case in cases.load(FILES)
    if not any(map(fails_a_read_that_is_not_made, case.input.get("faults") or ()))
]


@pytest.mark.parametrize("case", CASES)
async def test_the_manager_groups_as_recorded(case: cases.Case) -> None:
    answer = {"owners": grouping.owners, "metadata": grouping.metadata}[case.op]

    wrong = compare.differences(case, await answer(case.input, remembering=True))

    assert not wrong, "\n".join(wrong)
