# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the project and alternatives in the same run: see ``suite/harness/command.py`` or ``--help``."""

import sys
from pathlib import Path

if (
    __name__ == "__main__"
):  # a script imports the suite beside this file, and the product from two folders above
    here = Path(__file__).resolve().parent
    root = here.parents[1]
    sys.path[:0] = map(str, (here / "suite", root, root / "controller-runtime", root / "trainerctl"))

from harness import command

if __name__ == "__main__":
    sys.exit(command.main())
