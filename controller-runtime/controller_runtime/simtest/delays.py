# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Delays that begin and end independently of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Delays(Generic[P]):
    """Functions that draw seconds. When several are in effect, each draws, and the longest delay counts."""

    def __init__(self, *always: Callable[P, float]) -> None:
        self._drawn = list(always)

    @contextmanager
    def during(self, draw: Callable[P, float]) -> Iterator[None]:
        """Add a delay while this lasts."""
        self._drawn.append(draw)
        try:
            yield
        finally:
            self._drawn.remove(draw)

    def longest(self, *args: P.args, **kwargs: P.kwargs) -> float:
        """Return the longest delay, in seconds; 0 without any."""
        if len(self._drawn) == 1:
            return self._drawn[0](*args, **kwargs)
        return max((draw(*args, **kwargs) for draw in self._drawn), default=0.0)
