# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program ``podgrouper``: see ``pkg.app.podgrouper``."""

import sys

from pkg.app.podgrouper import main

if __name__ == "__main__":
    sys.exit(main())
