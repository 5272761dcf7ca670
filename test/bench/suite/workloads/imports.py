# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Modules, CPU and memory that the manager's program takes before it does anything, beside kubernetes-asyncio's."""

from __future__ import annotations

from typing import Final

from harness import figures, measure

_PROGRAMS: Final = {
    "manager": "from pkg.app import program; import controller_runtime.rest.kubeconfig",
    "kubernetes-asyncio": "import kubernetes_asyncio",
}
_PROBE: Final = """
import json, psutil, sys, time
process = psutil.Process()
began, before, known = time.process_time(), process.memory_info().rss, len(sys.modules)
{program}
print(json.dumps({{
    "cpu": (time.process_time() - began) * 1000,
    "rss": (process.memory_info().rss - before) / 1024 / 1024,
    "modules": len(sys.modules) - known,
    "generated": sum(name.startswith("kubernetes_asyncio.client.models") for name in sys.modules),
}}))
"""


async def run(rounds: int) -> list[figures.Figure]:
    """Measure in new processes for each round, and return the figures."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in _PROGRAMS}
    for _ in range(rounds):
        for name, program in _PROGRAMS.items():
            seen[name].append(measure.in_child("-c", _PROBE.format(program=program)))
    return [
        figures.figure(
            f"imports.{what}",
            unit,
            [each[what] for each in seen["manager"]],
            alternative=("import kubernetes_asyncio", [each[what] for each in seen["kubernetes-asyncio"]]),
            target=target,
        )
        for what, unit, target in (
            ("generated", "modules", "≤ 0"),
            ("modules", "modules", ""),
            ("cpu", "CPU ms", ""),
            ("rss", "MiB", ""),
        )
    ]
