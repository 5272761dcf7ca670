# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Help for the tests of operators: an event loop with a virtual clock, and pytest plugins.

This package imports nothing. ``virtual_time`` needs the standard library alone; ``pytest_virtual_time`` and
``pytest_envtest`` need pytest and pytest-asyncio, the extra ``controller-runtime[envtest]``.
"""
