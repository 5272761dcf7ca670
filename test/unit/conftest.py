# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Async unit tests run on a loop with a virtual clock, unless they are marked ``real_time``."""

from ctrl_testkit.unit_tests import *  # noqa: F403 fixtures and hooks
