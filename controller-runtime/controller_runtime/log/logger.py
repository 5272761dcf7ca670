# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The loggers of packages.

Importing this module does not load structlog; the set-up of the log does, or the first line that is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .options import DEBUG, LIMIT, TRACE

if TYPE_CHECKING:
    from .setup import Logger


def logger_from(name: str = "") -> Logger:
    """Return the logger of the current context; each line carries the fields bound by :func:`into_context`.

    It may be made at import: a later :func:`configure` still applies.
    """
    return cast("Logger", _Unbound(name))


class _Unbound:
    """A logger that becomes a :class:`Logger` for each line that is written; others cost almost nothing."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        from .setup import bind

        return getattr(bind(self._name), name)

    def debug(self, message: str, /, **fields: object) -> None:
        if LIMIT.verbosity >= DEBUG:
            from .setup import bind

            bind(self._name).debug(message, **fields)

    def trace(self, message: str, /, **fields: object) -> None:
        if LIMIT.verbosity >= TRACE:
            from .setup import bind

            bind(self._name).trace(message, **fields)
