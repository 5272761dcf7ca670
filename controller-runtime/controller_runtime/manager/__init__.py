# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager: the components that the controllers of a process share, and their order of start and stop."""

import typing as _typing

from controller_runtime import _ondemand

from .lifecycle import CredentialsError as CredentialsError
from .lifecycle import GracePeriodExceededError as GracePeriodExceededError
from .lifecycle import GroupStoppedError as GroupStoppedError
from .lifecycle import LeaderElectionRunnable as LeaderElectionRunnable
from .lifecycle import LostLeadershipError as LostLeadershipError
from .lifecycle import ManagerError as ManagerError
from .lifecycle import Runnable as Runnable
from .lifecycle import UnreachableError as UnreachableError
from .manager import Manager as Manager
from .options import ControllerDefaults as ControllerDefaults
from .options import Options as Options

if _typing.TYPE_CHECKING:
    from . import signals as signals
    from .signals import setup_signal_handler as setup_signal_handler
else:
    __getattr__, __dir__ = _ondemand.names(__name__, {"signals": ("setup_signal_handler",)}, submodules=True)
