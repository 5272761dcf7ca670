# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``trainerctl``.

Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 for a failure
that one line explains, 2 for a bad command line or input, and 128 plus the signal's number after Ctrl-C and
the like, once everything that the command had started has ended.
"""

from __future__ import annotations

import sys

from pkg.cli.signals import Signals

TYPE_CHECKING = False  # typing is not imported: what comes before the signals are handled must be quick
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    Without ``argv`` this is the whole process: its command line, its signals and its streams belong to the command.
    """
    if argv is not None:
        from pkg.cli import commandline

        return commandline.run(list(argv))
    signals = Signals()
    signals.install()
    from pkg.cli import commandline, streams  # here: a signal during the imports must not end in a traceback

    streams.prepare()
    code = commandline.run(sys.argv[1:], signals)
    signals.ignore()
    return code


if __name__ == "__main__":
    sys.exit(main())
