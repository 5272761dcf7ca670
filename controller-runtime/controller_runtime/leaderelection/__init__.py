# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Leader election: a Lease decides which one of several processes leads."""

from .leaderelection import InvalidTimingError as InvalidTimingError
from .leaderelection import LeaderElectionError as LeaderElectionError
from .leaderelection import LeaderElectionLostError as LeaderElectionLostError
from .leaderelection import LeaderElector as LeaderElector
from .leaderelection import Timing as Timing
from .threaded import Elector as Elector
from .threaded import ThreadedElector as ThreadedElector
from .threaded import connection as connection
