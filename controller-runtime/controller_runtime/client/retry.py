# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Repeat a read and a write until no other writer changes the object in between."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from controller_runtime.machinery import arguments
from controller_runtime.machinery.errors import ConflictError

R = TypeVar("R")


async def retry_on_conflict(
    change: Callable[[], Awaitable[R]],
    *,
    attempts: int = 5,
    delay: float = 0.01,
    factor: float = 1.0,
    jitter: float = 0.1,
) -> R:
    """Return the result of ``change``; if it raises ConflictError, call it again.

    ``change`` reads the object, changes it, and updates it, so that each call begins with the newest state::

        async def add_label() -> Pod:
            pod = await mgr.api_reader.get(Pod, key)
            pod.metadata.labels = {**pod.labels, "seen": "true"}
            return await mgr.client.update(pod)

        await retry_on_conflict(add_label)

    Read from the server, as ``api_reader`` does: after a conflict, a cache may still have the former state. The
    defaults are those of client-go: five attempts, with about 10 ms between them. Each delay is ``factor`` times the
    former one, and is lengthened by up to ``jitter`` of itself. If others write the object for longer, use
    ``attempts=4, factor=5.0``, or let the reconcile fail: the work queue retries it.

    Raises:
        ConflictError: the last attempt failed, too. Other errors of ``change`` are raised at once.
        ValueError: ``attempts`` is less than one.
        TypeError: ``change`` is not ``async``.
    """
    if not callable(change):
        raise TypeError(f"change must be an async function, not {change!r:.100}")
    arguments.must_be_async(change)
    if attempts < 1:
        raise ValueError(f"attempts must be at least one, not {attempts}")
    for _ in range(attempts - 1):
        try:
            return await change()
        except ConflictError:
            await anyio.sleep(delay * (1 + jitter * random.random()))  # noqa: S311 - not a secret
            delay *= factor
    return await change()
