# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m trainerctl``."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
