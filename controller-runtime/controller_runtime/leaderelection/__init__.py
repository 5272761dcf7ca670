# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Choosing one process of several by a Lease."""

import typing as _typing

from controller_runtime import _ondemand

if _typing.TYPE_CHECKING:
    from .leaderelection import Elector as Elector
    from .leaderelection import LeaderElector as LeaderElector
    from .threaded import ThreadedElector as ThreadedElector
    from .threaded import connection as connection
    from .timing import InvalidTimingError as InvalidTimingError
    from .timing import LeaderElectionError as LeaderElectionError
    from .timing import LeaderElectionLostError as LeaderElectionLostError
    from .timing import Timing as Timing
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            "leaderelection": ("Elector", "LeaderElector"),
            "threaded": ("ThreadedElector", "connection"),
            "timing": ("InvalidTimingError", "LeaderElectionError", "LeaderElectionLostError", "Timing"),
        },
    )
