# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m controller_runtime``: see :mod:`controller_runtime.tools`."""

import sys

from controller_runtime.tools.command import main

if __name__ == "__main__":
    sys.exit(main())
