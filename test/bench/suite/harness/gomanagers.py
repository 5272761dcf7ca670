# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Go managers of Kubeflow Trainer as entrants, built from their pinned modules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from controller_runtime.envtest import Binaries, Binary, PlainProgress
from harness.plan import Entrant

from testkit import programs

RELEASES: Final = tuple(programs.GO_RELEASES)


async def locate(release: str) -> Binary:
    """Return the manager of a release; build it if it is missing.

    Raises:
        ComponentError: it cannot be built.
    """
    tool = programs.go_manager(release)
    return (await Binaries(progress=PlainProgress(sys.stderr)).locate(tool))[tool.name]


async def entrants(releases: Sequence[str]) -> list[Entrant]:
    """Return the managers of these releases, with the names ``go-RELEASE``; build those that are missing.

    Raises:
        ComponentError: one cannot be built.
    """
    return [
        Entrant(f"go-{release}", f"{(await locate(release)).path} --config {{config}}")
        for release in releases
    ]
