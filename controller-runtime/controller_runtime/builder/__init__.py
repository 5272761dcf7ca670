# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers and webhooks declared in one sentence."""

import typing as _typing

from controller_runtime import _ondemand

from .controller import Builder as Builder
from .controller import ControllerManager as ControllerManager
from .controller import new_controller_managed_by as new_controller_managed_by

if _typing.TYPE_CHECKING:
    from .webhook import WebhookBuilder as WebhookBuilder
    from .webhook import new_webhook_managed_by as new_webhook_managed_by
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__, {"webhook": ("WebhookBuilder", "new_webhook_managed_by")}, submodules=True
    )
