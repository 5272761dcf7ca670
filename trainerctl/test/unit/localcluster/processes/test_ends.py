# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The file with the end of a container: containers without mounts of their own can overwrite it."""

from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.shim import supervise


def test_the_end_is_read_as_it_was_written(tmp_path: Path) -> None:
    supervise._write_end(str(tmp_path), code=3, began=1.0, ended=2.0)
    found = process.read_end(tmp_path)
    assert found is not None
    assert (found.exit_code, found.reason) == (3, "Error")
    assert (found.started_at, found.finished_at) == ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[" * 4000, id="deep"),
        pytest.param("[]", id="another type"),
        pytest.param("{}", id="without fields"),
        pytest.param('{"code": 1, "began": 1e300, "ended": 2}', id="a time beyond all years"),
        pytest.param('{"code": "1", "began": 1, "ended": 2}', id="a code that is not a number"),
        pytest.param('{"code": 1, "began": 1, "ended": 2, "x": "' + "x" * 5000 + '"}', id="too long"),
    ],
)
def test_an_end_that_is_not_readable_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "end.json").write_text(text)
    assert process.read_end(tmp_path) is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"x\n", id="not JSON"),
        pytest.param(b"[]\n", id="another type"),
        pytest.param(b"[" * 100_000 + b"\n", id="deep"),
        pytest.param(b"x" * (2 << 20), id="too long"),
    ],
)
async def test_a_report_that_is_not_readable_is_empty(line: bytes) -> None:
    sender, receiver = anyio.create_memory_object_stream[bytes](1)
    async with sender, receiver:
        if line:
            await sender.send(line)
        await sender.aclose()
        assert await process._report(BufferedByteReceiveStream(receiver)) == {}
