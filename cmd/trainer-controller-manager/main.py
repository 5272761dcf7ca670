# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``trainer-controller-manager``: see ``pkg.cli.manager``."""

import sys

from pkg.cli.manager import main

if __name__ == "__main__":
    sys.exit(main())
