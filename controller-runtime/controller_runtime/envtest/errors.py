# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of starting and running a test control plane.

::

    EnvtestError
    ├── ToolError         a binary could be neither found nor built
    └── ComponentError    a component did not start, died, or never became ready
"""

from __future__ import annotations


class EnvtestError(Exception):
    """A control plane could not be started or kept running; the message is written for a user."""


class ToolError(EnvtestError):
    """A binary is missing and could not be built."""


class ComponentError(EnvtestError):
    """A component of the control plane failed.

    The message contains the component's name, how it ended, the path of its log and the last lines of the log.
    """

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component
