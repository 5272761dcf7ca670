# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager: the components that the controllers of a process share, and their order of start and stop."""

from . import signals as signals
from .errors import CredentialsError as CredentialsError
from .errors import GracePeriodExceededError as GracePeriodExceededError
from .errors import GroupStoppedError as GroupStoppedError
from .errors import LostLeadershipError as LostLeadershipError
from .errors import ManagerError as ManagerError
from .errors import UnreachableError as UnreachableError
from .manager import Manager as Manager
from .options import ControllerDefaults as ControllerDefaults
from .options import Options as Options
from .runnable_group import LeaderElectionRunnable as LeaderElectionRunnable
from .runnable_group import Runnable as Runnable
from .signals import setup_signal_handler as setup_signal_handler
