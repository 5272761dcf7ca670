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

:data:`FAILURES` are these and all errors, for callers that handle both alike.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final, cast

import anyio

from controller_runtime.machinery import raised

ENDINGS: Final = (asyncio.CancelledError, SystemExit)
"""The exceptions that end more than the call that raises them."""
FAILURES: Final = (Exception, *ENDINGS)
Failure = Exception | asyncio.CancelledError | SystemExit


class StrayExitError(Exception):
    """Code raised ``SystemExit`` although the process is not its own."""


class StrayCancellationError(Exception):
    """Code raised ``CancelledError`` although its task was not cancelled."""


def as_error(error: Failure) -> Exception:
    """Return ``error``, or an ordinary error in its place; for tasks of a task group, in the handler that caught it.

    Raises:
        CancelledError: a cancel scope around the caller is cancelled, so the error is genuine.
    """
    if not issubclass(type(error), asyncio.CancelledError):
        return _converted(error)
    if anyio.current_effective_deadline() == -math.inf:
        raise error
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # code that cancels its own task must not confuse the scopes around it
    return _converted(error)


def as_error_of_plain_task(error: Failure) -> Exception:
    """Do the same as :func:`as_error` for tasks that ``Task.cancel`` cancels and no scope does."""
    task = asyncio.current_task()
    if issubclass(type(error), asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return _converted(error)


def _converted(error: Failure) -> Exception:
    if not issubclass(type(error), ENDINGS):  # by the class: ``isinstance`` asks attributes of the error
        return cast("Exception", error)
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
