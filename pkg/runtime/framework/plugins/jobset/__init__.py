# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The JobSet plugin."""

from .jobset import NAME as NAME
from .jobset import JobSetPlugin as JobSetPlugin
from .jobset import new as new
