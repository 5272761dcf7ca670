# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Commands in the container of a real process, over a real connection. The client is that of aiohttp."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import anyio
import pytest
from controller_runtime.envtest import HOST, eventually, free_ports
from testkit.local_pods import commands

from trainerctl.localcluster.podlogs import LogServer
from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.execserver import ProcessExec
from trainerctl.localcluster.processes.probes import ProbeTarget

pytestmark = pytest.mark.timeout(120)
PROTOCOL = {"Sec-WebSocket-Protocol": "v4.channel.k8s.io"}


@dataclass
class Server:
    url: str
    session: aiohttp.ClientSession
    folder: Path

    def target(self, *command: str, **flags: int) -> str:
        query = urlencode([*(("command", each) for each in command), *flags.items()])
        return f"{self.url}/exec/team-a/llama-node-0-0/node?{query}"

    @asynccontextmanager
    async def run(self, *command: str, **flags: int) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with self.session.ws_connect(self.target(*command, **flags), headers=PROTOCOL) as socket:
            with anyio.fail_after(30):
                yield socket

    async def left(self, command: str) -> bool:
        """Return True if a process of the container still runs this command."""
        found = await anyio.to_thread.run_sync(commands, lambda each: each.cwd() == str(self.folder))
        return command in found


async def said(socket: aiohttp.ClientWebSocketResponse) -> tuple[dict[int, bytes], dict[str, Any]]:
    """Return what a command has written to each stream, and its status."""
    found: dict[int, bytes] = {}
    async for message in socket:
        if message.data[0] == 3:
            return found, json.loads(message.data[1:])
        found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
    raise AssertionError(f"no status after {found}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Serve commands in the container ``node`` of one pod."""
    plan = process.Plan(
        argv=["sleep", "7914"],
        env={"PATH": os.environ["PATH"], process.IDENTITY: f"{tmp_path}-0", "COLOUR": "green"},
        cwd=str(tmp_path),
        log=str(tmp_path / "log"),
        scratch=str(tmp_path / "scratch"),
        hostname="web",
        mounts=[],
        isolated=not await process.mount_problem(),
    )
    running = await process.start(plan)
    target = ProbeTarget(running.id, plan, "127.0.0.1", [])
    runner: Any = SimpleNamespace(target={"node": target}.get)
    execs = ProcessExec(lambda _namespace, name: runner if name == "llama-node-0-0" else None)

    async def no_log(_target: str) -> AsyncIterator[bytes]:
        yield b"log"

    (port,) = free_ports(1)
    serving = asyncio.create_task(LogServer(no_log, execs.answer).serve(HOST, port, None))
    async with aiohttp.ClientSession() as session:
        url = f"http://{HOST}:{port}"

        async def healthy() -> bool:
            try:
                async with session.get(f"{url}/healthz") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(healthy, reason="the server listens")
        yield Server(url, session, tmp_path)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    await running.close()


async def test_a_command_has_the_environment_of_its_container_and_an_exit_code(server: Server) -> None:
    script = 'echo "$COLOUR $PWD $(hostname)"; echo problem >&2; exit 5'
    async with server.run("sh", "-c", script, output=1, error=1) as socket:
        found, status = await said(socket)

    assert found[1].decode().split()[:2] == ["green", str(server.folder)]
    assert found[2] == b"problem\n"
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"] == {"causes": [{"reason": "ExitCode", "message": "5"}]}


@pytest.mark.parametrize(
    ("command", "code"), [(["true"], ""), (["sh", "-c", "kill -9 $$"], "137"), (["/no/such/program"], "127")]
)
async def test_each_end_of_a_command_is_a_status(server: Server, command: list[str], code: str) -> None:
    async with server.run(*command) as socket:
        found, status = await said(socket)

    assert status["status"] == ("Failure" if code else "Success")
    assert [each["message"] for each in status.get("details", {"causes": []})["causes"]] == [code] * bool(
        code
    )
    assert b"Traceback" not in b"".join(found.values())


async def test_input_of_any_length_reaches_the_command_until_its_end(server: Server) -> None:
    data = os.urandom(300_000)
    async with server.run("cat", input=1, output=1) as socket:
        for size in (0, 1, 125, 126, 65_535, 65_536, 300_000):
            await socket.send_bytes(b"\0" + data[:size]) if size else await socket.ping(b"still there")
        await socket.send_bytes(b"\0")
        found, status = await said(socket)

    sizes = (1, 125, 126, 65_535, 65_536, 300_000)
    assert found[1] == b"".join(data[:size] for size in sizes)
    assert status["status"] == "Success"


async def test_a_terminal_has_a_size_and_passes_signals_on(server: Server) -> None:
    async with server.run("sh", input=1, output=1, tty=1) as socket:
        await socket.send_bytes(b'\4{"Width":120,"Height":40}')
        await socket.send_bytes(b'\4{"Width":-1}')
        await socket.send_bytes(b"\4" + b"[" * 10_000)
        await socket.send_bytes(b"\0stty size; echo $TERM-$CONTAINER_PID; sleep 7915\n")
        seen = b""
        while b"xterm-" not in seen:
            seen += (await socket.receive_bytes())[1:]
        while not await server.left("sleep 7915"):  # noqa: ASYNC110 a process has no event
            await anyio.sleep(0.05)
        await socket.send_bytes(b"\0\x03")
        await socket.send_bytes(b"\0exit 6\n")
        _, status = await said(socket)

    assert b"40 120" in seen
    assert not await server.left("sleep 7915")
    assert status["details"]["causes"][0]["message"] == "6"


async def test_a_command_ends_when_its_client_disconnects(server: Server) -> None:
    async with server.run("sh", "-c", "sleep 7916 & sleep 7916", output=1) as socket:
        await eventually(lambda: server.left("sleep 7916"), timeout=30, reason="the command runs")
        await socket.close()

    async def ended() -> bool:
        return not await server.left("sleep 7916")

    await eventually(ended, timeout=30, reason="the command has ended")


async def test_a_daemon_that_keeps_the_output_does_not_keep_the_client(server: Server) -> None:
    async with server.run("sh", "-c", "sleep 7917 & echo started", output=1) as socket:
        found, status = await said(socket)

    assert found[1] == b"started\n"
    assert status["status"] == "Success"


async def test_a_message_that_is_too_long_ends_the_command(server: Server) -> None:
    async with server.run("sleep", "7918", input=1) as socket:
        await socket.send_bytes(b"\0" * (1 << 21))
        async for _ in socket:
            pass

    async def ended() -> bool:
        return not await server.left("sleep 7918")

    await eventually(ended, timeout=30, reason="the command has ended")


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/exec/team-a/other/node?command=ls", {"Upgrade": "websocket", **PROTOCOL}, 404),
        ("/exec/team-a/llama-node-0-0/other?command=ls", {"Upgrade": "websocket", **PROTOCOL}, 404),
        ("/exec/team-a/llama-node-0-0?command=ls", {}, 404),
        ("/exec/team-a/llama-node-0-0/node", {}, 400),
        ("/exec/team-a/llama-node-0-0/node?command=", {}, 400),
        ("/exec/team-a/llama-node-0-0/node?command=a%00b", {}, 400),
        ("/exec/team-a/llama-node-0-0/node?command=ls", {}, 400),
        ("/exec/team-a/llama-node-0-0/node?command=ls", {"Upgrade": "SPDY/3.1"}, 400),
        ("/exec/team-a/llama-node-0-0/node?command=ls", {"Upgrade": "websocket"}, 400),
    ],
)
async def test_other_requests_are_refused(
    server: Server, path: str, headers: dict[str, str], code: int
) -> None:
    async with server.session.get(server.url + path, headers=headers) as response:
        assert response.status == code, await response.text()


async def test_a_client_for_spdy_reads_which_command_works(server: Server) -> None:
    async with server.session.post(server.target("ls"), headers={"Upgrade": "SPDY/3.1"}) as response:
        assert (response.status, "use trainerctl exec" in await response.text()) == (400, True)
