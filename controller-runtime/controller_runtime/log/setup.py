# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logger and its set-up. structlog adds the fields of the context, and writes each event as a line to stderr."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import CallsiteParameter, CallsiteParameterAdder

from .context import bound
from .encode import VERBOSITY, renderer
from .options import INFO, TRACE, Options, limit

_FOREIGN: Final = "controller-runtime.foreign"
_place: Final = CallsiteParameterAdder(
    [CallsiteParameter.PATHNAME, CallsiteParameter.LINENO], additional_ignores=[f"{__package__}.", "logging"]
)


class Sink:
    """Writes lines to the output, all levels in the same way. structlog calls this the wrapped logger."""

    def __init__(self, stream: TextIO | None, verbosity: int) -> None:
        self._stream = stream
        self.verbosity = verbosity

    def _write(self, line: str) -> None:
        # stderr is looked up at each write: a test or a daemon may have replaced it.
        stream = self._stream if self._stream is not None else sys.stderr
        with contextlib.suppress(
            OSError, ValueError, AttributeError
        ):  # a full disk, a closed stream, or no stream
            stream.write(line + "\n")
            stream.flush()

    critical = error = exception = warning = info = debug = trace = _write


class Logger(structlog.BoundLoggerBase):
    """A logger with bound keys and values. A line below the log level costs only a comparison, and is not rendered."""

    def _log(self, method: str, message: str, fields: dict[str, object]) -> None:
        if VERBOSITY[method] <= getattr(self._logger, "verbosity", INFO):
            if "event" in fields:  # structlog's own key for the message
                fields["event_"] = fields.pop("event")
            self._proxy_to_logger(method, message, **fields)

    def enabled(self, verbosity: int) -> bool:
        """Return True if a message of that verbosity is written; check this before computing costly values."""
        allowed: int = getattr(self._logger, "verbosity", INFO)
        return verbosity <= allowed

    def error(self, message: str, /, **fields: object) -> None:
        """Log a failure. Pass the exception as ``error=``: the exception's text and stack are written."""
        self._log("error", message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        """Log a condition that an operator should check, but that needs no immediate action."""
        self._log("warning", message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        """Log at V(0)."""
        self._log("info", message, fields)

    def debug(self, message: str, /, **fields: object) -> None:
        """Log at V(1)."""
        self._log("debug", message, fields)

    def trace(self, message: str, /, **fields: object) -> None:
        """Log at V(5)."""
        self._log("trace", message, fields)


def bind(name: str) -> Logger:
    """Return the logger of that name for the current set-up.

    This returns the same as ``structlog.wrap_logger(wrapper_class=Logger).bind()``, in a quarter of the time.
    """
    # ``logger_name`` is LOGGER_NAME, which the renderer removes again.
    config = structlog.get_config()
    return Logger(config["logger_factory"](), config["processors"], {"logger_name": name})


def merge_context(
    _logger: object, _method: str, fields: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the bound fields to a line's own fields, which take precedence. This function is a structlog processor."""
    for key, value in bound().items():
        fields.setdefault(key, value)
    return fields


def caller() -> str:
    """Return the innermost place on the stack that is outside of the logging code, in zap's form:
    ``folder/file.py:line``.
    """
    found = _place(logging.getLogger(), "", {})  # the logger is not used
    folder_and_file = "/".join(found["pathname"].rsplit("/", 2)[-2:])
    return f"{folder_and_file}:{found['lineno']}"


def verbosity() -> int:
    """Return the highest verbosity that the log currently writes."""
    allowed: int = getattr(_sink(), "verbosity", INFO)
    return allowed


def set_verbosity(wanted: int) -> None:
    """Write lines up to that verbosity from now on. Before :func:`configure` is called, this does nothing."""
    sink = _sink()
    if isinstance(sink, Sink):
        sink.verbosity = wanted
        limit(wanted)
        _set_foreign_level(wanted)


def _sink() -> object:
    factory = structlog.get_config()["logger_factory"]
    return factory() if callable(factory) else None


def _set_foreign_level(wanted: int) -> None:
    logging.getLogger().setLevel(logging.DEBUG if wanted >= TRACE else logging.WARNING)


def configure(
    options: Options | None = None,
    *,
    stream: TextIO | None = None,
    now_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Set up logging for the process, also for libraries that use ``logging``; a second call replaces the first."""
    options = options or Options()
    sink = Sink(stream, options.effective_verbosity)
    limit(options.effective_verbosity)
    render = renderer(options, now_ns, caller) if options.caller else renderer(options, now_ns)
    structlog.configure(
        processors=[merge_context, merge_contextvars, render],
        wrapper_class=Logger,
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    _set_foreign_level(options.effective_verbosity)


class _Bridge(logging.Handler):
    """Writes the records of the standard library's loggers to this log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log = bind(record.name or _FOREIGN)
            fields: dict[str, object] = {"error": record.exc_info[1]} if record.exc_info else {}
            if record.levelno >= logging.ERROR:
                log.error(record.getMessage(), **fields)
            elif record.levelno >= logging.WARNING:
                log.warning(record.getMessage(), **fields)
            else:
                log.trace(record.getMessage(), **fields)
        except Exception:  # logging's own rule: a handler never raises into the caller
            self.handleError(record)
