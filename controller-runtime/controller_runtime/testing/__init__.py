# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Test support for operators: an event loop with a virtual clock, services of fixtures, and pytest plugins.

This package imports nothing. ``virtual_time`` and ``background`` need only the standard library;
``pytest_virtual_time`` and ``pytest_envtest`` need pytest and pytest-asyncio: the extra
``controller-runtime[envtest]``.
"""
