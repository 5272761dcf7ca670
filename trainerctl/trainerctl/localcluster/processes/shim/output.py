# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The log of a container: numbered files with records. The oldest files are removed.

A record is a line ``TIME F TEXT``. ``TIME P TEXT`` is a part of a line, and the next record continues the line.
"""

import os
import time
from collections.abc import Callable
from typing import Final

SEGMENT_BYTES: Final = 10 << 20
SEGMENTS: Final = 5
_LONGEST_PART: Final = 16 << 10


def stamp(at: float) -> bytes:
    """Return a time in the form that records use. The length is always the same."""
    seconds, rest = divmod(int(at * 1_000_000), 1_000_000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:06d}Z", time.gmtime(seconds)).encode()


class LogWriter:
    """Writes output into the existing ``folder``. At most ``segments`` files are kept."""

    def __init__(
        self,
        folder: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segments: int = SEGMENTS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments = segments
        self._now = now
        self._number = 0
        self._size = 0
        self._file = self._open(0)
        self._part = b""

    def write(self, data: bytes) -> None:
        """Write the complete lines of the output. An incomplete last line is written by the next call or by `flush`."""
        lines, newline, rest = (self._part + data).rpartition(b"\n")
        self._part = rest
        if newline:
            prefix = stamp(self._now()) + b" F "
            self._record(prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n")
        if len(self._part) > _LONGEST_PART:
            self.flush()

    @property
    def has_part(self) -> bool:
        """True if the last line is incomplete and has not been written."""
        return bool(self._part)

    def flush(self) -> None:
        """Write the incomplete last line as a part."""
        if self._part:
            self._record(stamp(self._now()) + b" P " + self._part + b"\n")
            self._part = b""

    def _record(self, data: bytes) -> None:
        """Write records. If the disk is full, the output is lost, because the container must not have to wait."""
        view = memoryview(data)
        try:
            if self._size and self._size + len(data) > self._segment_bytes:
                self._begin_next()
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            return
        self._size += len(data)

    def _begin_next(self) -> None:
        opened = self._open(self._number + 1)
        os.close(self._file)
        self._file, self._size, self._number = opened, 0, self._number + 1
        _remove(self._path(self._number - self._segments))

    def _open(self, number: int) -> int:
        return os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number}.log")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
