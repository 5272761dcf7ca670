# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A list in which the runnables of a test record what they do."""

import pytest


@pytest.fixture
def diary() -> list[str]:
    return []
