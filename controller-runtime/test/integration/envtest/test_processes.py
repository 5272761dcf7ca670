# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Supervised processes: unexpected ends, logs, shutdown, and which processes outlive the supervisor."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from controller_runtime.envtest import (
    HOST,
    Component,
    ComponentError,
    Probe,
    Supervisor,
    eventually,
    free_ports,
)
from controller_runtime.envtest.process import Identity, PidFiles, command_line

pytestmark = pytest.mark.integration

SHELL = "/bin/sh"


def component(name: str, script: str, ready: Probe | None = None) -> Component:
    return Component(name, [SHELL, "-c", script], ready)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path, tied=True)
    yield made
    made.kill()


async def test_a_death_names_component_code_log_and_last_words(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    failing = component("flaky", "echo starting; echo no luck >&2; exit 3", Probe(f"http://{HOST}:1/healthz"))
    supervisor.start(failing)
    with pytest.raises(ComponentError) as caught:
        await supervisor.wait_ready(failing, timeout=10)
    log = tmp_path / "logs" / "flaky.log"
    assert str(caught.value) == f"flaky exited with code 3; log: {log}\n  | starting\n  | no luck"
    assert caught.value.component == "flaky"


async def test_what_never_gets_ready_says_what_its_endpoint_said(supervisor: Supervisor) -> None:
    (port,) = free_ports(1)
    idle = component("idle", "exec sleep 60", Probe(f"http://{HOST}:{port}/healthz"))
    supervisor.start(idle)
    with pytest.raises(ComponentError, match=r"idle was not ready after 2 s \(http://.*/healthz: .*refused"):
        await supervisor.wait_ready(idle, timeout=2)


async def test_readiness_is_a_200_and_nothing_less(supervisor: Supervisor) -> None:
    (port,) = free_ports(1)
    server = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    asked = 0\n"
        "    def do_GET(self):\n"
        "        H.asked += 1\n"
        "        self.send_response(503 if H.asked < 3 else 200); self.end_headers()\n"
        f"h.HTTPServer(('{HOST}', {port}), H).serve_forever()\n"
    )
    web = Component("web", [sys.executable, "-c", server], Probe(f"http://{HOST}:{port}/readyz"))
    process = supervisor.start(web)
    await supervisor.wait_ready(web, timeout=20)
    assert process.log.read_text().count('" 503') == 2


async def test_a_program_that_cannot_run_is_named(supervisor: Supervisor) -> None:
    with pytest.raises(
        ComponentError, match="ghost cannot be run: /no/such/program is not an executable file"
    ):
        supervisor.start(Component("ghost", ["/no/such/program"]))


async def test_a_death_cancels_who_relies_on_the_component_and_is_what_they_hear(
    supervisor: Supervisor,
) -> None:
    supervisor.start(component("store", "sleep 0.3; exit 7"))
    with pytest.raises(ComponentError, match="store exited with code 7"):
        async with supervisor.watching():
            await anyio.sleep(60)


async def test_an_own_error_passes_through_a_watched_body_unwrapped(supervisor: Supervisor) -> None:
    supervisor.start(component("store", "exec sleep 60"))
    with pytest.raises(LookupError, match="mine"):
        async with supervisor.watching():
            raise LookupError("mine")


async def test_stopping_asks_first_and_kills_what_does_not_listen(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    polite = supervisor.start(
        component("polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    )
    deaf = supervisor.start(component("deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    await eventually(
        lambda: "up" in polite.log.read_text() and "up" in deaf.log.read_text(), reason="both are up"
    )
    assert await supervisor.stop("polite", "never-started", grace=60) == []
    assert await supervisor.stop("deaf", grace=0.5) == ["deaf"]
    assert polite.log.read_text() == "up\nbye\n"
    assert (polite.poll(), deaf.poll()) == (0, -signal.SIGKILL)
    assert not list((tmp_path / "pids").iterdir())
    supervisor.check()


OWNER = """
import sys, time
from pathlib import Path
from controller_runtime.envtest import Component, Supervisor
supervisor = Supervisor(Path(sys.argv[1]), tied=sys.argv[2] == "tied")
print(supervisor.start(Component("child", ["/bin/sleep", "300"])).identity.pid, flush=True)
time.sleep(300)
"""


def killed_owner(directory: Path, tie: str) -> int:
    """Start a supervisor in a separate process, kill it with SIGKILL, and return its component's pid."""
    argv = [sys.executable, "-c", OWNER, str(directory), tie]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        deadline = time.monotonic() + 10
        while command_line(pid) != "/bin/sleep 300" and time.monotonic() < deadline:
            time.sleep(0.01)
        owner.kill()
    return pid


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
async def test_a_tied_component_ends_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    pid = killed_owner(tmp_path, "tied")
    await eventually(lambda: gone(pid), reason="the component has ended")


async def test_an_untied_one_lives_on_and_the_next_run_finds_and_ends_it(tmp_path: Path) -> None:
    pid = killed_owner(tmp_path, "untied")
    following = Supervisor(tmp_path, tied=False)
    assert following.adopt()["child"].poll() is None
    assert following.end_leftovers() == ["child"]
    assert gone(pid)
    assert following.end_leftovers() == []


def test_a_stranger_who_got_the_number_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "pids"
    directory.mkdir()
    with subprocess.Popen(["/bin/sleep", "300"]) as stranger:
        true = Identity.of("component", stranger.pid, ["/bin/sleep", "300"])
        for changed in ({"argv": ["/usr/bin/etcd"]}, {"started": "1"}):
            PidFiles(directory).write(Identity(**{**vars(true), **changed}))
            assert Supervisor(tmp_path, tied=False).end_leftovers() == []
        (directory / "broken.pid").write_text("{")
        assert stranger.poll() is None
        stranger.kill()


def test_free_ports_are_free_different_and_not_ephemeral() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(1024 < port < 32768 for port in ports)


@pytest.mark.parametrize("line", [b"x" * (1 << 17), b"HTTP/1.1 \xff\r\n"])
async def test_another_program_behind_the_port_is_not_ready(line: bytes) -> None:
    async def write(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line)
        writer.close()

    async with await asyncio.start_server(write, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await Probe(f"http://{HOST}:{port}/").answer(None) in (
            "no status line",
            "\N{REPLACEMENT CHARACTER}",
        )
