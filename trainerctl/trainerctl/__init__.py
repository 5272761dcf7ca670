# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``trainerctl``.

Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 for a failure, and 2
for a bad command line or input. Some commands also return 3, or 1 for other reasons; their help describes this. After
SIGINT, SIGTERM or SIGHUP, the process first waits until everything that the command started has ended. The exit code is
then 128 plus the signal's number. ``run`` returns the manager's exit code.

This module may import only the standard library, because the shim of a container imports it without site-packages.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing is not imported: the code before the signals are handled must be quick
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainerctl.cli.signals import Signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    Without ``argv``, take the arguments of the process, handle its signals and prepare its standard streams.
    """
    if argv is not None:
        return _run(argv)
    from trainerctl.cli.signals import Signals

    signals = Signals()
    signals.install()
    from trainerctl.cli import streams  # here: a signal during this import must not end in a traceback

    streams.prepare()
    code = _run(sys.argv[1:], signals)
    signals.ignore()
    return code


def _run(arguments: Sequence[str], signals: Signals | None = None) -> int:
    """Run a command line and return the exit code. ``signals`` may cancel the command."""
    import signal

    from trainerctl.cli import flags, parser, streams

    try:
        try:
            parsed = parser.parse(arguments)
            if parsed.function == flags.HELP:
                from trainerctl.cli import help as help_

                return help_.show(parsed.words)
            from trainerctl.cli import execution  # here: help and usage errors do not need this import

            code = execution.run(parsed, signals)
        finally:
            streams.flush()
    except BrokenPipeError:
        streams.discard()
        return 128 + signal.SIGPIPE
    except OSError as error:
        streams.say_error(streams.describe(error))
        streams.discard()
        return 1
    return code
