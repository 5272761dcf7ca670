# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logger and its set-up: structlog bound to context variables, one line per event on stderr.

Where :func:`controller_runtime.lean.importing` left out structlog's own configuration, which loads its console, its
tracebacks and pickle, the set-up is kept here; structlog receives it as soon as anything loads that configuration.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, TextIO

import structlog
from structlog._base import BoundLoggerBase  # the public name loads all of structlog
from structlog.contextvars import merge_contextvars

from .context import Written, bound, logger_from
from .encode import VERBOSITY, renderer
from .options import INFO, TRACE, Options

_FOREIGN: Final = "controller-runtime.foreign"
_CONFIGURATION: Final = "structlog._config"
"""The module with structlog's configuration; other modules of structlog are loaded without it."""


class Sink:
    """The output: the object that structlog calls as wrapped logger; every level is the same write."""

    def __init__(self, stream: TextIO | None, verbosity: int) -> None:
        self._stream = stream
        self.verbosity = verbosity

    def _write(self, line: str) -> None:
        # stderr is looked up at each write: a test or a daemon may have replaced it.
        stream = self._stream if self._stream is not None else sys.stderr
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a full disk, a closed stream, none
            stream.write(line + "\n")
            stream.flush()

    critical = error = exception = warning = info = debug = trace = _write


class Logger(BoundLoggerBase):
    """A logger with bound keys and values; a call below the verbosity costs a comparison and no rendering."""

    def _log(self, method: str, message: str, fields: dict[str, object]) -> None:
        if VERBOSITY[method] <= getattr(self._logger, "verbosity", INFO):
            if "event" in fields:  # structlog's own key for the message
                fields["event_"] = fields.pop("event")
            self._proxy_to_logger(method, message, **fields)

    def enabled(self, verbosity: int) -> bool:
        """Whether a message of that verbosity is written; check before computing costly values."""
        allowed: int = getattr(self._logger, "verbosity", INFO)
        return verbosity <= allowed

    def error(self, message: str, /, **fields: object) -> None:
        """Log a failure; pass the exception as ``error=``: its text is written, and its stack."""
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


def merge_context(
    _logger: object, _method: str, fields: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the bound fields to a line's fields, which take precedence: a processor of structlog."""
    for key, value in bound().items():
        fields.setdefault(key, value)
    return fields


def verbosity() -> int:
    """Return up to which verbosity lines are written now."""
    allowed: int = getattr(_sink(), "verbosity", INFO)
    return allowed


def set_verbosity(wanted: int) -> None:
    """Write lines up to that verbosity from now on, without a second :func:`configure`; unconfigured, do nothing."""
    sink = _sink()
    if isinstance(sink, Sink):
        sink.verbosity = Written.up_to = wanted
        _set_foreign_level(wanted)


def current() -> Mapping[str, Any]:
    """Return structlog's configuration, or what it will be once structlog's is loaded."""
    return structlog.get_config() if _kept.settings is None else _kept.settings


class _Kept:
    """The configuration until structlog's is loaded: a finder of modules, which then hands it over."""

    settings: dict[str, Any] | None = None

    def configure(self, settings: dict[str, Any]) -> None:
        """Configure structlog, now or once its configuration is loaded."""
        if _CONFIGURATION in sys.modules:
            structlog.configure(**settings)
            return
        self.settings = settings
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, but for structlog's configuration: its module, which configures itself after it ran."""
        if name != _CONFIGURATION:
            return None
        others = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(self._run, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec

    def _run(self, run: Callable[[ModuleType], object], module: ModuleType) -> None:
        run(module)
        sys.meta_path.remove(self)
        if self.settings is not None:
            module.configure(**self.settings)
            self.settings = None


_kept: Final = _Kept()


def _sink() -> object:
    factory = current()["logger_factory"]
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
    Written.up_to = options.effective_verbosity
    _kept.configure(
        {
            "processors": [merge_context, merge_contextvars, renderer(options, now_ns)],
            "wrapper_class": Logger,
            "logger_factory": lambda *_: sink,
            "cache_logger_on_first_use": False,
        }
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    _set_foreign_level(options.effective_verbosity)


class _Bridge(logging.Handler):
    """Carries records of the standard library's loggers over."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log = logger_from(record.name or _FOREIGN)
            fields: dict[str, object] = {"error": record.exc_info[1]} if record.exc_info else {}
            if record.levelno >= logging.ERROR:
                log.error(record.getMessage(), **fields)
            elif record.levelno >= logging.WARNING:
                log.warning(record.getMessage(), **fields)
            else:
                log.trace(record.getMessage(), **fields)
        except Exception:  # logging's own rule: a handler never raises into the caller
            self.handleError(record)


__all__ = [
    "Logger",
    "Sink",
    "configure",
    "merge_context",
    "set_verbosity",
    "verbosity",
]
