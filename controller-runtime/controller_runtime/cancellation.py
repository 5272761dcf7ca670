# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cancellation of a task, and exceptions that only look like it.

Code that awaits a future which another task cancelled gets a ``CancelledError`` although its own task goes on. A
task group drops such an error, and the task ends without a trace. A ``SystemExit``, as parsers of command lines raise
it, would end the event loop and everything else that runs on it. Callers of code that is not their own convert both::

    try:
        await reconciler.reconcile(request)
    except cancellation.ENDINGS as error:
        raise cancellation.as_error(error) from error
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

import anyio

from controller_runtime.apis.machinery import raised

ENDINGS: Final = (asyncio.CancelledError, SystemExit)
"""The exceptions that end more than the call that raises them."""


class StrayExitError(Exception):
    """Code raised ``SystemExit`` although the process is not its own."""


class StrayCancellationError(Exception):
    """Code raised ``CancelledError`` although its task was not cancelled."""


def as_error(error: asyncio.CancelledError | SystemExit) -> StrayCancellationError | StrayExitError:
    """Return ``error`` as an ordinary error; for tasks of a task group, in the handler that caught it.

    Raises:
        CancelledError: a cancel scope around the caller is cancelled, so the error is genuine.
    """
    if isinstance(error, SystemExit):
        return _converted(error)
    if anyio.current_effective_deadline() == -math.inf:
        raise error
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # code that cancels its own task must not confuse the scopes around it
    return _converted(error)


def as_error_of_plain_task(
    error: asyncio.CancelledError | SystemExit,
) -> StrayCancellationError | StrayExitError:
    """Do the same as :func:`as_error` for tasks that ``Task.cancel`` cancels and no scope does."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return _converted(error)


def _converted(error: asyncio.CancelledError | SystemExit) -> StrayCancellationError | StrayExitError:
    text = raised.text(error)
    detail = f": {text}" if text else ""
    stray: StrayCancellationError | StrayExitError
    if isinstance(error, SystemExit):
        stray = StrayExitError(f"SystemExit was raised{detail}")
    else:
        stray = StrayCancellationError(
            f"CancelledError was raised although the task was not cancelled{detail}"
        )
    stray.__cause__ = error
    return stray
