# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""controller-runtime for Python: the names that a controller needs, ``import controller_runtime as ctrl``.

    manager = ctrl.Manager(await ctrl.load_config(), ctrl.Options())
    ctrl.new_controller_managed_by(manager).for_(Pod).complete(reconciler)
    async with ctrl.setup_signal_handler() as stop:
        await manager.start(stop)

The names are loaded when first used: importing one package of ``controller_runtime`` does not load the others.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_WHERE: Final = {
    "Config": ("rest", "Config"),
    "Manager": ("manager", "Manager"),
    "ManagerError": ("manager", "ManagerError"),
    "Options": ("manager", "Options"),
    "Request": ("reconcile", "Request"),
    "Result": ("reconcile", "Result"),
    "TerminalError": ("reconcile", "TerminalError"),
    "load_config": ("rest", "load_config"),
    "logger_from": ("log", "logger_from"),
    "new_controller_managed_by": ("builder", "new_controller_managed_by"),
    "new_webhook_managed_by": ("builder.webhook", "new_webhook_managed_by"),
    "set_controller_reference": ("controller.controllerutil", "set_controller_reference"),
    "setup_signal_handler": ("manager", "setup_signal_handler"),
}


def __getattr__(name: str) -> Any:
    """Load a name or a subpackage on first use. Raises AttributeError for an unknown name."""
    if name in _WHERE:
        module, attribute = _WHERE[name]
        value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        globals()[name] = value
        return value
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
