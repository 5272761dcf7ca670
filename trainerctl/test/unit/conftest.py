# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every async unit test runs on a loop whose clock is virtual, unless it is marked ``real_time``."""

from ctrl_testkit.unit_tests import *  # noqa: F403 fixtures and hooks
