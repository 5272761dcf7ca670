# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects of the largest size that a server stores, and larger ones that a proxy makes of small ones."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, open_crd
from controller_runtime.machinery import GVK, Unstructured, unstructured

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports a process's peak memory"),
]
READER = Path(__file__).with_name("reader.py")
ROOT = Path(__file__).parents[2]
MIB = 1 << 20
LARGEST = int(1.4 * MIB)
LINE = "x" * 1000
MARK = '"to be made large"'
GROUP = "fault.example.org"
LARGE = unstructured(GVK(GROUP, "v1", "Large"))
CRD = open_crd(LARGE.gvk)
Next = Callable[[str], Awaitable[dict[str, Any]]]


def large(namespace: str, name: str, lines: list[str]) -> Unstructured:
    return LARGE.from_dict({"metadata": {"namespace": namespace, "name": name}, "spec": {"lines": lines}})


@asynccontextmanager
async def reader(server: str, namespace: str, log: Path) -> AsyncIterator[Next]:
    """Run ``reader.py``; the yielded function returns its next line about the object of a name."""
    with log.open("wb") as errors:
        process = await anyio.open_process(
            [sys.executable, str(READER), server, namespace],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            stderr=errors,
        )
    assert process.stdout is not None
    pieces = process.stdout

    async def lines() -> AsyncIterator[dict[str, Any]]:
        pending = b""
        async for piece in pieces:
            *whole, pending = (pending + piece).split(b"\n")
            for line in whole:
                if line.startswith(b'{"name"'):  # other lines are of the log
                    yield json.loads(line)

    said = lines()

    async def following(name: str) -> dict[str, Any]:
        with anyio.fail_after(30):
            async for each in said:
                if each["name"] == name:
                    return each
        raise AssertionError(f"reader.py printed no line about {name}; its log is {log}")

    async with process:
        try:
            yield following
        finally:
            process.kill()


async def test_large_objects_are_read_in_little_memory(
    control_plane: Environment, client: LiveClient, namespace: str, proxy: Any, figure: Any, tmp_path: Path
) -> None:
    await control_plane.install_crds(CRD)
    await client.create(large(namespace, "small", [LINE]))
    stored = LARGEST // (len(LINE) + 3)
    sent = 8 * MIB // (len(LINE) + 3)
    made_large = ",".join([f'"{LINE}"'] * sent).encode()
    proxy.rewrite = lambda piece: piece.replace(MARK.encode(), made_large)

    async with reader(proxy.url, namespace, tmp_path / "reader.log") as following:
        assert (await following("small"))["held"] == len(LINE)

        async def shows(what: str, name: str, lines: int, size: int) -> None:
            said = await following(name)
            assert said["held"] == lines * len(LINE)
            figure(f"{what}: peak memory", said["peak"] / size, at_most=6, unit="times the object")

        first = await client.create(large(namespace, "first", [LINE] * stored))
        await shows("1.4 MiB object, new", "first", stored, LARGEST)
        first["spec"]["lines"][0] = "y" * len(LINE)
        await client.update(first)
        await shows("1.4 MiB object, changed", "first", stored, LARGEST)
        await client.create(large(namespace, "second", [LINE] * stored))
        await shows("1.4 MiB object, another", "second", stored, LARGEST)
        line = await client.create(large(namespace, "line", [json.loads(MARK)]))
        await shows("8 MiB watch line, new", "line", sent, 8 * MIB)
        line.metadata.labels = {"changed": "yes"}
        await client.update(line)
        await shows("8 MiB watch line, changed", "line", sent, 8 * MIB)
        await client.create(large(namespace, "last", [LINE]))
        assert (await following("last"))["held"] == len(LINE)

    async with reader(proxy.url, namespace, tmp_path / "again.log") as following:
        for name, lines in (("first", stored), ("line", sent)):
            assert (await following(name))["held"] == lines * len(LINE)
