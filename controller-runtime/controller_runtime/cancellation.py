# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cancellation of a task, and a ``CancelledError`` that only looks like it.

Code that awaits a future which another task cancelled gets a ``CancelledError`` although its own task goes on. A
task group drops such an error, and the task ends without a trace. Callers of code that is not their own convert it::

    try:
        await reconciler.reconcile(request)
    except asyncio.CancelledError as error:
        raise cancellation.as_error(error) from error
"""

from __future__ import annotations

import asyncio
import math

import anyio


class StrayCancellationError(Exception):
    """Code raised ``CancelledError`` although its task was not cancelled."""


def as_error(error: asyncio.CancelledError) -> StrayCancellationError:
    """Return ``error`` as an ordinary error; for tasks of a task group, in the handler that caught it.

    Raises:
        CancelledError: a cancel scope around the caller is cancelled, so the error is genuine.
    """
    if anyio.current_effective_deadline() == -math.inf:
        raise error
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # code that cancels its own task must not confuse the scopes around it
    return _converted(error)


def as_error_of_plain_task(error: asyncio.CancelledError) -> StrayCancellationError:
    """Do the same as :func:`as_error` for tasks that ``Task.cancel`` cancels and no scope does."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return _converted(error)


def _converted(error: asyncio.CancelledError) -> StrayCancellationError:
    text = f": {error}" if str(error) else ""
    stray = StrayCancellationError(f"CancelledError was raised although the task was not cancelled{text}")
    stray.__cause__ = error
    return stray
