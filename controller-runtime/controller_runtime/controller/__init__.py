# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers: sources fill a queue, workers reconcile its requests."""

from .controller import Controller as Controller
from .controller import reconcile_id as reconcile_id
from .finalizer import FinalizeError as FinalizeError
from .finalizer import Finalizer as Finalizer
from .finalizer import FinalizeResult as FinalizeResult
from .finalizer import Finalizers as Finalizers
from .options import ControllerOptions as ControllerOptions
from .options import LogConstructor as LogConstructor
from .options import Options as Options
from .options import Settings as Settings
