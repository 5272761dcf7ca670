# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The loggers of packages, and the fields that the context adds to each line.

Importing this module does not load structlog; the set-up of the log does, or the first line that is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from .options import DEBUG, TRACE

if TYPE_CHECKING:
    from .logger import Logger

_bound: Final[ContextVar[Mapping[str, object]]] = ContextVar(
    "controller-runtime.fields", default=MappingProxyType({})
)


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

    def _bind(self) -> Logger:
        from .logger import Logger, current

        # What structlog.wrap_logger(wrapper_class=Logger).bind() makes, at a quarter of the cost.
        # ``logger_name`` is LOGGER_NAME, which the renderer takes off again.
        config = current()
        return Logger(config["logger_factory"](), config["processors"], {"logger_name": self._name})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bind(), name)

    def debug(self, message: str, /, **fields: object) -> None:
        if Written.up_to >= DEBUG:
            self._bind().debug(message, **fields)

    def trace(self, message: str, /, **fields: object) -> None:
        if Written.up_to >= TRACE:
            self._bind().trace(message, **fields)


class Written:
    """Up to which verbosity a line may be written."""

    up_to = TRACE
    """Until the log is configured, each logger decides by itself."""


class _Bound:
    """Fields, bound while the block runs: in one context variable, which costs a tenth of structlog's one for each."""

    __slots__ = ("_fields", "_token")

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields
        self._token: Token[Mapping[str, object]]

    def __enter__(self) -> None:
        self._token = _bound.set({**_bound.get(), **self._fields})

    def __exit__(self, *_: object) -> None:
        _bound.reset(self._token)


def into_context(**fields: object) -> AbstractContextManager[None]:
    """Bind keys and values to every line logged within the ``with`` block and the tasks it starts."""
    return _Bound(fields)


def bound() -> Mapping[str, object]:
    """Return the fields bound to the current context."""
    return _bound.get()
