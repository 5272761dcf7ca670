# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: one real API server, and a namespace for each test."""

from controller_runtime.testing.pytest_envtest import control_plane as control_plane
from controller_runtime.testing.pytest_envtest import live_client as live_client
from controller_runtime.testing.pytest_envtest import namespace as namespace
from controller_runtime.testing.pytest_envtest import rest_config as rest_config
from ctrl_testkit.programs import pytest_configure as pytest_configure
from ctrl_testkit.programs import pytest_runtest_makereport as pytest_runtest_makereport
