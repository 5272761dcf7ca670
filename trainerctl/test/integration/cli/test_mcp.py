# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl mcp`` as a process, asked by the client of the protocol's SDK."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import pkg
import pytest
from controller_runtime.envtest import kubeconfig

from trainerctl.cli import mcp as served

sdk = pytest.importorskip("mcp", reason="the extra mcp is not installed")

JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: llama, namespace: team-a}
spec: {runtimeRef: {name: torch-distributed}, trainer: {numNodes: 2}}
"""


@asynccontextmanager
async def session(errors: TextIO, *flags: str) -> AsyncIterator[Any]:
    home = Path(pkg.__file__).parent.parent
    path = os.pathsep.join(map(str, (home / "trainerctl", home, home / "controller-runtime")))
    parameters = sdk.StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "trainerctl", "mcp", *flags],
        env={**os.environ, "PYTHONPATH": path},
    )
    async with sdk.stdio_client(parameters, errors) as streams, sdk.ClientSession(*streams) as client:
        await client.initialize()
        yield client


def text_of(answer: Any) -> str:
    (content,) = answer.content
    assert isinstance(content.text, str)
    return content.text


async def test_the_tools_only_read_and_check_manifests_as_the_commands_do(tmp_path: Path) -> None:
    config, said = tmp_path / "config", tmp_path / "stderr"
    config.write_text(json.dumps(kubeconfig("http://127.0.0.1:1", user="none", namespace="team-a")))
    with said.open("w") as errors:
        async with session(errors, f"--kubeconfig={config}") as client:
            tools = (await client.list_tools()).tools
            assert [each.name for each in tools] == ["why", "get", "logs", "validate", "render", "diff"]
            assert all(each.annotations.readOnlyHint and each.description for each in tools)

            answer = await client.call_tool("validate", {"manifests": JOB.replace("numNodes", "numNode")})
            assert not answer.isError
            assert "did you mean numNodes?" in text_of(answer)
            answer = await client.call_tool("render", {"manifests": JOB})
            assert "kind: JobSet" in text_of(answer)
            answer = await client.call_tool("render", {"manifests": "not: [a, manifest"})
            assert "trainerctl: " in text_of(answer)

            answer = await client.call_tool("why", {"name": "llama"})
            assert "127.0.0.1:1" in text_of(answer)
            answer = await client.call_tool("why", {"name": "--help"})
            assert answer.isError
            answer = await client.call_tool("logs", {"name": "llama", "tail": 5000})
            assert answer.isError
            assert "1000" in text_of(answer)
    assert said.read_text() == ""


async def test_long_answers_are_cut_and_slow_commands_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_LONGEST", 10)
    assert await served._run(["help"], None) == (0, "usage: tra\n… (cut off)")

    monkeypatch.setattr(served, "_SECONDS", 0.0)
    assert (await served._run(["help"], None))[0] is None
