# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's program. KAI-Scheduler's operator can run it.

The flags, addresses and lease are those of KAI's own pod grouper.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pod grouper until it is stopped, and return the exit code. See :func:`pkg.app.main`."""
    from pkg import app as manager

    return manager.start("pkg.app.podgrouper.program", arguments)
