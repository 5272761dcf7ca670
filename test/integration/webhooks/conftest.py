# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A process that serves the webhooks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> Iterator[tuple[psutil.Process, int]]:
    """The process and its port."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    yield psutil.Process(process.pid), int(process.stdout.readline().split()[0])
    process.kill()
    process.wait()
    process.stdout.close()
