# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deterministic simulation of operators: a seed determines every order, delay and failure in a cluster's life.

A life is one run of a simulated cluster; the seed is an integer.
"""

from controller_runtime.fake.requests import kind_of as kind_of
from controller_runtime.fake.requests import parse_request as parse_request
from controller_runtime.fake.watches import Event as Event
from controller_runtime.fake.writes import Review as Review

from .faults import miss_changes as miss_changes
from .lives import Outcome as Outcome
from .lives import report as report
from .lives import run as run
from .lives import shrink as shrink
from .lives import simulate as simulate
from .loop import CURRENT_PROCESS as CURRENT_PROCESS
from .loop import LOOP_START as LOOP_START
from .loop import DeadlockError as DeadlockError
from .loop import LeakError as LeakError
from .loop import Process as Process
from .loop import SimLoop as SimLoop
from .network import Observer as Observer
from .network import is_fenced_write as is_fenced_write
from .server import MANAGER as MANAGER
from .simulation import Simulation as Simulation
from .simulation import Step as Step
from .simulation import options as options
