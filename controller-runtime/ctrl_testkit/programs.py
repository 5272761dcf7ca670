# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The programs that tests need are built before the first test: ``python -m ctrl_testkit.programs``.

A ``conftest.py`` imports the two hooks. No test then builds a program: if one is missing, the fixture that needs it
fails with one line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Sequence

import anyio
import pytest

from controller_runtime.envtest import (
    DEFAULT_RELEASE,
    ETCD,
    Binaries,
    PlainProgress,
    Tool,
    ToolError,
    kube_tool,
)

TOOLS = (ETCD, kube_tool("kube-apiserver", os.environ.get("ENVTEST_K8S_VERSION", DEFAULT_RELEASE)))


def pytest_configure() -> None:
    """Let no test build a program."""
    os.environ["ENVTEST_BUILD"] = "never"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a missing program in one line, without a traceback."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, ToolError):
        report.longrepr = f"{call.excinfo.value}; `make test-programs` or `make slow-programs` prepares it"
    return report


def say(text: str) -> None:
    """Write a line to stderr at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def build(tools: Sequence[Tool], took: str) -> None:
    """Build the missing programs, and say before that how long it takes.

    Raises:
        ToolError: a program cannot be built.
    """
    if missing := Binaries().missing(*tools):
        names = ", ".join(f"{tool.name} {tool.group.version}" for tool in missing)
        say(f"Programs to build from source, once, before the first test: {names}.")
        say(f"{len(missing)} of {len(tools)} are missing; to build all takes {took} on two quiet cores.")
        began = time.monotonic()
        while missing:
            wave = {
                tool.name: tool for tool in reversed(missing)
            }  # two releases of a program have the same name
            anyio.run(Binaries(progress=PlainProgress(sys.stderr)).locate, *reversed(wave.values()))
            missing = [tool for tool in missing if tool not in wave.values()]
        say(f"The programs were built in {time.monotonic() - began:.0f} s. Later runs build nothing.")


def main() -> int:
    """Build the programs for the library's tests."""
    try:
        build(TOOLS, "three minutes")
    except ToolError as error:
        say(f"programs: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
