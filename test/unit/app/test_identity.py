# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A program's requests have the same user agent, wherever it is started from."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time
REPOSITORY = Path(__file__).parents[3]
MAIN = str(REPOSITORY / "cmd/trainer-controller-manager/main.py")


class Server(HTTPServer):
    """Refuses all clients and records them."""

    agents: list[str]


class Refusal(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.agents.append(self.headers["User-Agent"])
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Refusal)
    made.agents = []
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("trainer-controller-manager", ["-m", "pkg.app"]),
        ("trainer-controller-manager", [MAIN]),
        ("trainer-controller-manager", ["-m", "trainerctl", "run"]),
        ("trainer-controller-manager", ["-c", "from pkg.app import main; main()"]),
        ("podgrouper", ["-m", "pkg.app.podgrouper"]),
        ("podgrouper", [str(REPOSITORY / "cmd/podgrouper/main.py")]),
    ],
    ids=["module", "script", "trainerctl", "code", "podgrouper module", "podgrouper script"],
)
def test_the_user_agent_is_the_programs_wherever_it_is_started_from(
    server: Server, tmp_path: Path, program: str, command: list[str]
) -> None:
    cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
        })
    )  # fmt: skip
    ran = subprocess.run(
        [sys.executable, *command, f"--kubeconfig={kubeconfig}"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "does not accept the credentials" in ran.stderr
    # The API server uses the part before the slash as the field manager of a plain write.
    assert {agent.partition("/")[0] for agent in server.agents} == {program}
    assert not any(agent.startswith(f"{program}/unknown") for agent in server.agents)
