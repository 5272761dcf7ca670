# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's program: flags, configuration, then the manager with its controllers and webhooks.

Importing this package loads nothing else, so that a signal during the imports of the program ends it without a
traceback.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the manager until it is stopped; return the exit code. Without ``arguments`` this is the whole process."""
    return start("pkg.app.program", arguments)


def start(program: str, arguments: Sequence[str] | None) -> int:
    """Import the module ``program``, run its ``main``, and return the exit code."""
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the manager handles it there is nothing to clean up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import importlib

    from controller_runtime import lean

    with lean.importing():
        lean.compile_on_use("yaml")
        module = importlib.import_module(program)
    code: int = module.main(arguments)
    return code
