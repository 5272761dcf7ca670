# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A diary."""

import pytest


@pytest.fixture
def diary() -> list[str]:
    return []
