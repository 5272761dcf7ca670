# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Trace IDs that follow from the uid of an object, so that restarts and replicas continue one trace."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

_wanted: Final[ContextVar[int]] = ContextVar("controller-runtime.trace-id", default=0)


def trace_id(uid: str) -> int:
    """Return the trace ID of an object: its uid without dashes; a hash if the uid is not a UUID; 0 without one."""
    if not uid:
        return 0
    try:
        return uuid.UUID(uid).int
    except ValueError:
        return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:16], "big")


@contextmanager
def root(uid: str) -> Iterator[None]:
    """Give the root spans that start in the block the trace ID of ``uid``."""
    token = _wanted.set(trace_id(uid))
    try:
        yield
    finally:
        _wanted.reset(token)


class UIDGenerator(RandomIdGenerator):
    """Random IDs, except for the root spans of reconciles: samplers see the ID that is derived from the uid."""

    def generate_trace_id(self) -> int:
        """Return the derived ID if there is one."""
        return _wanted.get() or super().generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Return False: derived IDs are not random, and an API server up to Kubernetes 1.36 drops the flag's header."""
        return False
