# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Lives of an operator that uses all parts of the library."""

import pytest

from controller_runtime import simtest
from ctrl_testkit.sim_operator import keeper

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(1800)]  # a busy machine takes several times as long

test_an_operator_keeps_its_promises = simtest.simulate(seeds=12)(keeper)
