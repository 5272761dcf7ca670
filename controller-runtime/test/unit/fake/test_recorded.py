# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client gives the results of a real API server that ``server.json`` holds.

``test/integration/client/test_alike.py`` compares both directly, and writes the file anew if ALIKE_RECORD is its path.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from controller_runtime.fake import FakeClient
from ctrl_testkit.alike import CASES
from ctrl_testkit.alike.world import CRDS, RECORDED_NAMESPACE, recorded

RECORDED: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "testdata/server.json").read_text())


def test_every_case_is_recorded() -> None:
    assert CASES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
async def test_memory_answers_as_a_server_did(name: str) -> None:
    found = await CASES[name](FakeClient(crds=CRDS), RECORDED_NAMESPACE)
    assert recorded(found, RECORDED_NAMESPACE) == RECORDED[name]
