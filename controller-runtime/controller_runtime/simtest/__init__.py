# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deterministic simulation of operators: one integer decides every order, delay and failure of a cluster's life."""

from .decorator import simulate as simulate
from .life import Outcome as Outcome
from .life import run as run
from .loop import DeadlockError as DeadlockError
from .loop import LeakError as LeakError
from .loop import SimLoop as SimLoop
from .shrinking import report as report
from .shrinking import shrink as shrink
from .simulation import Simulation as Simulation
from .steps import Step as Step
from .steps import options as options
