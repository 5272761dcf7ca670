# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions with the unusual properties that foreign code may give them, and the log that reports them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import pytest
import structlog

from controller_runtime import log
from controller_runtime.machinery.errors import StatusError

CHAINED: Final = 2000
DEEP: Final = 500


def _raising(failure: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise type(failure)(*failure.args)  # a new exception: a traceback grows each time

    return fail


def _with(base: type[BaseException] = ValueError, **attributes: Any) -> Callable[[], BaseException]:
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


def _shared() -> BaseException:
    error: Exception = ValueError("odd")
    for _ in range(60):
        error = ExceptionGroup("odd", [error, error])
    return error


def _group_in_a_circle() -> BaseException:
    member = ValueError("odd")
    group = ExceptionGroup("odd", [member])
    member.__cause__ = group
    return group


class _Meta(type):
    __eq__ = _raising(ValueError("compared"))
    __bool__ = _raising(ValueError("tested"))
    __hash__ = None  # type: ignore[assignment]


def _odd_class() -> BaseException:
    made: BaseException = _Meta("OddError", (ValueError,), {})("odd")
    return made


class _Text(str):
    __slots__ = ()
    __len__ = __bool__ = __format__ = __getitem__ = split = _raising(ValueError("read"))


FAILURE: Final = ValueError("no such text")
SHAPES: Final[dict[str, Callable[[], BaseException]]] = {
    "plain": _with(),
    "a circle of causes": _circle,
    "a circle of contexts": _circle_of_contexts,
    "2,000 chained causes": _chain,
    "groups 500 deep": _deep,
    "groups that share members": _shared,
    "a group that is the cause of its member": _group_in_a_circle,
    "__str__ raises": _with(__str__=_raising(FAILURE)),
    "__str__ raises RecursionError": _with(__str__=_raising(RecursionError("deep"))),
    "__str__ raises SystemExit": _with(__str__=_raising(SystemExit(3))),
    "__str__ returns a number": _with(__str__=lambda _: 5),
    "__str__ returns an odd string": _with(__str__=lambda _: _Text("odd")),
    "__str__ returns half a character": _with(__str__=lambda _: "odd \ud800"),
    "__repr__ raises": _with(__repr__=_raising(FAILURE)),
    "not hashable": _with(__hash__=None),
    "__eq__ raises": _with(__eq__=_raising(FAILURE), __hash__=None),
    "__bool__ raises": _with(__bool__=_raising(FAILURE)),
    "a class that is neither hashable nor comparable": _odd_class,
    "needs_no_stack raises": _with(needs_no_stack=property(_raising(FAILURE))),
    "needs_no_stack raises SystemExit": _with(needs_no_stack=property(_raising(SystemExit(3)))),
    "every attribute raises": _with(__getattribute__=_raising(FAILURE)),
    "__cause__ raises": _with(__cause__=property(_raising(FAILURE))),
    "__notes__ raises": _with(__notes__=property(_raising(FAILURE))),
    "exceptions raises": lambda: type(
        "OddGroup", (ExceptionGroup,), {"exceptions": property(_raising(FAILURE))}
    )("odd", [ValueError("odd")]),
    "retry_after raises": _with(StatusError, retry_after=property(_raising(FAILURE), lambda *_: None)),
    "retry_after raises SystemExit": _with(
        StatusError, retry_after=property(_raising(SystemExit(3)), lambda *_: None)
    ),
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
def written() -> Iterator[Written]:
    """Log at debug level; return a function that returns the log's lines."""
    before = structlog.get_config()
    level, handlers = logging.root.level, list(logging.root.handlers)
    stream = io.StringIO()
    log.configure(log.Options(verbosity=log.DEBUG), stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.configure()
    structlog.configure(**before)
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers


def errors(written: Written) -> list[str]:
    """Return the messages of the errors in the log."""
    return [line["msg"] for line in written() if line["level"] == "error"]
