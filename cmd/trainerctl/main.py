# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``trainerctl``: see ``pkg.cli.trainerctl``."""

import sys

from pkg.cli.trainerctl import main

if __name__ == "__main__":
    sys.exit(main())
