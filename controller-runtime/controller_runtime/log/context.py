# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logger of the context, and the fields that the context adds to each of its lines.

Importing this module does not load structlog: it is loaded when the log is set up, or when the first line is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from .options import LEVELS, OURS, level_of

if TYPE_CHECKING:
    from .setup import Logger

_DEBUG: Final = LEVELS["debug"]
_TRACE: Final = LEVELS["trace"]
_bound: Final[ContextVar[Mapping[str, object]]] = ContextVar(
    "controller-runtime.fields", default=MappingProxyType({})
)


class into_context:  # noqa: N801 -- a function to its callers
    """Bind keys and values to every line logged within the ``with`` block and within the tasks that the block starts.

    All fields are in one context variable. structlog has a variable for each field, which takes ten times as long.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields: Mapping[str, object] = {**_bound.get(), **fields}
        self._token: Token[Mapping[str, object]]

    def __enter__(self) -> None:
        self._token = _bound.set(self._fields)

    def __exit__(self, *_: object) -> None:
        _bound.reset(self._token)


class _Late(Mapping[str, object]):
    """Fields that are made when the first line needs them."""

    __slots__ = ("_made", "_make", "_outer")

    def __init__(self, outer: Mapping[str, object], make: Callable[[], Mapping[str, object]]) -> None:
        self._outer = outer
        self._make = make
        self._made: dict[str, object] | None = None

    def _fields(self) -> dict[str, object]:
        if self._made is None:
            self._made = {**self._outer, **self._make()}
        return self._made

    def __getitem__(self, key: str) -> object:
        return self._fields()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())


class into_context_late(into_context):  # noqa: N801 -- a function to its callers
    """Bind the fields that ``make`` returns, as :class:`into_context` does.

    ``make`` is called only when the first line is written. The state that ``make`` reads must not change while the
    block runs.
    """

    __slots__ = ()

    def __init__(self, make: Callable[[], Mapping[str, object]]) -> None:
        self._fields = _Late(_bound.get(), make)


def bound() -> Mapping[str, object]:
    """Return the fields bound to the current context."""
    return _bound.get()


def may_write(verbosity: int) -> bool:
    """Return True if a line of ``verbosity`` may be written."""
    return OURS.isEnabledFor(level_of(verbosity))


@lru_cache(maxsize=256)
def logger_from(name: str = "") -> Logger:
    """Return the logger of the current context; each line carries the fields bound by :func:`into_context`.

    The logger may be created at import: a later :func:`configure` still applies.
    """
    return cast("Logger", _Unbound(name))


class _Unbound:
    """A logger that makes a :class:`Logger` when the first line is written; other lines cost almost nothing."""

    __slots__ = ("_made", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: Logger | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger(), name)

    def _logger(self) -> Logger:
        if self._made is None:
            from .setup import bind

            self._made = bind(self._name)
        return self._made

    def debug(self, message: str, /, *arguments: object, **fields: object) -> None:
        if OURS.isEnabledFor(_DEBUG):
            self._logger().debug(message, *arguments, **fields)

    def trace(self, message: str, /, *arguments: object, **fields: object) -> None:
        if OURS.isEnabledFor(_TRACE):
            self._logger().trace(message, *arguments, **fields)
