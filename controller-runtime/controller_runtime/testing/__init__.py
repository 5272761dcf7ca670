# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Test support for operators: an event loop with a virtual clock, background services for fixtures, pytest plugins.

Import the modules directly, because the package itself exports nothing. ``virtual_time`` and ``background`` need only
the standard library. ``pytest_virtual_time`` and ``pytest_envtest`` need pytest and pytest-asyncio, which the extra
``controller-runtime[envtest]`` installs.
"""
