# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Test support for operators: an event loop with a virtual clock, background services of fixtures, pytest plugins.

Import the modules themselves; this package does not. ``virtual_time`` and ``background`` need only the standard
library. ``pytest_virtual_time`` and ``pytest_envtest`` need pytest and pytest-asyncio, which the extra
``controller-runtime[envtest]`` installs.
"""
