# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while a test control plane is made.

::

    EnvtestError
    ├── ToolError         a binary could be neither found nor built
    └── ComponentError    a component did not start, died, or never became ready
"""

from __future__ import annotations


class EnvtestError(Exception):
    """A control plane could not be made or kept; the text is meant for a person."""


class ToolError(EnvtestError):
    """A binary is neither on this machine nor could it be built here."""


class ComponentError(EnvtestError):
    """A component of the control plane failed.

    The text names the component, how it ended, its log file and the log's last lines.
    """

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component
