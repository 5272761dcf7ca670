# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events that report changes of objects to users."""

from .recorder import NORMAL as NORMAL
from .recorder import WARNING as WARNING
from .recorder import Broadcaster as Broadcaster
from .recorder import EventRecorder as EventRecorder
from .recorder import SourceRecorder as SourceRecorder
from .recorder import reference as reference
