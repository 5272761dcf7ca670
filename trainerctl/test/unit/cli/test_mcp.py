# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl mcp``: each tool runs one command that only reads, in the scope of the server."""

from typing import Any

import pytest

from trainerctl.cli import mcp as served
from trainerctl.cli import parser
from trainerctl.cli.terminal import Console

fastmcp = pytest.importorskip("mcp.server.fastmcp", reason="the extra mcp is not installed")


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("why", {"name": "llama"}, ["why", "--namespace=ml", "--context=c", "--output=json", "--", "llama"]),
        ("get", {}, ["get", "--namespace=ml", "--context=c"]),
        ("get", {"name": "llama", "namespace": "b"}, ["get", "--namespace=b", "--context=c", "--", "llama"]),
        ("logs", {"name": "a", "rank": 0, "step": "node", "previous": True, "tail": 5},
         ["logs", "--namespace=ml", "--context=c", "--tail=5", "--rank=0", "--step=node", "--previous", "--", "a"]),
        ("diff", {"manifests": "x"}, ["diff", "--namespace=ml", "--context=c", "--filename=-"]),
        ("validate", {"manifests": "x"}, ["validate", "--output=json", "--filename=-"]),
    ],
)  # fmt: skip
async def test_each_tool_runs_one_command_in_the_scope_of_the_server(
    monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any], line: list[str]
) -> None:
    asked: list[tuple[list[str], str | None]] = []
    found: list[Any] = []

    async def run(words: list[str], manifests: str | None) -> tuple[int, str]:
        asked.append((list(words), manifests))
        return 1, "answer"

    async def stdio(server: Any) -> None:
        found.append(await server.call_tool(tool, arguments))

    monkeypatch.setattr(served, "_run", run)
    monkeypatch.setattr(fastmcp.FastMCP, "run_stdio_async", stdio)
    flags = parser.parse(["mcp", "-n", "ml", "--context", "c"])

    assert await served.mcp_command(flags, Console(), Console()) == 0
    assert asked == [(line, arguments.get("manifests"))]
    assert "answer" in str(found[0])
