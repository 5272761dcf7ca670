# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's program: flags, configuration, then the manager with its controllers and webhooks."""

from . import lean as lean
from .program import main as main

lean.loaded()
