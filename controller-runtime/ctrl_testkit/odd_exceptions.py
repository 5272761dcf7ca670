# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions with the unusual properties that foreign code may give them, and the log that reports them."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

import pytest

from controller_runtime import log
from controller_runtime.machinery.errors import StatusError

CHAINED: Final = 200
DEEP: Final = 500


def _raising(failure: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise type(failure)(*failure.args)  # a new exception: a traceback grows each time

    return fail


def _with(base: type[BaseException] = ValueError, /, **attributes: Any) -> Callable[[], BaseException]:
    return lambda: type("OddError", (base,), attributes)("odd")


def _circle() -> BaseException:
    error = ValueError("odd")
    error.__cause__ = error
    return error


def _circle_of_contexts() -> BaseException:
    first, second = ValueError("odd"), ValueError("again")
    first.__context__, second.__context__ = second, first
    return first


def _chain() -> BaseException:
    error = ValueError("odd")
    for number in range(CHAINED):
        outer = ValueError(f"odd {number}")
        outer.__cause__ = error
        error = outer
    return error


def _deep() -> BaseException:
    error: Exception = ValueError("odd")
    for _ in range(DEEP):
        error = ExceptionGroup("odd", [error])
    return error


def _group_in_a_circle() -> BaseException:
    member = ValueError("odd")
    group = ExceptionGroup("odd", [member])
    member.__cause__ = group
    return group


def _unreadable_cause() -> BaseException:
    error = ValueError("odd")
    error.__cause__ = SHAPES["every method raises"]()
    return error


FAILURE: Final = ValueError("no such text")
SHAPES: Final[dict[str, Callable[[], BaseException]]] = {
    "plain": _with(),
    "a circle of causes": _circle,
    "a circle of contexts": _circle_of_contexts,
    "200 chained causes": _chain,
    "groups 500 deep": _deep,
    "a group that is the cause of its member": _group_in_a_circle,
    "__str__ raises": _with(__str__=_raising(FAILURE)),
    "__str__ raises RecursionError": _with(__str__=_raising(RecursionError("deep"))),
    "__str__ returns a number": _with(__str__=lambda _: 5),
    "__str__ returns half a character": _with(__str__=lambda _: "odd \ud800"),
    "__repr__ raises": _with(__repr__=_raising(FAILURE)),
    "__getattribute__ raises": _with(__getattribute__=_raising(FAILURE)),
    "every method raises": _with(
        **dict.fromkeys(("__getattribute__", "__str__", "__repr__", "__eq__", "__bool__"), _raising(FAILURE)),
        __hash__=None,
    ),
    "every method of a StatusError raises": _with(
        StatusError,
        **dict.fromkeys(("__getattribute__", "__str__", "__repr__"), _raising(FAILURE)),
    ),
    "every method of a SystemExit raises": _with(
        SystemExit,
        **dict.fromkeys(("__getattribute__", "__str__", "__repr__"), _raising(FAILURE)),
    ),
    "every method of a CancelledError raises": _with(
        asyncio.CancelledError,
        **dict.fromkeys(("__getattribute__", "__str__", "__repr__"), _raising(FAILURE)),
    ),
    "the cause is unreadable": _unreadable_cause,
    "a member is unreadable": lambda: BaseExceptionGroup("odd", [SHAPES["every method raises"]()]),
    "not hashable": _with(__hash__=None),
    "__eq__ raises": _with(__eq__=_raising(FAILURE), __hash__=None),
    "retry_after raises": _with(StatusError, retry_after=property(_raising(FAILURE), lambda *_: None)),
    "retry_after is a text": _with(StatusError, retry_after=property(lambda _: "soon", lambda *_: None)),
    "retry_after is not a number": _with(
        StatusError, retry_after=property(lambda _: float("nan"), lambda *_: None)
    ),
    "SystemExit": _with(SystemExit),
    "SystemExit whose __str__ raises": _with(SystemExit, __str__=_raising(FAILURE)),
    "CancelledError": _with(asyncio.CancelledError),
    "CancelledError whose __str__ raises": _with(asyncio.CancelledError, __str__=_raising(FAILURE)),
}


Odd = Callable[[], BaseException]
Written = Callable[[], list[dict[str, Any]]]


@pytest.fixture(params=SHAPES)
def odd(request: pytest.FixtureRequest) -> Odd:
    """Return a function that makes an exception; the test runs once for each shape."""
    return SHAPES[request.param]


@pytest.fixture
def written() -> Written:
    """Log at debug level; return a function that returns the log's lines."""
    stream = io.StringIO()
    log.configure(log.Options(verbosity=log.DEBUG), stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def errors(written: Written) -> list[str]:
    """Return the messages of the errors in the log."""
    return [line["msg"] for line in written() if line["level"] == "error"]
