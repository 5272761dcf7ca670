# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Go managers of Kubeflow Trainer as entrants, built from their pinned modules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller_runtime.envtest import Binaries, Binary, PlainProgress, Tool, ToolGroup
from harness.plan import Entrant

RELEASES: Final = {"2.1.0": "trainer", "2.2.1": "trainer-2.2", "2.3.0": "trainer-2.3"}
"""The folder in ``test/tools`` with the module file of each release."""

PROGRAM: Final = "trainer-controller-manager"
_TOOLS: Final = Path(__file__).resolve().parents[3] / "tools"
_MODULE: Final = "github.com/kubeflow/trainer/v2"


def tool(release: str) -> Tool:
    """Return the manager of a release with its CRDs and webhooks, to be built from its pinned module."""
    group = ToolGroup(_TOOLS / RELEASES[release], _MODULE)
    manifests = ("manifests/base/crds/trainer*.yaml", "manifests/base/webhook/manifests.yaml")
    return Tool(PROGRAM, group, f"{_MODULE}/cmd/{PROGRAM}", manifests=manifests)


async def locate(release: str) -> Binary:
    """Return the manager of a release; build it if it is missing.

    Raises:
        ComponentError: it cannot be built.
    """
    return (await Binaries(progress=PlainProgress(sys.stderr)).locate(tool(release)))[PROGRAM]


async def entrants(releases: Sequence[str]) -> list[Entrant]:
    """Return the managers of these releases, with the names ``go-RELEASE``; build those that are missing.

    Raises:
        ComponentError: one cannot be built.
    """
    return [
        Entrant(f"go-{release}", f"{(await locate(release)).path} --config {{config}}")
        for release in releases
    ]
