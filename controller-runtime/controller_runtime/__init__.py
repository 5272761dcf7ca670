# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""controller-runtime for Python: the names that a controller needs, ``import controller_runtime as ctrl``.

    manager = ctrl.Manager(await ctrl.load_config(), ctrl.Options())
    ctrl.new_controller_managed_by(manager).for_(Pod).complete(reconciler)
    async with ctrl.setup_signal_handler() as stop:
        await manager.start(stop)

The names are loaded when first used: importing one package of ``controller_runtime`` does not load the others. Every
package is also an attribute, ``ctrl.cache``; type checkers know those that programs use.
"""

import typing as _typing

from . import ondemand as ondemand

if _typing.TYPE_CHECKING:
    from . import apis as apis
    from . import builder as builder
    from . import cache as cache
    from . import cancellation as cancellation
    from . import certificates as certificates
    from . import client as client
    from . import controller as controller
    from . import event as event
    from . import handler as handler
    from . import healthz as healthz
    from . import httpserver as httpserver
    from . import leaderelection as leaderelection
    from . import log as log
    from . import manager as manager
    from . import metrics as metrics
    from . import offload as offload
    from . import pprof as pprof
    from . import predicate as predicate
    from . import reconcile as reconcile
    from . import recorder as recorder
    from . import rest as rest
    from . import source as source
    from . import tokenbucket as tokenbucket
    from . import webhook as webhook
    from . import workqueue as workqueue
    from .builder import new_controller_managed_by as new_controller_managed_by
    from .builder.webhook import new_webhook_managed_by as new_webhook_managed_by
    from .controller.controllerutil import set_controller_reference as set_controller_reference
    from .log import logger_from as logger_from
    from .manager import Manager as Manager
    from .manager import ManagerError as ManagerError
    from .manager import Options as Options
    from .manager import setup_signal_handler as setup_signal_handler
    from .reconcile import Request as Request
    from .reconcile import Result as Result
    from .reconcile import TerminalError as TerminalError
    from .rest import Config as Config
    from .rest import load_config as load_config
else:
    __getattr__, __dir__ = ondemand.names(
        __name__,
        {
            "builder": ("new_controller_managed_by",),
            "builder.webhook": ("new_webhook_managed_by",),
            "controller.controllerutil": ("set_controller_reference",),
            "log": ("logger_from",),
            "manager": ("Manager", "ManagerError", "Options", "setup_signal_handler"),
            "reconcile": ("Request", "Result", "TerminalError"),
            "rest": ("Config", "load_config"),
        },
        submodules=True,
    )
