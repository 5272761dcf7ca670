# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs for tests."""

from collections.abc import Callable
from pathlib import Path

Write = Callable[..., Path]
