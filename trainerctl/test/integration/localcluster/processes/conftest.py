# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of the local processes of a test."""

import sys
from pathlib import Path

import pytest
from controller_runtime.fake import FakeClient
from testkit.local_pods import same_token

from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.images import Images
from trainerctl.localcluster.processes.names import Hosts
from trainerctl.localcluster.processes.settings import BackOff, Settings


@pytest.fixture
def events() -> list[tuple[str, str]]:
    return []


@pytest.fixture
async def settings(tmp_path: Path, events: list[tuple[str, str]]) -> Settings:
    return Settings(
        directory=tmp_path,
        images=Images(tmp_path / "programs", default=Path(sys.executable).parent),
        hosts=Hosts(tmp_path / "hosts"),
        reader=FakeClient(),
        new_token=same_token,
        record=lambda pod, reason, message: events.append((reason, message)),
        server="127.0.0.1:1",
        isolated=not await process.mount_problem(),
        back_off=BackOff(first=0.01, longest=0.05),
        retry=0.05,
    )
