# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Completion in shells, with the names of TrainJobs from an API server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from controller_runtime.envtest import kubeconfig

import trainerctl

pytestmark = pytest.mark.real_time

HOME = Path(trainerctl.__file__).parents[1]
GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
JOBS = {"team-a": ("llama", "lima", "mistral"), "default": ("other",)}


class Server(BaseHTTPRequestHandler):
    """Serves discovery, and the TrainJobs of two namespaces."""

    def do_GET(self) -> None:  # the name that http.server looks for
        path, answer = self.path.partition("?")[0], dict[str, object]()
        if path == GROUP:
            served = {"name": "trainjobs", "kind": "TrainJob", "namespaced": True, "verbs": ["list"]}
            answer = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": GROUP[6:],
                "resources": [served],
            }
        else:
            names = JOBS[path.removeprefix(f"{GROUP}/namespaces/").partition("/")[0]]
            of = {"apiVersion": GROUP[6:], "kind": "TrainJob"}
            answer = {
                "apiVersion": GROUP[6:], "kind": "TrainJobList", "metadata": {"resourceVersion": "1"},
                "items": [{**of, "metadata": {"name": each}} for each in names],
            }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with the program, the bash script, and a kubeconfig of the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        config = kubeconfig(f"http://127.0.0.1:{server.server_port}", user="a", namespace="default")
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        program = tmp_path / "trainerctl"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m trainerctl "$@"\n')
        program.chmod(0o755)
        yield tmp_path
        server.shutdown()
        thread.join()


def completed(folder: Path, line: str) -> set[str]:
    code = (
        f'eval "$(trainerctl completion bash)"; COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; '
        '_python_argcomplete trainerctl || true; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-ec", code],
        env={
            "PATH": f"{folder}:/usr/bin:/bin", "KUBECONFIG": str(folder / "kubeconfig"),
            "PYTHONPATH": os.pathsep.join((str(HOME), str(HOME.parent))),
        },
        cwd=folder, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trainerctl des", {"describe"}),
        ("trainerctl cluster ", {"up", "down", "stop", "start", "logs", "status", "list", "build"}),
        ("trainerctl get -o ", {"table", "json", "yaml", "name"}),
        ("trainerctl wait llama --for f", {"failed", "finished"}),
        ("trainerctl why -n team-a ", {"llama", "lima", "mistral"}),
        ("trainerctl why ", {"other"}),
        ("trainerctl suspend -n team-a llama l", {"llama", "lima"}),
        ("trainerctl get --kubeconfig missing ", set()),
        ("trainerctl logs --fol", {"--follow"}),
        ("trainerctl completion f", {"fish"}),
        ("trainerctl why -n ", set()),
        ("trainerctl render -f kube", {"kubeconfig"}),
    ],
)
def test_bash_completes_commands_flags_values_and_names(folder: Path, line: str, expected: set[str]) -> None:
    assert completed(folder, line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_its_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert trainerctl.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "trainerctl" in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    written = tmp_path / "script"
    written.write_text(script)

    subprocess.run([program, "-n", str(written)], check=True)
