# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl mcp``: lets an assistant ask what the reading commands know, over the Model Context Protocol.

Each tool runs one command of ``trainerctl`` as a process of its own, because standard input and output belong to the
protocol. No tool changes an object, and a tool cannot leave the cluster and the namespaces that its user may read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import anyio
from pydantic import Field

from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputError

_SECONDS: Final = 60.0
_LONGEST: Final = 100_000
"""The end of a longer answer is cut off, because the assistant's context is limited."""
_MOST_LINES: Final = 1000
_ABOUT: Final = (
    "Answers questions about Kubeflow TrainJobs in a Kubernetes cluster, and checks manifests of TrainJobs and "
    "runtimes. All tools only read. To find out why a TrainJob does not run or has failed, call why first."
)

Name = Annotated[str, Field(description="name of the TrainJob")]
Namespace = Annotated[str, Field(description="namespace; empty: the one of the kubeconfig's context")]
Manifests = Annotated[str, Field(description="YAML documents: TrainJobs and, if needed, their runtimes")]
Runtimes = Annotated[str, Field(description="YAML documents of changed runtimes")]
Rank = Annotated[int | None, Field(ge=0, description="default: the rank that failed first, or 0")]
Step = Annotated[str, Field(description="replicated job; empty: the step that trains")]
Previous = Annotated[bool, Field(description="the previous run of the container")]
Tail = Annotated[int, Field(ge=1, le=_MOST_LINES, description="number of last lines")]


async def mcp_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Serve the tools on standard input and output until the client closes them.

    Raises:
        InputError: the extra is not installed.
    """
    try:
        from mcp.server.fastmcp import FastMCP  # slow to load, and an extra
        from mcp.server.fastmcp.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ModuleNotFoundError as error:
        raise InputError(f"mcp needs the extra trainerctl[mcp] ({error.name} is not installed)") from error
    server = FastMCP("trainerctl", _ABOUT, log_level="ERROR")
    tool = server.tool(
        annotations=ToolAnnotations(readOnlyHint=True, idempotentHint=True), structured_output=False
    )

    async def ask(*words: str, namespace: str = "", manifests: str | None = None) -> str:
        scope = {
            "--namespace": namespace or arguments.namespace,
            "--kubeconfig": arguments.kubeconfig,
            "--context": arguments.context,
        }
        flags = [f"{flag}={value}" for flag, value in scope.items() if value]
        code, answer = await _run([*words[:1], *flags, *words[1:]], manifests)
        if code in (None, 2):
            raise ToolError(answer)
        return answer

    async def why(name: Name, namespace: Namespace = "") -> str:
        """Explain why a TrainJob does not run, waits or has failed: the cause, its evidence and the remedy, as JSON.

        exitCode is 0 if the TrainJob runs, starts or is complete, 1 if something is wrong, and 3 if it waits.
        """
        return await ask("why", "--output=json", "--", name, namespace=namespace)

    async def get(name: Name = "", namespace: Namespace = "") -> str:
        """List the TrainJobs of a namespace, or show one with its JobSet, Jobs and pods: states, ages and progress."""
        return await ask("get", *(["--", name] if name else []), namespace=namespace)

    async def logs(
        name: Name,
        namespace: Namespace = "",
        rank: Rank = None,
        step: Step = "",
        previous: Previous = False,
        tail: Tail = 100,
    ) -> str:
        """Print the end of the log of one pod of a TrainJob."""
        flags = [f"--tail={tail}"]
        flags += [f"--rank={rank}"] if rank is not None else []
        flags += [f"--step={step}"] if step else []
        flags += ["--previous"] if previous else []
        return await ask("logs", *flags, "--", name, namespace=namespace)

    async def validate(manifests: Manifests) -> str:
        """Say what an API server would answer to TrainJobs and runtimes, and because of which fields no pod starts."""
        answered = await _run(["validate", "--output=json", "--filename=-"], manifests)
        return answered[1]

    async def render(manifests: Manifests) -> str:
        """Print the objects that the manager would create for TrainJobs, as YAML. Missing runtimes are the shipped."""
        answered = await _run(["render", "--filename=-"], manifests)
        return answered[1]

    async def diff(manifests: Runtimes, namespace: Namespace = "") -> str:
        """Show which TrainJobs of the cluster a changed runtime affects, and how."""
        return await ask("diff", "--filename=-", namespace=namespace, manifests=manifests)

    for each in (why, get, logs, validate, render, diff):
        tool(each)
    await server.run_stdio_async()
    return 0


async def _run(words: Sequence[str], manifests: str | None) -> tuple[int | None, str]:
    """Run a command. Return its exit code, or None if it took too long, and its output, the notes at the end."""
    argv = [sys.executable, "-P", "-m", "trainerctl", *words]
    with anyio.move_on_after(_SECONDS):
        ended = await anyio.run_process(argv, input=(manifests or "").encode(), check=False)
        text = "\n".join(
            each.decode(errors="replace").strip() for each in (ended.stdout, ended.stderr) if each.strip()
        )
        return ended.returncode, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n… (cut off)"
    return None, f"trainerctl {words[0]} has not ended after {_SECONDS:g} s"
