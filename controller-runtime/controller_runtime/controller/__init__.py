# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers: sources fill a queue, workers reconcile its requests."""

import typing as _typing

from controller_runtime import _ondemand

from .controller import Controller as Controller
from .controller import ControllerOptions as ControllerOptions
from .controller import LogConstructor as LogConstructor
from .controller import Options as Options
from .controller import Settings as Settings
from .controller import reconcile_id as reconcile_id

if _typing.TYPE_CHECKING:
    from . import controllerutil as controllerutil
    from .finalizer import FinalizeError as FinalizeError
    from .finalizer import Finalizer as Finalizer
    from .finalizer import FinalizeResult as FinalizeResult
    from .finalizer import Finalizers as Finalizers
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {"finalizer": ("FinalizeError", "Finalizer", "FinalizeResult", "Finalizers")},
        submodules=True,
    )
