# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Imported before the rest of the program: has structlog loaded without rich, which it would find installed.

rich prints tracebacks for people at a terminal, and trainerctl needs it. A manager writes JSON, and would pay
45 ms of its start and 4 MiB for 100 modules it never calls.
"""

from __future__ import annotations

import importlib
import sys


def without(name: str, load: str) -> None:
    """Import ``load`` as if ``name`` were not installed, unless one of them is loaded already."""
    if name in sys.modules or load in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # the import system's own mark for what is not there
    try:
        importlib.import_module(load)
    finally:
        del sys.modules[name]


without("rich", "structlog")
