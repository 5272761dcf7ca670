# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deterministic simulation of operators: one integer decides every order, delay and failure of a cluster's life."""

from .decorator import simulate as simulate
from .loop import DeadlockError as DeadlockError
from .loop import LeakError as LeakError
from .loop import SimLoop as SimLoop
from .shrinking import report as report
from .shrinking import shrink as shrink
from .simulation import Outcome as Outcome
from .simulation import Simulation as Simulation
from .simulation import Step as Step
from .simulation import options as options
from .simulation import run as run
