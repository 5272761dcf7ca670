# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's program: flags, configuration, then the manager with its controllers and webhooks.

Importing this package loads no other module. A signal during the imports of the program can therefore end the process
without a traceback.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from . import flags as flags


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the manager until it is stopped, and return the exit code.

    If ``arguments`` is None, the arguments of the process are used. SIGINT and SIGTERM then end the process until the
    manager handles these signals.
    """
    return start("pkg.app.program", arguments)


def start(program: str, arguments: Sequence[str] | None) -> int:
    """Import the module ``program``, run its ``main``, and return the exit code."""
    if arguments is None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)  # as in Go, even if the parent process ignored the signal
    import importlib

    code: int = importlib.import_module(program).main(arguments)
    return code


def _end(number: int, _frame: FrameType | None) -> None:
    """End the process: until the manager handles signals itself, there is nothing to clean up."""
    os._exit(128 + number)
