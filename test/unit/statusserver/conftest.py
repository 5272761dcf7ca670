# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from testkit.tokenissuer import Authority


@pytest.fixture
def authority() -> Authority:
    """Return an issuer with one key, ``a``."""
    made = Authority()
    made.add("a")
    return made
