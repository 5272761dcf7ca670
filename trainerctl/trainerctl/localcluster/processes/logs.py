# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the logs that shims write: numbered files with records ``TIME F TEXT`` or, for a part of a line, ``TIME P
TEXT``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from trainerctl.localcluster.podlogs.server import Query
from trainerctl.localcluster.processes.shim.output import stamp

_READ_BYTES = 1 << 18
_KEPT_BYTES = 1 << 18
"""Of the log of a removed pod, we keep this much for each run."""
_STAMP_BYTES = len(stamp(0))
_TEXT = _STAMP_BYTES + 3


def segments(folder: Path) -> list[int]:
    """Return the numbers of a log's files, oldest first."""
    return sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal())


def runs(folder: Path) -> list[int]:
    """Return the numbers of a container's runs that have logs, oldest first."""
    return (
        sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
        if folder.is_dir()
        else []
    )


def tail(folder: Path, lines: int) -> bytes:
    """Return the text of the last ``lines`` lines of a log."""
    reader = LogReader(folder, Query(tail=lines))
    try:
        return b"".join(reader.read())
    finally:
        reader.close()


def save_ends(source: Path, target: Path) -> None:
    """Copy the ends of the logs of each container's last two runs from ``source`` to ``target``.

    The last run may only have been stopped with its pod. The run before it then contains the error.
    """
    for container in source.iterdir() if source.is_dir() else ():
        for run in runs(container)[-2:]:
            folder = target / container.name / str(run)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "0.log").write_bytes(_end(container / str(run)))


def _end(folder: Path) -> bytes:
    """Return the last records of a log, at most ``_KEPT_BYTES``."""
    data = b""
    for number in reversed(segments(folder)):
        with (folder / f"{number}.log").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - (_KEPT_BYTES - len(data))))
            data = file.read(_KEPT_BYTES - len(data)) + data
        if len(data) >= _KEPT_BYTES:
            return data.partition(b"\n")[2]
    return data


def _cut(data: bytes, lines: int) -> bytes | None:
    """Return the records of the last ``lines`` lines in ``data``, or None if ``data`` has fewer lines."""
    *complete, rest = data.split(b"\n")  # splitlines would split at a progress bar's carriage returns
    records = [record + b"\n" for record in complete] + ([rest] if rest else [])
    ends = [place for place, record in enumerate(records) if _is_full(record)]
    open_end = bool(records) and not _is_full(records[-1])
    needed = lines - open_end
    if lines == 0:
        return b""
    return b"".join(records[ends[len(ends) - needed - 1] + 1 :]) if len(ends) > needed else None


def _is_full(record: bytes) -> bool:
    return record[_STAMP_BYTES + 1 : _STAMP_BYTES + 2] == b"F"


@dataclass
class LogReader:
    """Reads a log that may grow. The query selects the line at which reading begins."""

    folder: Path
    query: Query
    _file: BinaryIO | None = None
    _number: int = -1
    _rest: bytes = b""
    _begun: bool = False
    _since: bytes = field(default=b"")
    _inside: bool = False
    """True if the last record read was a part of a line."""

    def __post_init__(self) -> None:
        if self.query.since is not None:
            self._since = stamp(self.query.since.timestamp())

    def read(self) -> Iterator[bytes]:
        """Yield the text up to the current end of the log in pieces. The next call continues from there."""
        if not self._begun and self.query.tail is not None:
            yield from self._begin_at_tail(self.query.tail)
        self._begun = True
        while True:
            following = self._following()
            # A file grows until the next one exists. Look for the next one first, so that no text is missed.
            if self._file is not None and (data := self._file.read(_READ_BYTES)):
                yield self._rendered(data)
            elif following is None:
                return
            else:
                self._open(following)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _begin_at_tail(self, lines: int) -> Iterator[bytes]:
        *earlier, newest = segments(self.folder) or [-1]
        if newest < 0:
            return
        self._number, self._file = newest, self._path(newest).open("rb")
        data = self._file.read()
        while (found := _cut(data, lines)) is None and earlier:
            try:
                data = self._path(earlier.pop()).read_bytes() + data
            except FileNotFoundError:  # the file was removed meanwhile
                break
        yield self._rendered(data if found is None else found)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    def _following(self) -> int | None:
        """Return the number of the next file, if it exists."""
        return next((each for each in segments(self.folder) if each > self._number), None)

    def _open(self, number: int) -> None:
        self.close()
        self._file, self._number = None, number
        with suppress(FileNotFoundError):  # the file was removed meanwhile; a later one exists
            self._file = self._path(number).open("rb")

    def _rendered(self, data: bytes) -> bytes:
        *records, self._rest = (self._rest + data).split(b"\n")
        timestamps, since = self.query.timestamps, self._since
        pieces: list[bytes] = []
        for record in records:
            if len(record) < _TEXT or record[:_STAMP_BYTES] < since:
                continue
            if timestamps and not self._inside:
                pieces.append(record[: _STAMP_BYTES + 1])
            pieces.append(record[_TEXT:])
            self._inside = not _is_full(record)
            if not self._inside:
                pieces.append(b"\n")
        return b"".join(pieces)
