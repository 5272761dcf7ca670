# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The logs of simulated pods. To the API server, this package looks like the log server of a kubelet.

Each line is computed from the pod, and no log is stored. The first line states that the log is simulated.
"""

from .server import LogServer as LogServer
