# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the ``--zap-*`` flags: verbosity, encoder, time format and the level from which stacks are written.

Levels are logr's verbosities: info is 0, debug is 1, trace is 5; error and panic are below zero.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Self

ERROR: Final = -1
PANIC: Final = -2
INFO: Final = 0
DEBUG: Final = 1
TRACE: Final = 5

_LEVELS: Final = {"debug": DEBUG, "info": INFO, "error": ERROR, "panic": PANIC}
_STACK_LEVELS: Final = {"info": INFO, "error": ERROR, "panic": PANIC}
_WARN_STACKS: Final = INFO


class Encoder(StrEnum):
    """How a line is written."""

    JSON = "json"
    CONSOLE = "console"


class TimeEncoding(StrEnum):
    """How a line's time is written."""

    EPOCH = "epoch"
    MILLIS = "millis"
    NANOS = "nanos"
    ISO8601 = "iso8601"
    RFC3339 = "rfc3339"
    RFC3339NANO = "rfc3339nano"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Log options. If an option is None, its value depends on ``development``, as in zap's presets."""

    development: bool = False
    encoder: Encoder | None = None
    verbosity: int | None = None
    stacktrace_level: int | None = None
    time_encoding: TimeEncoding = TimeEncoding.RFC3339
    caller: bool = False
    """Whether each line names the place in the code that wrote it, as zap's AddCaller does."""

    @classmethod
    def from_flags(
        cls,
        *,
        development: bool = False,
        encoder: str | None = None,
        level: str | None = None,
        stacktrace_level: str | None = None,
        time_encoding: str | None = None,
    ) -> Self:
        """Return the options for the texts of the flags. None means that a flag is not set.

        Raises:
            ValueError: a text is not valid; the message is zap's.
        """
        return cls(
            development=development,
            encoder=None if encoder is None else parse_encoder(encoder),
            verbosity=None if level is None else parse_level(level),
            stacktrace_level=None if stacktrace_level is None else parse_stacktrace_level(stacktrace_level),
            time_encoding=TimeEncoding.RFC3339
            if time_encoding is None
            else parse_time_encoding(time_encoding),
        )

    @property
    def effective_encoder(self) -> Encoder:
        """The chosen encoder; by default console in development, otherwise JSON."""
        return self.encoder or (Encoder.CONSOLE if self.development else Encoder.JSON)

    @property
    def effective_verbosity(self) -> int:
        """The chosen verbosity; by default debug in development, otherwise info."""
        return (DEBUG if self.development else INFO) if self.verbosity is None else self.verbosity

    @property
    def effective_stacktrace_level(self) -> int:
        """The level from which stacks are written: by default errors, and in development also warnings."""
        if self.stacktrace_level is not None:
            return self.stacktrace_level
        return _WARN_STACKS if self.development else ERROR


def parse_encoder(text: str) -> Encoder:
    """Return the encoder of that name. Upper and lower case do not matter."""
    try:
        return Encoder(text.lower())
    except ValueError:
        raise ValueError(f'invalid encoder value "{text}"') from None


def parse_level(text: str) -> int:
    """Return the verbosity for ``debug``, ``info``, ``error``, ``panic`` or a positive integer."""
    if (level := _LEVELS.get(text.lower())) is not None:
        return level
    try:
        level = int(text)
    except ValueError:
        level = 0
    # zap keeps a level in eight bits.
    if not 0 < level < 128:
        raise ValueError(f'invalid log level "{text}"')
    return level


def parse_stacktrace_level(text: str) -> int:
    """Return the level for ``info``, ``error`` or ``panic``."""
    try:
        return _STACK_LEVELS[text.lower()]
    except KeyError:
        raise ValueError(f'invalid stacktrace level "{text}"') from None


def parse_time_encoding(text: str) -> TimeEncoding:
    """Return the time encoding of that name; ``nano`` means ``nanos``."""
    name = text.lower()
    try:
        return TimeEncoding("nanos" if name == "nano" else name)
    except ValueError:
        raise ValueError(f'invalid time-encoding value "{text}"') from None


LOGGERS: Final = "controller_runtime"
"""The name of the ``logging`` logger above all loggers of this package."""
_TRACE: Final = logging.DEBUG + DEBUG - TRACE
LEVELS: Final[Mapping[str, int]] = {
    "critical": logging.CRITICAL,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": _TRACE,
}
"""Levels of ``logging`` by the method that writes the line."""
OURS: Final = logging.getLogger(LOGGERS)
_LOW: Final = {INFO: logging.INFO, ERROR: logging.ERROR, PANIC: logging.CRITICAL}
_OF_VERBOSITY: Final = ((TRACE, _TRACE), (DEBUG, logging.DEBUG), (INFO, logging.INFO), (ERROR, logging.ERROR))


@lru_cache(maxsize=32)
def level_of(verbosity: int) -> int:
    """Return the level of ``logging`` at which lines of ``verbosity`` are written."""
    if verbosity >= DEBUG:
        return max(1, logging.DEBUG + DEBUG - verbosity)
    return _LOW.get(verbosity, logging.CRITICAL + 1)


class _Limit:
    verbosity: int | None = None


_limit: Final = _Limit()


def current() -> int:
    """Return the highest verbosity of lines that are written."""
    level = OURS.getEffectiveLevel()
    if _limit.verbosity is not None and level_of(_limit.verbosity) == level:
        return _limit.verbosity
    return next((verbosity for verbosity, least in _OF_VERBOSITY if level <= least), PANIC)


def limit(verbosity: int) -> int:
    """Drop lines above ``verbosity`` before they are made; return the previous limit.

    The set-up of the log calls this function. Until then, the levels of ``logging`` decide.
    """
    before, _limit.verbosity = current(), verbosity
    OURS.setLevel(level_of(verbosity))
    return before
