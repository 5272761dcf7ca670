# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Test support for operators: an event loop with a virtual clock, background services for fixtures, pytest plugins.

The package exports its modules, which are loaded when they are first used. ``virtual_time`` and ``background`` need
only the standard library. ``pytest_virtual_time`` and ``pytest_envtest`` need pytest and pytest-asyncio, which the
extra ``controller-runtime[envtest]`` installs.
"""

from typing import TYPE_CHECKING

from controller_runtime import _ondemand

if TYPE_CHECKING:
    from . import background as background
    from . import pytest_envtest as pytest_envtest
    from . import pytest_virtual_time as pytest_virtual_time
    from . import virtual_time as virtual_time
else:
    __getattr__, __dir__ = _ondemand.names(__name__, {}, submodules=True)
