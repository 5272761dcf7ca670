# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logs of simulated pods, and the removed pods of any local cluster.

To the API server, this package looks like the log server of a kubelet. Each line of a simulated pod is computed from
the pod, and no log is stored. The first line states that the log is simulated.
"""

from .removed import RemovedPods as RemovedPods
from .server import LogError as LogError
from .server import LogServer as LogServer
from .server import Query as Query
