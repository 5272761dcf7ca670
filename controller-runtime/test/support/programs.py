# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Running programs in tests."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def output_of(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float, code: int = 0
) -> str:
    """Run ``command``, which must exit with ``code``; return its standard output, or its errors if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr
