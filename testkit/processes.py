# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Our manager as a process: the files that it starts with, and what it answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import yaml
from controller_runtime.envtest import HOST, free_ports
from controller_runtime.rest import (
    Anonymous,
    Config,
    Request,
    StaticToken,
    TLSConfig,
    Transport,
    TransportError,
)
from ctrl_testkit.processes import Process as Process
from ctrl_testkit.processes import running as running

ROOT: Final = Path(__file__).resolve().parents[1]
MANAGER: Final = (sys.executable, "-m", "pkg.app")


def manager_flags(
    folder: Path, kubeconfig: Mapping[str, Any], *, name: str = "manager", **configuration: Any
) -> list[str]:
    """Write a kubeconfig and a Configuration into a folder; return the flags that name them.

    By default the manager serves neither metrics nor probes, its webhooks have a free port, and it sends as many
    requests a second as it can.
    """
    paths = folder / f"{name}.yaml", folder / f"{name}.kubeconfig"
    said = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "clientConnection": {"qps": -1},
        "webhook": {"host": HOST, "port": free_ports(1)[0]},
        **configuration,
    }
    for path, content in zip(paths, (said, dict(kubeconfig)), strict=True):
        path.write_text(yaml.safe_dump(content))
        path.chmod(0o600)
    return [f"--config={paths[0]}", f"--kubeconfig={paths[1]}"]


def start_manager(flags: Sequence[str], log: Path) -> Process:
    return Process([*MANAGER, *flags], log, cwd=ROOT)


@contextmanager
def running_manager(flags: Sequence[str], log: Path) -> Iterator[Process]:
    """Run our manager during the block; it must end with code 0 at SIGTERM, and not earlier."""
    with running([*MANAGER, *flags], log, cwd=ROOT) as process:
        yield process


async def answer(url: str, token: str = "") -> tuple[int, str]:
    """Return status and body of the answer to a GET, whoever signed the server's certificate; 0 if nothing listens."""
    scheme, netloc, path, query, _ = urlsplit(url)
    config = Config(
        host=f"{scheme}://{netloc}",
        tls=TLSConfig(verify=False) if scheme == "https" else None,
        credentials=StaticToken(token) if token else Anonymous(),
    )
    request = Request("GET", path, tuple(parse_qsl(query, keep_blank_values=True)), timeout=15)
    async with Transport(config) as transport:
        try:
            response = await transport.send(request)
            return response.status, (await response.read()).decode()
        except TransportError:
            return 0, ""


async def is_ready(port: int) -> bool:
    """Return True if a manager that serves its probes at this port is ready."""
    return (await answer(f"http://{HOST}:{port}/readyz"))[0] == 200
