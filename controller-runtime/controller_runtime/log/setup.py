# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logger, the records that it passes to Python's ``logging``, and the handler that :func:`configure` installs.

A structlog logger adds the fields of the context and makes a ``logging`` record below ``controller_runtime``. Without
:func:`configure`, the handlers, levels and formatters are those of the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import CallsiteParameter, CallsiteParameterAdder

from controller_runtime.machinery import raised

from . import context
from .context import bound
from .encode import LOGGER_NAME, Renderer, describe, renderer, stack_of
from .options import LEVELS, LOGGERS, OURS, Options, current, level_of, limit

_TEMPLATE: Final = {key: value for key, value in vars(logging.makeLogRecord({})).items() if key != "exc_text"}
_RESERVED: Final = frozenset(_TEMPLATE) | {"message", "asctime", "taskName", "exc_text"}
"""The attributes that every record has."""
_UNBOUND: Final = context.__file__
_place: Final = CallsiteParameterAdder(
    [CallsiteParameter.PATHNAME, CallsiteParameter.LINENO], additional_ignores=[f"{__package__}.", "logging"]
)


class Record(logging.LogRecord):
    """A record of this package's loggers.

    The fields of the line are attributes of the record, as for ``extra``. A field with the name of an attribute that
    every record has gets an underscore at its end: ``name_``. An exception is passed as ``exc_info``, and ``error`` is
    its text.
    """

    __slots__ = ("event", "method", "stack")

    event: dict[str, Any]
    method: str
    stack: str | None
    """The traceback as a text, because the error may lose its traceback before a handler formats the record."""

    def __init__(self, logger: str, method: str, event: dict[str, Any]) -> None:
        error = event.get("error")
        error = error if isinstance(error, BaseException) else event.get("exc_info")
        exc_info = (type(error), error, error.__traceback__) if isinstance(error, BaseException) else None
        level, created = LEVELS[method], time.time()
        # The constructor of the base class takes five times as long, most of it for the names of files and processes.
        values = self.__dict__ = {
            **event,
            **_TEMPLATE,
            "name": logger,
            "msg": raised.text(event["event"]),
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "exc_info": exc_info,
            "created": created,
            "msecs": int(created % 1 * 1000) + 0.0,
            "relativeCreated": (created - _TEMPLATE["created"]) * 1000,
            "thread": threading.get_ident(),
            "threadName": threading.current_thread().name,
            "process": os.getpid(),
        }
        del values["event"]
        values.pop(LOGGER_NAME, None)
        self.event = event
        self.method = method
        for key in _RESERVED.intersection(event):
            if key != "exc_info":
                values[f"{key}_"] = event[key]
                if key not in _TEMPLATE:
                    del values[key]
        self.stack = None
        if isinstance(error, BaseException):
            values["error"] = text = describe(error)
            # A traceback may contain lone surrogates, which no handler could write as UTF-8.
            self.stack = raised.text(stack_of(error) or text)

    @property
    def exc_text(self) -> str | None:
        """The traceback. An exception whose own code raises an error, or which is nested very deeply, has one, too."""
        return self.stack if self.exc_info else None

    @exc_text.setter
    def exc_text(self, _: str | None) -> None:
        pass


class _Records:
    """Passes records to ``logging``. structlog calls this the wrapped logger."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def enabled(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def handle(self, method: str, event: dict[str, Any]) -> None:
        logger, handlers = self._logger, logging.root.handlers
        if len(handlers) == 1 and isinstance(handlers[0], _Lines) and not (logger.handlers or OURS.handlers):
            lines = handlers[0]
            between = logger is not OURS and logger.parent is not OURS  # another logger may have handlers
            if lines.takes_all and not (logger.filters or between) and logger.propagate and OURS.propagate:
                if not logger.disabled:
                    lines.write(method, event)  # to make a record would take a third of the time of the line
                return
        record = Record(logger.name, method, event)
        vars(record).update(self._origin())
        logger.handle(record)

    def _origin(self) -> dict[str, object]:
        """Return where the line is logged, as attributes of a record."""
        depth = 5  # this method, ``handle``, and two methods of the logger are between ``findCaller`` and the caller
        path, line, function, _ = self._logger.findCaller(False, depth)
        if path == _UNBOUND:
            path, line, function, _ = self._logger.findCaller(False, depth + 1)
        file = Path(path).name
        origin = {"pathname": path, "lineno": line, "funcName": function, "filename": file}
        origin["module"] = file.removesuffix(".py")
        if "taskName" in _TEMPLATE:
            with contextlib.suppress(RuntimeError):  # there is no event loop
                task = asyncio.current_task()
                origin["taskName"] = None if task is None else task.get_name()
        return origin


class Logger(structlog.BoundLoggerBase):
    """A logger with bound keys and values. A line below the log level costs only a comparison, and is not rendered.

    No method raises an error, whatever the values and the handlers do. Positional arguments are formatted into the
    message, as in ``logging``; fields are easier to search for.
    """

    def _log(self, method: str, message: str, arguments: tuple[object, ...], fields: dict[str, Any]) -> None:
        if not self._logger.enabled(LEVELS[method]):
            return
        if "event" in fields:  # structlog's own key for the message
            fields["event_"] = fields.pop("event")
        try:
            if arguments:
                message = _formatted(message, arguments)
            if "exc_info" in fields:
                fields["exc_info"] = _exception_of(fields["exc_info"])
            if "error" in fields:
                fields["error"] = _readable(fields["error"])
            event = {**self._context, **fields, "event": message}
            self._logger.handle(method, merge_contextvars(self, method, merge_context(self, method, event)))
        except raised.FAILURES:
            return

    def enabled(self, verbosity: int) -> bool:
        """Return True if a message of that verbosity is written; check this before computing costly values."""
        allowed: bool = self._logger.enabled(level_of(verbosity))
        return allowed

    def critical(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log a failure that ends the program."""
        self._log("critical", message, arguments, fields)

    def error(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log a failure. Pass the exception as ``error=``: the exception's text and stack are written."""
        self._log("error", message, arguments, fields)

    def exception(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log a failure with the exception that is being handled."""
        self._log("error", message, arguments, {"exc_info": True, **fields})

    def warning(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log a condition that an operator should check, but that needs no immediate action."""
        self._log("warning", message, arguments, fields)

    def info(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log at V(0)."""
        self._log("info", message, arguments, fields)

    def debug(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log at V(1)."""
        self._log("debug", message, arguments, fields)

    def trace(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log at V(5)."""
        self._log("trace", message, arguments, fields)


def _formatted(message: str, arguments: tuple[object, ...]) -> str:
    """Return the message with its arguments, as in ``logging``. If they do not fit, return both."""
    try:
        return message % (
            arguments[0] if len(arguments) == 1 and isinstance(arguments[0], dict) else arguments
        )
    except Exception:  # a log call never raises, whatever the text of an argument does
        return " ".join(map(raised.text, (message, *arguments)))


def _exception_of(given: object) -> object:
    """Return the exception that ``exc_info`` means, as in ``logging``: True and 1 mean the one being handled."""
    if type(given) is tuple and len(given) == 3:
        given = given[1]
    elif type(given) in (bool, int):
        given = sys.exception() if given else None
    return _readable(given)


def _readable(value: object) -> object:
    """Return a value that every handler and processor can compare with ``isinstance``."""
    try:
        isinstance(value, str)
    except Exception:  # from the __class__ or __getattribute__ of foreign code
        if not issubclass(type(value), BaseException):
            return raised.text(value)
    return raised.readable(value) if isinstance(value, BaseException) else value


def bind(name: str) -> Logger:
    """Return the logger of that name. The name of the ``logging`` logger begins with ``controller_runtime``."""
    short = name.removeprefix("controller-runtime.")
    logger = logging.getLogger(f"{LOGGERS}.{short}") if short else OURS
    # ``logger_name`` is LOGGER_NAME, which the renderer removes again.
    return Logger(_Records(logger), (), {"logger_name": name})


def merge_context(
    _logger: object, _method: str, fields: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the bound fields to a line's own fields, which take precedence. This function is a structlog processor."""
    return {**fields, **bound(), **fields}  # the line's own fields come first


def caller() -> str:
    """Return the innermost place on the stack that is outside of the logging code, in zap's form:
    ``folder/file.py:line``.
    """
    place = _place(logging.getLogger(), "", {})  # the logger is not used
    folder_and_file = "/".join(place["pathname"].rsplit("/", 2)[-2:])
    return f"{folder_and_file}:{place['lineno']}"


def verbosity() -> int:
    """Return the highest verbosity that the log currently writes."""
    return current()


def set_verbosity(wanted: int) -> None:
    """Write lines up to that verbosity from now on. Before :func:`configure` is called, this does nothing."""
    if any(isinstance(handler, _Lines) for handler in logging.getLogger().handlers):
        limit(wanted)
        _set_foreign_level(wanted)


def _set_foreign_level(wanted: int) -> None:
    logging.getLogger().setLevel(logging.DEBUG if level_of(wanted) <= LEVELS["trace"] else logging.WARNING)


def configure(
    options: Options | None = None,
    *,
    stream: TextIO | None = None,
    now_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Write the lines of the process to stderr in zap's form, also those of libraries that use ``logging``.

    This installs one handler at the root logger, and sets levels. A second call replaces the first.
    """
    options = options or Options()
    limit(options.effective_verbosity)
    render = renderer(options, now_ns, caller) if options.caller else renderer(options, now_ns)
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Lines)]:
        root.removeHandler(handler)
    root.addHandler(_Lines(stream, render))
    _set_foreign_level(options.effective_verbosity)


class _Lines(logging.Handler):
    """Writes each record as a line.

    A line of another library that is less than a warning is a trace line, unless its logger has a level of its own.
    """

    def __init__(self, stream: TextIO | None, render: Renderer) -> None:
        super().__init__()
        self._stream = stream
        self._render = render

    def handle(self, record: logging.LogRecord) -> bool:
        """Write the record without the lock of other handlers: a line is written by one call."""
        if allowed := bool(self.filter(record)):
            self.emit(record)
        return allowed

    @property
    def takes_all(self) -> bool:
        """True if neither a level nor a filter of this handler drops lines."""
        return not self.level and not self.filters

    def write(self, method: str, event: dict[str, Any]) -> None:
        """Write a line of this package's loggers."""
        try:
            line = self._render(self, method, dict(event))
        except Exception:  # as in emit: a handler never raises into the caller
            self.handleError(Record(LOGGERS, method, event))
            return
        self._write(line)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if isinstance(record, Record):
                line = self._render(self, record.method, dict(record.event))
            elif (method := _method_of(record)) != "trace" or OURS.isEnabledFor(LEVELS["trace"]):
                name = record.name.replace(
                    f"{LOGGERS}.", "controller-runtime.", 1
                )  # as Go's loggers are named
                event: dict[str, object] = {"event": record.getMessage(), LOGGER_NAME: name}
                if record.exc_info:
                    event["error"] = record.exc_info[1]
                line = self._render(self, method, {**event, **bound()})
            else:
                return
        except Exception:  # logging's own rule: a handler never raises into the caller
            self.handleError(record)
            return
        self._write(line)

    def _write(self, line: str) -> None:
        # stderr is looked up at each write: a test or a daemon may have replaced it.
        stream = self._stream if self._stream is not None else sys.stderr
        # A full disk, a closed stream, or no stream.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.write(line + "\n")
            stream.flush()


def _method_of(record: logging.LogRecord) -> str:
    if record.levelno >= logging.ERROR:
        return "error"
    if record.levelno >= logging.WARNING:
        return "warning"
    if record.levelno >= logging.root.level:
        return "trace"
    return "info" if record.levelno >= logging.INFO else "debug"  # the application chose this logger's level


@contextlib.contextmanager
def captured() -> Iterator[list[dict[str, Any]]]:
    """Collect the lines of all levels that are logged within the block, for tests.

    Each line has its message as ``event``, its level as ``log_level``, its fields, and those of the context. The lines
    are not passed to other handlers.
    """
    lines: list[dict[str, Any]] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record, Record):
                lines.append({**record.event, "log_level": record.method})

    collector, level, passes_on = Collector(), OURS.level, OURS.propagate
    OURS.addHandler(collector)
    OURS.setLevel(LEVELS["trace"])
    OURS.propagate = False
    try:
        yield lines
    finally:
        OURS.propagate = passes_on
        OURS.setLevel(level)
        OURS.removeHandler(collector)
