# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The JobSet plugin."""

from .jobset import JobSetPlugin as JobSetPlugin
from .jobset import job_set as job_set
