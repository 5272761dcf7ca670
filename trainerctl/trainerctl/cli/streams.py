# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Standard output and standard error. Any text can be printed in any locale, and a reader may close the pipe."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from controller_runtime.machinery.printable import printable

_ENCODING_ERRORS: Final = "trainerctl"
_ASCII: Final = {"←": "<-", "→": "->", "✓": "v", "✗": "x", "·": "-", "…": "..."}


def prepare() -> None:
    """Make standard output and standard error accept any text in any locale. Text for a closed stream is dropped."""
    codecs.register_error(_ENCODING_ERRORS, _replaced)
    sys.stdout = sys.stdout or _null()
    sys.stderr = sys.stderr or _null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ENCODING_ERRORS)


def say_error(text: str) -> None:
    """Print an error on standard error. Text that standard output still buffers is written first."""
    with suppress(OSError):
        flush()
    with suppress(OSError, AttributeError):
        sys.stderr.write(f"trainerctl: {printable(text, indent='  ')}\n")


def say_note(text: str) -> None:
    """Print a note on standard error. A note does not change the exit code."""
    say_error(f"note: {text}")


def describe(error: BaseException) -> str:
    """Return the text of an error. For an error of the operating system, this is the file and the system's message."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def flush() -> None:
    """Write the buffered text now, while an error can still be reported."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:  # the server of mcp closes its standard output
            stream.flush()


def discard() -> None:
    """Redirect a stream to the null device if it cannot be flushed.

    Otherwise the interpreter would fail when it flushes the stream at exit.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
            continue
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _null() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")  # the interpreter closes this file


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    escaped = (char.encode("ascii", "backslashreplace").decode() for char in text)
    return "".join(_ASCII.get(char, more) for char, more in zip(text, escaped, strict=True)), error.end
