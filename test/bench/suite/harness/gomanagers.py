# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Go managers of Kubeflow Trainer as entrants, built from their pinned modules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller_runtime.envtest import Binaries, PlainProgress, Tool, ToolGroup
from harness.plan import Entrant

RELEASES: Final = {"2.1.0": "trainer", "2.2.1": "trainer-2.2", "2.3.0": "trainer-2.3"}
"""The folder in ``test/tools`` with the module file of each release."""

_TOOLS: Final = Path(__file__).resolve().parents[3] / "tools"
_MODULE: Final = "github.com/kubeflow/trainer/v2"
_PROGRAM: Final = "trainer-controller-manager"


async def entrants(releases: Sequence[str]) -> list[Entrant]:
    """Build the managers of these releases unless they are built; return them by the names ``go-RELEASE``.

    Raises:
        ComponentError: one cannot be built.
    """
    binaries, found = Binaries(progress=PlainProgress(sys.stderr)), []
    for release in releases:
        # The same manifests as in the tests: programs are cached by their whole description.
        manifests = ("manifests/base/crds/trainer*.yaml", "manifests/base/webhook/manifests.yaml")
        group = ToolGroup(_TOOLS / RELEASES[release], _MODULE)
        tool = Tool(_PROGRAM, group, f"{_MODULE}/cmd/{_PROGRAM}", manifests=manifests)
        built = (await binaries.locate(tool))[_PROGRAM]
        found.append(Entrant(f"go-{release}", f"{built.path} --config {{config}}"))
    return found
