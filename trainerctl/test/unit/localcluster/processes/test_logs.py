# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Logs of containers that run as local processes, as they are written and read."""

import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from trainerctl.localcluster.podlogs import Query
from trainerctl.localcluster.processes.logs import LogReader, save_ends, tail
from trainerctl.localcluster.processes.shim.output import LogWriter


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def _read(folder: Path, query: Query | None = None) -> bytes:
    with closing(LogReader(folder, query or Query())) as reader:
        return b"".join(reader.read())


def test_text_is_read_as_it_was_written(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path))
    text = b"one\n\ntwo\r\n\xff\n" + b"x" * 50_000 + b"\nthree"
    for start in range(0, len(text), 7_001):
        writer.write(text[start : start + 7_001])
    writer.flush()
    assert _read(tmp_path) == text


def test_a_line_without_an_end_is_read_after_a_flush_and_continues(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), now=_Clock())
    reader = LogReader(tmp_path, Query(timestamps=True))
    writer.write(b"10%")
    assert b"".join(reader.read()) == b""
    writer.flush()
    assert b"".join(reader.read()) == b"2001-09-09T01:46:41.000000Z 10%"
    writer.write(b" 20%\ndone\n")
    assert b"".join(reader.read()) == b" 20%\n2001-09-09T01:46:42.000000Z done\n"
    reader.close()


@pytest.mark.parametrize(
    ("lines", "want"), [(0, b""), (1, b"5\n"), (3, b"3\n4\n5\n"), (99, b"0\n1\n2\n3\n4\n5\n")]
)
def test_the_tail_spans_files(tmp_path: Path, lines: int, want: bytes) -> None:
    writer = LogWriter(str(tmp_path), segment_bytes=60, segments=9)
    for number in range(6):
        writer.write(b"%d\n" % number)
    assert len(list(tmp_path.iterdir())) > 2
    assert _read(tmp_path, Query(tail=lines)) == want
    assert tail(tmp_path, lines) == want


def test_the_tail_has_no_gap_where_a_file_was_removed_meanwhile(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), segment_bytes=60, segments=9)
    for number in range(6):
        writer.write(b"%d\n" % number)
    *_, removed, newest = sorted(tmp_path.iterdir())
    removed.unlink()
    removed.symlink_to("nowhere")  # it is listed, but cannot be opened
    assert _read(tmp_path, Query(tail=99)) == _read_file(newest)


def _read_file(path: Path) -> bytes:
    return b"".join(line[30:] + b"\n" for line in path.read_bytes().splitlines())


def test_the_tail_is_read_once_and_then_what_is_written(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path))
    writer.write(b"one\ntwo\n")
    with closing(LogReader(tmp_path, Query(tail=1))) as reader:
        assert b"".join(reader.read()) == b"two\n"
        writer.write(b"three\n")
        assert b"".join(reader.read()) == b"three\n"


def test_an_unfinished_line_counts_in_the_tail(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path))
    writer.write(b"one\ntwo\nthr")
    writer.flush()
    assert _read(tmp_path, Query(tail=2)) == b"two\nthr"


@pytest.mark.parametrize(
    ("lines", "want"),
    [(1, b"step 2: 10%\r50%\r100%\n"), (2, b"step 1: 10%\r50%\r100%\nstep 2: 10%\r50%\r100%\n")],
)
def test_carriage_returns_of_a_progress_bar_end_no_line_of_the_tail(
    tmp_path: Path, lines: int, want: bytes
) -> None:
    writer = LogWriter(str(tmp_path))
    for step in range(3):
        writer.write(b"step %d: 10%%\r" % step)
        writer.flush()
        writer.write(b"50%\r100%\n")
    assert _read(tmp_path, Query(tail=lines)) == want


def test_old_files_are_removed_and_a_slow_reader_skips_them(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), segment_bytes=1000, segments=3)
    reader = LogReader(tmp_path, Query())
    writer.write(b"first\n")
    assert b"".join(reader.read()) == b"first\n"
    for number in range(1000):
        writer.write(b"%04d\n" % number)
    assert len(list(tmp_path.iterdir())) == 3
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
    found = b"".join(reader.read())
    assert found.endswith(b"0998\n0999\n")
    assert found.count(b"\n") < 1000
    reader.close()


def test_lines_before_a_time_are_left_out(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), now=_Clock())
    for number in range(4):
        writer.write(b"%d\n" % number)
    assert _read(tmp_path, Query(since=datetime.fromtimestamp(1_000_000_003, UTC))) == b"2\n3\n"


def test_output_is_dropped_when_the_disk_is_full(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path))
    writer._file = os.open("/dev/full", os.O_WRONLY)
    writer.write(b"lost\n")
    writer.write(b"lost too\n")


class _Late:
    """A file that grows after its end was read."""

    def __init__(self, file: BinaryIO, grow: Callable[[], None]) -> None:
        self._file = file
        self._grow: list[Callable[[], None]] = [grow]

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if not data and self._grow:
            self._grow.pop()()
        return data

    def close(self) -> None:
        self._file.close()


def test_the_end_of_a_file_that_is_written_before_the_next_file_is_made_is_read(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), segment_bytes=70)
    reader = LogReader(tmp_path, Query())
    writer.write(b"0\n")
    assert b"".join(reader.read()) == b"0\n"

    def grow() -> None:
        for number in range(1, 4):
            writer.write(b"%d\n" % number)

    late: Any = _Late(reader._file or BytesIO(), grow)
    reader._file = late
    assert b"".join([*reader.read(), *reader.read()]) == b"1\n2\n3\n"
    reader.close()


def test_output_is_dropped_when_no_file_can_be_made(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    writer = LogWriter(str(folder), segment_bytes=60)
    writer.write(b"kept\n")
    folder.rename(tmp_path / "away")
    writer.write(b"dropped, because the file would be too long with it\n")
    (tmp_path / "away").rename(folder)
    writer.write(b"kept too, in the next file, because it is long again\n")
    assert _read(folder) == b"kept\nkept too, in the next file, because it is long again\n"


def test_the_ends_of_the_last_two_runs_are_saved(tmp_path: Path) -> None:
    line = b"2026-01-01T00:00:00.000000Z F step\n"
    for run in range(3):
        folder = tmp_path / "logs" / "node" / str(run)
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(line * 10_000)
        (folder / "1.log").write_bytes(line.replace(b"step", b"run%d" % run))

    save_ends(tmp_path / "logs", tmp_path / "saved")

    saved = tmp_path / "saved" / "node"
    assert sorted(path.name for path in saved.iterdir()) == ["1", "2"]
    assert tail(saved / "2", 2) == b"step\nrun2\n"
    assert _read(saved / "1").startswith(b"step\n")
    assert 200_000 < (saved / "1" / "0.log").stat().st_size <= 1 << 18
