# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The folder of the checkout, and the environment in which child processes find it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[4]
_SUITE: Final = Path(__file__).resolve().parents[1]


def child_environment() -> dict[str, str]:
    """Return the environment in which a child process finds this suite and the product."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            map(str, (ROOT, _SUITE, ROOT / "controller-runtime", ROOT / "trainerctl"))
        ),
    }
