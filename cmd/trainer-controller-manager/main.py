# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``trainer-controller-manager``: see ``pkg.app``."""

import sys

from pkg.app import main

if __name__ == "__main__":
    sys.exit(main())
