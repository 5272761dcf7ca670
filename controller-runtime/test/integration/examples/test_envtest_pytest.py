# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example of a test suite on controller_runtime.envtest passes without any other package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]


def test_the_suite_passes_in_a_project_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "labeller"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples/envtest_pytest", project, ignore=ignored)
    # That project has no pytest-asyncio; anyio's plugin is a dependency of controller_runtime.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-W", "error", "-v"]
    done = subprocess.run(
        command,
        cwd=project,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "configfile: pyproject.toml" in done.stdout
