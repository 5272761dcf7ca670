# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One run of ``trainerctl`` from its arguments to its exit code."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from trainerctl.cli import parser, streams
from trainerctl.cli.signals import Signals


def run(arguments: Sequence[str], signals: Signals | None = None) -> int:
    """Run the command that ``arguments`` name and return its exit code; ``signals`` cancel it."""
    try:
        try:
            parsed = parser.parse(arguments)
            if parsed.function == parser.HELP:
                from trainerctl.cli import help as help_

                return help_.show(parsed.words, man=parsed.man)
            from trainerctl.cli import execution  # here: help and usage errors need nothing of it

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
