# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's program: the flags, addresses and lease of KAI-Scheduler's, so that its operator can run it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pod grouper until it is stopped; return the exit code. Without ``arguments``, it is the whole process."""
    from pkg import app as manager

    return manager.start("pkg.app.podgrouper.program", arguments)
