# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Standard output and error: any text in any locale, errors in one line, and readers that close the pipe."""

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
    """Make standard output and error accept any text in any locale; text for a closed stream is dropped."""
    codecs.register_error(_ENCODING_ERRORS, _replaced)
    sys.stdout = sys.stdout or _null()
    sys.stderr = sys.stderr or _null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ENCODING_ERRORS)


def say_error(text: str) -> None:
    """Print an error, after the buffered text of standard output."""
    with suppress(OSError):
        flush()
    with suppress(OSError, AttributeError):
        sys.stderr.write(f"trainerctl: {printable(text, indent='  ')}\n")


def describe(error: BaseException) -> str:
    """Return the text of an error; for an error of the operating system, the file and the system's message."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def flush() -> None:
    """Write the buffered text now, while an error can still be reported."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def discard() -> None:
    """Redirect to the null device those streams that cannot be flushed.

    Otherwise the interpreter would try to flush them again when it ends, and fail.
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
